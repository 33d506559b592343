"""The account of compiled HLO on programs small enough to count by hand; no compiler is needed here."""

import pytest

from perfmodel.errors import InputError
from profiling.hlo import parse_module, without_kernels
from profiling.hlo_account import account, account_of_turn, scope_of, trip_count
from profiling.hlo_shapes import element_bits, parse_buffers

HEAD = "HloModule jit_f, is_scheduled=true, entry_computation_layout={}\n\n"


def entry(*lines):
    return HEAD + "ENTRY %main () -> f32[] {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def cycles(number):
    return f'backend_config={{"window_config":{{"estimated_cycles":"{number}"}}}}'


def test_a_buffer_counts_padding_to_whole_tiles_and_nothing_on_chip():
    (rows,) = parse_buffers("bf16[16,4096]{1,0:T(8,128)(2,1)}")
    assert rows.num_bytes == rows.hbm_bytes == 16 * 4096 * 2
    (narrow,) = parse_buffers("bf16[16,64]{1,0:T(8,128)(2,1)}")
    assert narrow.num_bytes == 16 * 128 * 2  # 64 columns fill half of 128 lanes, and the other half moves too
    (turned,) = parse_buffers("f32[100,8]{0,1:T(8,128)}")
    assert turned.num_bytes == 8 * 128 * 4  # the first dimension is the minor one here
    (on_chip,) = parse_buffers("bf16[16,4096]{1,0:T(8,128)(2,1)S(1)}")
    assert (on_chip.space, on_chip.hbm_bytes) == (1, 0.0)


def test_a_tuple_has_a_buffer_per_leaf():
    shape = "(bf16[2,3]{1,0}, (s32[]{:T(128)}, pred[4]{0:S(6)}), token[])"
    found = parse_buffers(shape)
    assert [buffer.num_elements for buffer in found] == [6, 1, 4, 1]
    assert [buffer.hbm_bytes for buffer in found] == [12.0, 4.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "bits"), [("bf16", 16), ("f32", 32), ("s4", 4), ("u8", 8), ("pred", 8), ("f8e4m3fn", 8), ("c64", 64)]
)
def test_element_types(name, bits):
    assert element_bits(name) == bits


def test_an_unknown_element_type_is_refused():
    with pytest.raises(InputError, match="not known"):
        element_bits("mystery")


def test_a_matmul_fusion_reads_its_operands_and_writes_its_result():
    text = HEAD + (
        "%inner (x: bf16[16,4096], w: bf16[4096,8192]) -> bf16[16,8192] {\n"
        "  %x = bf16[16,4096]{1,0:T(8,128)(2,1)} parameter(0)\n"
        "  %w = bf16[4096,8192]{1,0:T(8,128)(2,1)} parameter(1)\n"
        "  ROOT %conv = bf16[16,8192]{1,0:T(8,128)(2,1)} convolution(%x, %w), dim_labels=bf_io->bf\n"
        "}\n\n"
        "ENTRY %main (x: bf16[16,4096], w: bf16[4096,8192]) -> bf16[16,8192] {\n"
        "  %a = bf16[16,4096]{1,0:T(8,128)(2,1)S(1)} parameter(0)\n"
        "  %b = bf16[4096,8192]{1,0:T(8,128)(2,1)} parameter(1)\n"
        "  ROOT %f = bf16[16,8192]{1,0:T(8,128)(2,1)} fusion(%a, %b), kind=kOutput, calls=%inner, "
        f'metadata={{op_name="jit(verify)/mlp/dot_general"}}, {cycles(70821)}\n'
        "}\n"
    )
    found = account(parse_module(text))
    # The left operand is in VMEM: only the weights and the result cross the bus.
    assert found.hbm_bytes == 4096 * 8192 * 2 + 16 * 8192 * 2
    assert found.estimated_cycles == 70821
    assert set(found.scopes) == {"verify/mlp"}


