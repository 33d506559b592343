"""The compiler's table of real decode programs, and the replay of a real v6e capture through extract and fit."""

import importlib.util
import io
import json
import statistics

import msgspec
import pytest
from click.testing import CliRunner

from perfcli.app import app
from perfmodel.codec import save
from perfmodel.compiled import CLOCKS, clock_from_matmul, device_of
from perfmodel.cost import step_cost
from perfmodel.errors import FitError, InputError
from perfmodel.fit import fit
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.records import CompiledSet, CompiledStep, StepShape, TimingPoint
from perfmodel.roofline import floor_s
from profiling.compile import CompiledProgram, ProgramReference, compile_program
from profiling.compile_topology import CHIPS, find_topology
from profiling.extract import extract
from profiling.hlo import parse_module
from profiling.hlo_account import account
from sweeps.compiling import compile_table, points

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu, the TPU compiler, is not installed (extra: tpu)"
)

TARGET, DRAFT = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")

SMALL = msgspec.structs.replace(
    load_model("smollm2-135m"), name="small", num_layers=2, hidden_size=192, intermediate_size=256, num_heads=3, num_kv_heads=3,
    head_dim=64, vocab_size=512,
)  # fmt: skip
SMALL_DRAFT = msgspec.structs.replace(
    load_model("smollm2-135m-dflash"), name="small-dflash", num_layers=1, hidden_size=192, intermediate_size=256, num_heads=3,
    num_kv_heads=3, head_dim=64, vocab_size=512, target_layer_ids=(0, 1), target_hidden_size=192,
)  # fmt: skip
"""Three heads of 64: neither fills the kernel's tiles, as in the embedded target, so both are padded."""


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@needs_compiler
def test_the_fused_loop_of_a_small_pair_compiles_for_all_five_chips(own_cache):
    wanted = points(CHIPS, SMALL, SMALL_DRAFT, ("loop",), (4,), (1,), (64,))
    told, kept = [], []
    found = compile_table(wanted, report=lambda share, message: told.append(share), keep=kept.append)
    assert [row.failure for row in found.rows] == [None] * 5
    assert [row.hardware for row in found.rows] == list(CHIPS)
    assert told[0] == 0.0
    assert told[-1] == 1.0
    assert found == kept[-1]
    for row in found.rows:
        assert row.fits
        assert row.estimated_s > row.floor_s > 0.0
        assert row.unpriced_calls["ragged_paged_attention_kernel"] == SMALL.num_layers
        assert {scope.split("/")[0] for scope in row.scopes} >= {"draft", "verify", "commit"}
    # On a v7x a row is one device, half a chip, and so is its floor.
    half = found.rows[CHIPS.index("tpu-v7x")]
    assert half.chip_share == 0.5
    chip = load_hardware("tpu-v7x")
    costs = [
        step_cost(SMALL, SMALL_DRAFT, StepShape(phase=p, batch=1, query_tokens=4, context=64))
        for p in ("draft", "verify", "commit")
    ]
    assert half.floor_s == pytest.approx(2 * floor_s(costs[0] + costs[1] + costs[2], chip, "bfloat16"))
    codes = {finding.code for finding in found.findings}
    assert {"clock-derived", "part-of-a-chip", "unpriced"} <= codes


@needs_compiler
def test_the_fused_loop_of_a_small_pair_compiles_split_over_four_chips(own_cache):
    """Four heads, one a chip: the kernel runs under a map over the mesh, weights and cache are split, sums cross the links."""
    heads = {"num_heads": 4, "num_kv_heads": 4, "head_dim": 128}
    target, draft = msgspec.structs.replace(SMALL, **heads), msgspec.structs.replace(SMALL_DRAFT, **heads)
    (row,) = compile_table(points(("v6e:2x2",), target, draft, ("loop",), (4,), (1,), (64,))).rows
    assert row.failure is None
    assert row.num_devices == 4
    assert row.unpriced_calls["ragged_paged_attention_kernel"] == target.num_layers
    # Two sums a layer, in target and drafter, of at least four rows of 192.
    assert row.collective_bytes >= 2 * 3 * 4 * 192 * 2
    assert row.flops < 0.5 * compile_table(points(("v6e",), target, draft, ("loop",), (4,), (1,), (64,))).rows[0].flops


