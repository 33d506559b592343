import json

import jax
import jax.numpy as jnp
import pytest
from profiling_spaces import SpacePlane, space_bytes

from profiling.program_schema import program_types
from profiling.programs import Programs, decode_program, read_programs
from profiling.xplane import parse_space

F32, BF16, S32 = 11, 16, 4


class Builder:
    """An HLO module written instruction by instruction."""

    def __init__(self) -> None:
        self.types = program_types()
        self.proto = self.types["HloProto"]()
        self.ids = 0

    def computation(self, number: int):
        computation = self.proto.module.computations.add(id=number)
        return computation

    def add(self, computation, opcode: str, dimensions=(), operands=(), element_type=F32, called=(), name="", scope="", **fields):
        self.ids += 1
        one = computation.instructions.add(
            id=self.ids, name=(name or f"{opcode}.{self.ids}").encode(), opcode=opcode.encode(), operand_ids=operands,
            called_ids=called, **fields,
        )  # fmt: skip
        one.shape.element_type = element_type
        one.shape.dimensions.extend(dimensions)
        one.metadata.op_name = scope.encode()
        computation.root_id = self.ids
        return self.ids

    def encoded(self) -> bytes:
        return self.proto.SerializeToString()


def test_a_dot_by_hand():
    # [8, 64] · [64, 32]: 2 · 8 · 32 · 64 FLOP; operands and result in 2 bytes each.
    made = Builder()
    entry = made.computation(1)
    left = made.add(entry, "parameter", (8, 64), element_type=BF16)
    right = made.add(entry, "parameter", (64, 32), element_type=BF16)
    dot = made.add(entry, "dot", (8, 32), (left, right), BF16, name="d", scope="jit(f)/verify/dot_general")
    entry.instructions[-1].dot.lhs_contracting.append(1)
    assert dot == 3
    found = decode_program(made.encoded())["d"]
    assert found.flops == 2 * 8 * 32 * 64
    assert found.num_bytes == 2 * (8 * 64 + 64 * 32 + 8 * 32)
    assert found.scope == "jit(f)/verify/dot_general"


def test_a_cache_updated_in_place_costs_what_is_written():
    # A fusion that writes one row into a cache of 1000 rows and reads another row of it through a slice.
    made = Builder()
    body = made.computation(2)
    cache = made.add(body, "parameter", (1000, 16))
    row = made.add(body, "parameter", (1, 16))
    index = made.add(body, "parameter", (), element_type=S32)
    made.add(body, "dynamic-update-slice", (1000, 16), (cache, row, index, index))
    entry = made.computation(1)
    operands = [
        made.add(entry, "parameter", (1000, 16)),
        made.add(entry, "parameter", (1, 16)),
        made.add(entry, "parameter", (), element_type=S32),
    ]
    made.add(entry, "fusion", (1000, 16), operands, called=(2,), name="update")
    # Nothing of the cache is read; the row once, the index once, the row written.
    assert decode_program(made.encoded())["update"].num_bytes == 4 * 16 + 4 + 4 * 16
    assert decode_program(made.encoded())["update"].flops == 0.0


def test_opaque_kernels_have_unknown_work_and_library_products_have_theirs():
    made = Builder()
    entry = made.computation(1)
    left, right = made.add(entry, "parameter", (4, 8)), made.add(entry, "parameter", (8, 6))
    config = json.dumps({"gemm_backend_config": {"dot_dimension_numbers": {"lhs_contracting_dimensions": ["1"]}}}).encode()
    made.add(
        entry, "custom-call", (4, 6), (left, right), name="gemm", custom_call_target=b"__cublas$lt$matmul", backend_config=config
    )
    made.add(entry, "custom-call", (4, 6), (left, right), name="mosaic", custom_call_target=b"tpu_custom_call")
    made.add(entry, "custom-call", (4, 6), (left,), name="pin", custom_call_target=b"annotate_device_placement")
    found = decode_program(made.encoded())
    assert found["gemm"].flops == 2 * 4 * 6 * 8
    assert found["mosaic"].flops is None
    assert found["pin"].flops == 0.0


def test_operations_of_loops_are_listed_and_those_inside_fusions_are_not():
    made = Builder()
    inner = made.computation(3)
    value = made.add(inner, "parameter", (5,))
    made.add(inner, "add", (5,), (value, value), name="inside", scope="jit(f)/while/body/draft/add")
    body = made.computation(2)
    state = made.add(body, "parameter", (5,))
    made.add(body, "fusion", (5,), (state,), called=(3,), name="fused")
    entry = made.computation(1)
    start = made.add(entry, "parameter", (5,))
    made.add(entry, "while", (5,), (start,), called=(2,), name="loop")
    found = decode_program(made.encoded())
    assert set(found) >= {"fused", "loop"}
    assert "inside" not in found
    # A fusion without a path of its own has that of what it computes.
    assert found["fused"].scope == "jit(f)/while/body/draft/add"
    assert found["fused"].flops == 5
    assert (found["loop"].is_control, found["loop"].flops, found["loop"].num_bytes) == (True, 0.0, 0.0)


def test_a_damaged_program_says_nothing():
    assert decode_program(b"\x0a\xff\xff") == {}
    made = Builder()
    made.add(made.computation(1), "parameter", (8,), name="x")
    assert decode_program(made.encoded())
    assert decode_program(made.encoded().replace(b"parameter", b"\xb2arameter")) == {}
    made.add(made.proto.module.computations[0], "fusion", (8,), called=(1,))  # a fusion of the computation that it is part of
    made.add(made.computation(2), "fusion", (8,), called=(1,))
    assert decode_program(made.encoded()).keys() <= {"fusion.3"}


def test_programs_are_found_by_number_else_by_an_unambiguous_name():
    made = Builder()
    made.add(made.computation(1), "add", (5,), name="only")
    plane = SpacePlane(
        "/host:metadata",
        shared={
            "jit_f(7)": {"Hlo Proto": made.encoded()},
            "jit_g(8)": {"hlo_proto": made.encoded()},
            "jit_g(9)": {"hlo_proto": made.encoded()},
        },
    )
    programs = read_programs(parse_space(space_bytes(plane), "made"))
    assert len(programs) == 3
    assert "only" in programs.operations("anything", 7)
    assert "only" in programs.operations("anything", "7")
    assert "only" in programs.operations("jit_f")
    assert "only" in programs.operations("jit_f(7)")
    assert programs.operations("jit_g") == {}
    assert Programs({}).operations("jit_f", 7) == {}


def decoder_step(values, weights, cache, at):
    """A layer's shape: a product, a cache update in place, a product over the cache, a reduction."""
    values = jnp.tanh(values @ weights)
    cache = jax.lax.dynamic_update_slice(cache, values, (at, 0))
    scores = values @ cache.T
    return jax.nn.softmax(scores) @ cache, cache


def test_flops_agree_with_xla_s_own_analysis():
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 256), (256, 256), (512, 256))]
    compiled = jax.jit(decoder_step).lower(*shapes, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    proto = program_types()["HloProto"]()
    proto.module.ParseFromString(module)
    ours = decode_program(proto.SerializeToString())
    theirs = compiled.cost_analysis()
    assert sum(one.flops for one in ours.values()) == pytest.approx(theirs["flops"], rel=0.02)
    # Products by hand: 2·8·256·256 + 2·8·512·256 twice.
    assert sum(one.flops for one in ours.values()) >= 2 * 8 * 256 * 256 + 2 * (2 * 8 * 512 * 256)
    assert sum(one.num_bytes for one in ours.values()) == pytest.approx(theirs["bytes accessed"], rel=0.25)