def test_a_fusion_that_slices_or_gathers_reads_only_that():
    text = HEAD + (
        "%inner (w: bf16[6,1024,1024], t: bf16[50000,256]) -> bf16[16,256] {\n"
        "  %w = bf16[6,1024,1024]{2,1,0} parameter(0)\n"
        "  %t = bf16[50000,256]{1,0} parameter(1)\n"
        "  %i = s32[] constant(3)\n"
        "  %one = bf16[1,1024,1024]{2,1,0} dynamic-slice(%w, %i, %i, %i), dynamic_slice_sizes={1,1024,1024}\n"
        "  %rows = bf16[16,256]{1,0} gather(%t, %i), offset_dims={1}\n"
        "  ROOT %sum = bf16[16,256]{1,0} add(%rows, %rows)\n"
        "}\n\n"
        "ENTRY %main (w: bf16[6,1024,1024], t: bf16[50000,256]) -> bf16[16,256] {\n"
        "  %a = bf16[6,1024,1024]{2,1,0} parameter(0)\n"
        "  %b = bf16[50000,256]{1,0} parameter(1)\n"
        f"  ROOT %f = bf16[16,256]{{1,0}} fusion(%a, %b), kind=kLoop, calls=%inner, {cycles(10)}\n"
        "}\n"
    )
    assert account(parse_module(text)).hbm_bytes == 1024 * 1024 * 2 + 16 * 256 * 2 + 16 * 256 * 2


def test_an_update_in_place_moves_the_update_alone():
    text = entry(
        "%cache = bf16[4096,1024]{1,0} parameter(0)",
        "%new = bf16[16,1024]{1,0} parameter(1)",
        "%i = s32[] constant(5)",
        "ROOT %d = bf16[4096,1024]{1,0} dynamic-update-slice(%cache, %new, %i, %i)",
    )
    assert account(parse_module(text)).hbm_bytes == 2 * 16 * 1024 * 2


LOOP = (
    HEAD + "%body (p: (s32[], bf16[256,256])) -> (s32[], bf16[256,256]) {\n"
    "  %p = (s32[], bf16[256,256]{1,0}) parameter(0)\n"
    "  %i = s32[] get-tuple-element(%p), index=0\n"
    "  %x = bf16[256,256]{1,0} get-tuple-element(%p), index=1\n"
    "  %one = s32[] constant(1)\n"
    "  %next = s32[] add(%i, %one)\n"
    f'  %y = bf16[256,256]{{1,0}} negate(%x), metadata={{op_name="jit(verify)/mlp/neg"}}, {cycles(1000)}\n'
    "  ROOT %out = (s32[], bf16[256,256]{1,0}) tuple(%next, %y)\n"
    "}\n\n"
    "%condition (p: (s32[], bf16[256,256])) -> pred[] {\n"
    "  %p = (s32[], bf16[256,256]{1,0}) parameter(0)\n"
    "  %i = s32[] get-tuple-element(%p), index=0\n"
    "  %limit = s32[] LIMIT\n"
    "  ROOT %less = pred[] compare(%i, %limit), direction=LT\n"
    "}\n\n"
    "ENTRY %main (x: bf16[256,256]) -> bf16[256,256] {\n"
    "  %x = bf16[256,256]{1,0} parameter(0)\n"
    "  %zero = s32[] constant(0)\n"
    "  %start = s32[] copy(%zero)\n"
    "  %t = (s32[], bf16[256,256]{1,0}) tuple(%start, %x)\n"
    "  %w = (s32[], bf16[256,256]{1,0}) while(%t), condition=%condition, body=%body\n"
    "  ROOT %r = bf16[256,256]{1,0} get-tuple-element(%w), index=1\n"
    "}\n"
)


def test_a_loop_counts_its_body_as_often_as_it_runs():
    module = parse_module(LOOP.replace("LIMIT", "constant(36)"))
    found = account(module)
    assert found.estimated_cycles == 36 * 1000
    assert found.hbm_bytes == 36 * (2 * 256 * 256 * 2 + 3 * 4) + 2 * 4  # read and written, and the counter's scalars
    assert found.num_open_loops == 0


def test_a_loop_of_unknown_length_counts_one_turn_and_says_so():
    module = parse_module(LOOP.replace("LIMIT", 'custom-call(), custom_call_target="AllocateBuffer"'))
    where = module.computations[module.entry]
    assert trip_count(module, where, where.by_name["w"]) is None
    found = account(module)
    assert (found.estimated_cycles, found.num_open_loops) == (1000, 1)
    turn = account_of_turn(module)
    assert turn.hbm_bytes == found.hbm_bytes - 2 * 4  # without the counter's copy in front of the loop
    with pytest.raises(InputError, match="no loop"):
        account_of_turn(parse_module(LOOP.replace("LIMIT", "constant(36)")))