@needs_compiler
def test_phases_of_a_step_one_by_one(own_cache, monkeypatch):
    import sweeps.compiling as compiling

    monkeypatch.setattr("perfmodel.modelspec.load_model", lambda name: SMALL if name == "small" else SMALL_DRAFT)
    arguments = ["compile", "--hardware", "v5e", "--target", "small", "--draft", "small-dflash", "--k", "1,4", "--context", "64"]
    result = CliRunner().invoke(app, [*arguments, "--phase", "draft,verify", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "perf.compiled"
    promised = {
        "hardware", "phase", "block_size", "batch", "context", "estimated_s", "floor_s", "hbm_bytes", "flops", "argument_bytes",
        "temporary_bytes", "fits", "unpriced_calls",
    }  # fmt: skip
    assert all(promised <= set(row) for row in document["rows"])
    # Nothing is drafted at K=1.
    assert [(row["phase"], row["block_size"]) for row in document["rows"]] == [("verify", 1), ("draft", 4), ("verify", 4)]
    assert any(finding["code"] == "matrix-vector" for finding in document["findings"])
    verify = document["rows"][-1]
    per_layer = 192 * 3 * 192 + 192 * 192 + 3 * 192 * 256
    assert verify["flops"] >= 2 * 4 * (2 * per_layer + 192 * 512)  # attention comes on top
    assert compiling.TOLERANCES == (0.05, 0.10, 0.25)


def test_what_does_not_fit_is_a_finding_with_both_sizes(monkeypatch):
    import sweeps.compiling as compiling

    text = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (17.39G) exceeds available HBM"
        " (15.75G)."
    )
    pair = load_model("qwen3-8b"), load_model("qwen3-8b-dflash-b16")
    wanted = points(("tpu-v5e",), *pair, ("loop",), (16,), (1,), (1024,))

    def compile_none(programs, jobs, done):
        done(0, CompiledProgram(wanted[0].topology, "TPU v5 lite", 1, {}, was_cached=False, failure=text))

    monkeypatch.setattr(compiling, "compile_many", compile_none)
    found = compile_table(wanted)
    assert not found.rows[0].fits
    (finding,) = [each for each in found.findings if each.severity == "warning"]
    assert finding.code == "does-not-fit"
    assert "it needs 17.39 GiB, 15.75 GiB are there" in finding.message
    assert finding.where == "v5e:1x1 loop K=16 batch 1 context 1024"


def test_a_drafter_with_a_vocabulary_of_its_own_is_known_by_its_shapes_alone():
    """Its map of token ids is checked, which nothing abstract can be."""
    import jax

    from decoding.checkpoint import device_draft
    from decoding.config_shape import draft_of, target_of

    config = draft_of(msgspec.structs.replace(SMALL_DRAFT, draft_vocab_size=128), target_of(SMALL))
    params = jax.eval_shape(lambda: device_draft(config, 0, "bfloat16"))
    assert (params["head"].shape, params["d2t"].shape) == ((192, 128), (128,))


def test_points_leave_out_what_does_not_exist():
    found = points(("tpu-v5p",), TARGET, DRAFT, ("draft", "verify", "commit", "step"), (1, 16), (1,), (1024,))
    assert [(point.block_size, point.phase) for point in found] == [
        (1, "verify"), (1, "step"), (16, "draft"), (16, "verify"), (16, "commit"), (16, "step"),
    ]  # fmt: skip
    alone = points(("v6e:2x2",), TARGET, None, ("verify", "step"), (1, 16), (1,), (1024,))
    assert [(point.block_size, point.phase) for point in alone] == [(1, "verify"), (1, "step"), (16, "verify")]


@pytest.mark.parametrize(
    ("hardware", "phases", "sizes"),
    [(("h100",), ("verify",), (16,)), (("tpu-v4",), ("prefill",), (16,)), (("tpu-v4",), ("draft",), (1,))],
)
def test_points_that_are_none_are_refused(hardware, phases, sizes):
    with pytest.raises(InputError):
        points(hardware, TARGET, DRAFT, phases, sizes, (1,), (1024,))


def test_the_verb_without_a_compiler_is_one_line_a_hint_and_exit_4(monkeypatch):
    from perfmodel.errors import UnsupportedError
    from profiling import compile as compiling

    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["compile", "--hardware", "tpu-v5p", "--k", "16", "--phase", "verify"])
    assert isinstance(result.exception, UnsupportedError)
    assert result.exception.exit_code == 4


