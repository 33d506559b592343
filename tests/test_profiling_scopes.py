"""The fused loop: one program whose operations say by their scope which phase they belong to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding_pairs import small_pair
from profiling_spaces import SpacePlane, write_space
from test_profiling_programs import Builder

from decoding.fused import compile_fused, generate_fused
from decoding.loop import Decoder, required_capacity
from perfmodel.phases import COMMIT, DRAFT, VERIFY
from profiling.capture import capture
from profiling.extract import extract
from profiling.phase_map import PhaseMap
from profiling.scopes import scoped_executions

US = 1e-6
NUM_ITERATIONS, SIZE, NUM_LAYERS = 7, 160, 3


def codes(timings) -> set[str]:
    return {finding.code for finding in timings.findings}


def test_scopes_are_read_inside_what_jax_wraps_around_names():
    phase_map = PhaseMap({})
    assert phase_map.of_scope("jit(loop)/while/body/verify/dot_general") == VERIFY
    assert phase_map.of_scope("jit(loop)/while/body/jit(draft)/add") == DRAFT
    assert phase_map.of_scope("jit(loop)/jit(main)/vmap(jit(commit))/add") == COMMIT
    assert phase_map.of_scope("jit(loop)/while/body/verify_all/add") is None
    assert PhaseMap({"verify": "forward"}).of_scope("jit(step)/forward/dot") == VERIFY


def test_iterations_are_told_apart_by_what_runs_once_in_each():
    # Two iterations: draft runs `a` and, in an inner loop, `b` twice; then verify.
    order = ["a", "b", "b", "v", "a", "b", "b", "v"]
    phases = [DRAFT, DRAFT, DRAFT, VERIFY] * 2
    found = scoped_executions(phases, order, [0] * 8, np.arange(8) * 10)
    assert found == [(phase, "scope", 0, at // 4) for at, phase in enumerate(phases)]


def test_prefill_and_unknown_operations_stand_outside_the_iterations():
    phases = ["prefill", None, VERIFY, VERIFY]
    found = scoped_executions(phases, ["p", "x", "v", "v"], ["run"] * 4, np.arange(4))
    assert found == [("prefill", "scope", "run", 0), None, (VERIFY, "scope", "run", 0), (VERIFY, "scope", "run", 1)]


def fused(values, weights, layers):
    def body(state):
        step, values = state
        with jax.named_scope(DRAFT):
            block = jnp.tanh(values @ weights)
        with jax.named_scope(VERIFY):
            block, _ = jax.lax.scan(lambda carry, layer: (jnp.tanh(carry @ layer), None), block, layers)
        with jax.named_scope(COMMIT):
            values = jnp.sin(block) + values
        return step + 1, values

    return jax.lax.while_loop(lambda state: state[0] < NUM_ITERATIONS, body, (0, values))


def test_a_real_fused_loop_on_cpu_splits_into_its_phases(tmp_path):
    values, weights = jnp.ones((SIZE, SIZE)), jnp.full((SIZE, SIZE), 1e-3)
    layers = jnp.stack([weights] * NUM_LAYERS)
    run = jax.jit(fused)
    jax.block_until_ready(run(values, weights, layers))
    with capture(tmp_path, "fused") as recording:
        jax.block_until_ready(run(values, weights, layers))
        jax.block_until_ready(run(values, weights, layers))
    timings = extract(recording.xplane)
    assert (timings.steps, timings.step_source, timings.timing) == (2 * NUM_ITERATIONS, "modules", "host")
    assert {phase: times.count for phase, times in timings.phases.items()} == dict.fromkeys(
        (DRAFT, VERIFY, COMMIT), 2 * NUM_ITERATIONS
    )
    assert timings.coverage > 0.9
    assert "low-coverage" not in codes(timings)
    # 2 · n³ a product: one to draft, one per layer to verify.
    assert timings.phases[DRAFT].flops == pytest.approx(2 * SIZE**3, rel=0.01)
    assert timings.phases[VERIFY].flops == pytest.approx(NUM_LAYERS * 2 * SIZE**3, rel=0.01)
    for times in timings.phases.values():
        assert times.flops_per_s == pytest.approx(times.flops / times.device_s_median)
        assert times.accessed_bytes >= SIZE * SIZE * 4
    # Phases in order, one after the other, inside each step.
    assert sum(times.device_s_median for times in timings.phases.values()) <= timings.step_seconds_median * 1.01


def test_tpu_operations_split_a_fused_program_by_their_scope(tmp_path):
    plane = SpacePlane("/device:TPU:0", {"device_type_string": "TPU v5", "peak_teraflops_per_second": 459.0})
    # Three iterations of 100 µs in one program; the loop's own event encloses them all.
    operations = [("%while.1 = while()", 0, 300)]
    for step in range(3):
        operations += [("%d = dot()", 100 * step, 20), ("%v = dot()", 100 * step + 20, 60), ("%c = add()", 100 * step + 85, 5)]
    plane.line("XLA Modules", ("jit_generate(5)", 0, 300))
    plane.line("XLA Ops", *operations)
    plane.shared = {
        "%while.1 = while()": {
            "hlo_category": "while",
            "tf_op": "jit(generate)/while:",
            "flops": 10**12,
            "bytes_accessed": 10**9,
        },
        "%d = dot()": {
            "hlo_category": "fusion",
            "tf_op": "jit(generate)/while/body/draft/dot:",
            "flops": 1000,
            "bytes_accessed": 10,
        },
        "%v = dot()": {
            "hlo_category": "fusion",
            "tf_op": "jit(generate)/while/body/verify/dot:",
            "flops": 6000,
            "bytes_accessed": 60,
        },
        "%c = add()": {
            "hlo_category": "fusion",
            "tf_op": "jit(generate)/while/body/commit/add:",
            "flops": 5,
            "bytes_accessed": 5,
        },
    }
    timings = extract(write_space(tmp_path, plane))
    assert (timings.steps, timings.step_source) == (3, "modules")
    assert timings.phases[VERIFY].device_s == pytest.approx([60 * US] * 3)
    assert timings.step_seconds == pytest.approx([90 * US] * 3)
    # The loop's own cost, which repeats its body's, is not counted.
    assert (timings.phases[VERIFY].flops, timings.phases[VERIFY].accessed_bytes) == (6000, 60)
    assert timings.phases[VERIFY].flops_per_s == pytest.approx(6000 / 60e-6)
    assert timings.peak_flops_per_s == 459e12
    # 85 of each 100 µs lie in a phase, and the loop's event keeps the chip busy in between.
    assert timings.coverage == pytest.approx(255 / 290)


def gpu_program() -> bytes:
    made = Builder()
    entry = made.computation(1)
    left = made.add(entry, "parameter", (8, 64))
    right = made.add(entry, "parameter", (64, 32))
    for name, scope in (("gemm_d", "draft"), ("gemm_v", "verify")):
        made.add(entry, "dot", (8, 32), (left, right), name=name, scope=f"jit(generate)/while/body/{scope}/dot_general")
        entry.instructions[-1].dot.lhs_contracting.append(1)
    return made.encoded()


def test_gpu_kernels_split_a_fused_program_by_the_scope_of_their_operation(tmp_path):
    gpu = SpacePlane("/device:GPU:0", {"device_vendor": "NVIDIA"})
    events = []
    for step in range(3):
        for name, start, length in [("gemm_d", 0, 10), ("gemm_v", 20, 30), ("gemm_v", 52, 8)]:
            stats = {"hlo_module": "jit_generate", "hlo_op": name, "program_id": 4}
            events.append((f"kernel_{name}_{start}", 100 * step + start, length, stats))
    gpu.line("Stream #1(Kernel)", *events)
    metadata = SpacePlane("/host:metadata", shared={"jit_generate(4)": {"Hlo Proto": gpu_program()}})
    timings = extract(write_space(tmp_path, gpu, metadata))
    assert (timings.steps, timings.step_source) == (3, "modules")
    assert {phase: times.count for phase, times in timings.phases.items()} == {DRAFT: 3, VERIFY: 3}
    assert timings.phases[VERIFY].device_s == pytest.approx([38 * US] * 3)
    # An operation of two kernels is counted once.
    assert timings.phases[VERIFY].flops == 2 * 8 * 32 * 64
    assert timings.phases[VERIFY].accessed_bytes == 4 * (8 * 64 + 64 * 32 + 8 * 32)
    assert timings.coverage == pytest.approx(1.0)


def test_without_hlo_the_work_is_absent_and_not_zero(tmp_path):
    plane = SpacePlane("/device:TPU:0")
    plane.line(
        "XLA Modules", *[(f"jit_{name}(1)", at, 10) for at, name in ((0, "draft"), (20, "verify"), (40, "draft"), (60, "verify"))]
    )
    plane.line("XLA Ops", *[("fusion", at, 10) for at in (0, 20, 40, 60)])
    times = extract(write_space(tmp_path, plane)).phases[VERIFY]
    assert (times.flops, times.accessed_bytes, times.flops_per_s, times.bytes_per_s) == (None, None, None, None)


def test_our_own_fused_loop_splits_into_the_steps_it_ran(tmp_path):
    pair = small_pair(3, lean=3.0)
    loop = compile_fused(Decoder(pair, 4, 2, required_capacity(6, 20, 4)), 6, 20)
    prompts = [[1, 2, 3], [4, 5, 6, 7]]
    generate_fused(loop, prompts, 20)
    with capture(tmp_path, "fused") as recording:
        answers = generate_fused(loop, prompts, 20, span=recording.span)
    num_steps = max(len(counts) for counts in answers.committed)
    timings = extract(recording.xplane, expected_steps=num_steps)
    assert (timings.steps, timings.step_source, timings.timing) == (num_steps, "modules", "host")
    assert {phase: times.count for phase, times in timings.phases.items()} == {
        "prefill": 1, DRAFT: num_steps, VERIFY: num_steps, COMMIT: num_steps,
    }  # fmt: skip
    assert 0 <= timings.host_gap_s_median < timings.step_seconds_median
    assert timings.coverage > 0.8
    assert not [finding for finding in timings.findings if finding.severity == "error"]
    # Two requests, four tokens each, through the weights: two layers of q, k, v, o and gate, up, down, then the head; through
    # attention: scores and mix with the 32 slots of the cache, four heads of 8, each against both KV heads (so a CPU does it for
    # few queries). Norms and the choice of tokens come on top.
    weights = 2 * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48) + 32 * 61
    attention = 2 * (2 * 32 * (4 * 8) * 2)
    assert 1.0 < timings.phases[VERIFY].flops / (2 * 8 * (weights + attention)) < 1.15