def test_the_compilers_own_trip_count_is_believed():
    text = LOOP.replace("LIMIT", "constant(36)").replace(
        "body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
    )
    assert account(parse_module(text)).estimated_cycles == 7 * 1000


PREFETCH = entry(
    "%w = bf16[1024,1024]{1,0:T(8,128)(2,1)} parameter(0)",
    "%x = bf16[256,256]{1,0:T(8,128)(2,1)S(1)} parameter(1)",
    "%s = (bf16[1024,1024]{1,0:T(8,128)(2,1)S(1)}, bf16[1024,1024]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(%w)",
    f"%work = bf16[256,256]{{1,0:T(8,128)(2,1)S(1)}} negate(%x), {cycles(600)}",
    "%d = bf16[1024,1024]{1,0:T(8,128)(2,1)S(1)} copy-done(%s)",
    f"ROOT %use = bf16[256,256]{{1,0:T(8,128)(2,1)S(1)}} add(%work, %d), {cycles(400)}",
)


def test_an_asynchronous_copy_costs_only_what_its_user_waits_for():
    # 2 MiB at 2048 B per cycle take 1024 cycles, of which 600 pass under other work.
    found = account(parse_module(PREFETCH), 2048.0)
    assert found.hbm_bytes == 1024 * 1024 * 2
    assert found.estimated_cycles == 1000
    assert found.wait_cycles == 1024 - 600
    assert found.total_cycles == 1424


def test_a_copy_that_arrives_in_time_costs_nothing():
    assert account(parse_module(PREFETCH), 4096.0).wait_cycles == 0.0


def test_kernels_without_an_estimate_are_counted_named_and_charged_their_bytes():
    text = entry(
        "%x = bf16[4096,1024]{1,0:T(8,128)(2,1)} parameter(0)",
        '%double.3 = bf16[4096,1024]{1,0:T(8,128)(2,1)} custom-call(%x), custom_call_target="tpu_custom_call", '
        'metadata={op_name="jit(verify)/attention/pallas_call"}, backend_config={"custom_call_config":{"body":"AAAA"}}',
        'ROOT %double.4 = bf16[4096,1024]{1,0:T(8,128)(2,1)} custom-call(%double.3), custom_call_target="tpu_custom_call", '
        "output_to_operand_aliasing={{}: (0, {})}",
    )
    found = account(parse_module(text), 1024.0)
    size = 4096 * 1024 * 2
    assert dict(found.unpriced) == {"double": 2}
    # The second writes into its operand: how much of it is not known, so only the reading counts.
    assert found.hbm_bytes == found.unpriced_bytes["double"] == 2 * size + size
    assert found.call_cycles == 3 * size / 1024
    assert found.estimated_cycles == 0
    assert "AAAA" not in without_kernels(text)


def test_an_estimate_that_is_the_largest_integer_is_none():
    text = entry(
        "%x = bf16[4096,1024]{1,0} parameter(0)", f"ROOT %y = bf16[4096,1024]{{1,0}} negate(%x), {cycles(9223372036854775807)}"
    )
    found = account(parse_module(text))
    assert (found.estimated_cycles, dict(found.unpriced)) == (0, {"negate": 1})


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("jit(step)/jit(verify)/verify/mlp/dot_general", "verify/mlp"),
        ("jit(decode)/while/body/closed_call/jit(step)/jit(draft)/draft/head/branch_1_fun/btd,vd->btv/dot_general", "draft/head"),
        ("jit(verify)/add", "verify"),
        ("jit(f)/tanh", "f"),
        ("target_params['embed']", "other"),
        ("", "other"),
    ],
)
def test_scopes_are_a_phase_and_its_first_part(op_name, scope):
    assert scope_of(op_name) == scope


def test_text_that_is_not_scheduled_is_refused():
    with pytest.raises(InputError, match="not scheduled"):
        parse_module("HloModule jit_f\n\nENTRY %main () -> f32[] {\n}\n")