def compiled_row(phase, block_size, seconds):
    return CompiledStep(
        hardware="tpu-v5p", topology="v5p:1x1x1", device_kind="TPU v5", num_devices=1, chip_share=1.0, target="qwen3-4b",
        draft="qwen3-4b-dflash-b16", dtype="bfloat16", phase=phase, block_size=block_size, batch=1, context=1024,
        estimated_s=seconds, floor_s=3e-3, hbm_bytes=8.2e9, flops=1e11, argument_bytes=9e9, temporary_bytes=1e7, fits=True,
        memory_floor_s=3e-3, compute_floor_s=3e-4,
    )  # fmt: skip


def test_a_compiled_table_is_a_source_of_its_own_for_predictions(tmp_path):
    rows = [compiled_row("verify", 1, 14e-3), compiled_row("verify", 2, 5.9e-3), compiled_row("verify", 16, 6e-3)]
    rows += [compiled_row(phase, 16, seconds) for phase, seconds in (("draft", 1.5e-3), ("commit", 0.5e-3))]
    table = tmp_path / "compiled.json"
    save(table, CompiledSet(rows=tuple(rows)))
    result = CliRunner().invoke(app, ["predict", "--model", str(table), "--survival", "0.9,0.8,0.7", "--k", "1:4", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["source"] == "compiled"
    best = document["best"]
    # K=4: 3.4 tokens for a plain step's 5.9 ms and drafting's 2 ms; the rule for K=1 keeps its 14 ms out of the speedup.
    assert best["block_size"] == 4
    assert best["speedup"] == pytest.approx((1 + 0.9 + 0.8 + 0.7) * 5.9 / (5.9 + 0.1 * 2 / 14 + 2.0), rel=0.01)
    assert any(finding["code"] == "device-time-only" for finding in document["findings"])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("chip", "size", "width"), [(c, 16384 if c in ("tpu-v4", "tpu-v7x") else 4096, 256 if c >= "tpu-v6" else 128) for c in CHIPS]
)
def test_this_compilers_products_imply_the_clocks_in_use(chip, size, width, own_cache):
    program = ProgramReference("compile_programs:matmul", {"rows": size, "inner": size, "columns": size}, ("compile_programs",))
    compiled = compile_program(program, find_topology(chip))
    cycles = account(parse_module(compiled.hlo)).estimated_cycles
    peak = device_of(load_hardware(chip)).flops_per_s["bfloat16"].value
    assert clock_from_matmul(cycles, 2.0 * size**3, peak, width) == pytest.approx(CLOCKS[chip].hz, rel=0.005)


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_compiler
@pytest.mark.parametrize("chip", CHIPS)
def test_the_real_pairs_compile(chip, own_cache):
    """The embedded pair with its padded heads, and Qwen3-4B with its b16 drafter: the whole fused loop, kernels included."""
    embedded = points((chip,), load_model("smollm2-135m"), load_model("smollm2-135m-dflash"), ("loop",), (8,), (1,), (256,))
    real = points((chip,), TARGET, DRAFT, ("loop",), (16,), (1,), (1024,))
    found = compile_table([*embedded, *real], jobs=1)
    assert [row.failure for row in found.rows] == [None, None]
    row = found.rows[1]
    assert row.fits
    assert row.temporary_bytes < 0.1 * row.argument_bytes  # no weights are copied in front of the loop
    # Weights cross the bus once: 8.0 GB of target, 1.1 GB of drafter, and the head once more for the drafts; some activations too.
    assert 9.8e9 < row.hbm_bytes < 11.0e9
    assert row.unpriced_calls["ragged_paged_attention_kernel"] == 36


def test_a_real_v6e_capture_goes_through_extract_and_fit(shared_data):
    """A hundred device steps of four chips; its scatter on a known law, since one program has one size and a law needs several."""
    timings = extract(shared_data / "traces/xprof_tpu_inference_2.xplane.pb", {"verify": r"^jit_f\("})
    measured = timings.phases["verify"].device_s
    median = statistics.median(measured)
    alone = TimingPoint(phase="verify", block_size=16, batch=1, context=0, samples_s=tuple(measured[:20]), clock="device")
    with pytest.raises(FitError):
        fit([alone])
    scatter = [seconds / median for seconds in measured]
    sizes = (2, 4, 8, 16, 32, 64, 128, 256)
    law = {k: max(5e-3, 40e-6 * k) for k in sizes}
    replayed = [
        TimingPoint(
            phase="verify", block_size=k, batch=1, context=0, clock="device",
            samples_s=tuple(law[k] * factor for factor in scatter[place * 10 : place * 10 + 10]),
        )
        for place, k in enumerate(sizes)
    ]  # fmt: skip
    found = fit(replayed)
    assert found.parameters["plateau_s"].value == pytest.approx(5e-3, rel=0.02)
    assert found.parameters["token_s"].value == pytest.approx(40e-6, rel=0.02)


def test_the_table_fits_a_terminal_and_shows_what_fails():
    from rich.console import Console

    from reports.compiled import compiled_table

    whole = compiled_row("verify", 16, 6e-3)
    wide = msgspec.structs.replace(whole, block_size=128, estimated_s=9e-3, needed_bytes=16.4e9, fits=False)
    failed = msgspec.structs.replace(whole, block_size=256, estimated_s=None, fits=False, failure="RESOURCE_EXHAUSTED")
    other = msgspec.structs.replace(whole, topology="v5p:2x2x1", context=4096)
    page = io.StringIO()
    Console(width=80, file=page).print(compiled_table(CompiledSet(rows=(whole, wide, failed, other))))
    lines = page.getvalue().splitlines()
    rows = [line.split() for line in lines if line.startswith("v5p")]
    assert len(rows) == 4  # none is folded,
    assert [line.split() for line in lines if line.startswith("device")] == [
        ["device", "phase", "K", "cycles", "ms", "ms", "share", "×", "GB", "GB"],
        ["device", "phase", "K", "cycles", "ms", "ms", "share", "GB", "GB"],
    ]  # and no header is broken
    assert "1.50" in rows[1]  # 9 ms over the narrowest block's 6
    assert rows[1][-1] == "!16.4"
    assert rows[2][-1] == "fails"
    text = " ".join(lines)
    assert "batch 1, context 1024" in text
    assert "batch 1, context 4096" in text


def test_a_table_is_kept_after_every_program(monkeypatch):
    import sweeps.compiling as compiling

    wanted = points(("tpu-v5p", "tpu-v4"), TARGET, DRAFT, ("verify",), (16, 32), (1,), (1024,))
    refused = [
        CompiledProgram(point.topology, "TPU", 1, {}, was_cached=False, failure=f"refused {place}")
        for place, point in enumerate(wanted)
    ]

    def compile_out_of_order(programs, jobs, done):
        for place in (1, 0, 3):
            done(place, refused[place])
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "compile_many", compile_out_of_order)
    kept = []
    with pytest.raises(KeyboardInterrupt):
        compile_table(wanted, keep=kept.append)
    assert [[row.failure[-1] for row in found.rows] for found in kept] == [["1"], ["0", "1"], ["0", "1", "3"]]
    assert len(kept[-1].findings) == 3
