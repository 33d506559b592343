"""Hand arithmetic against the compiler's own count: one draft and one verify step, as the decode loop compiles them."""

import dataclasses

import pytest

from perfmodel.cost import step_cost
from perfmodel.records import ModelSpec, StepShape

pytest.importorskip("jax")

from decoding_pairs import DRAFT, TARGET

from decoding.pair import random_pair
from decoding.programs import phase_program

BLOCK, CONTEXT = 16, 48


def specs() -> tuple[ModelSpec, ModelSpec]:
    shared = {
        "hidden_size": 256, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32, "intermediate_size": 768, "vocab_size": 2048,
        "tied_embeddings": False, "qk_norm": True,
    }  # fmt: skip
    target = ModelSpec(name="small", role="target", num_layers=2, **shared)
    draft = ModelSpec(
        name="small-dflash", role="draft", drafter="dflash", num_layers=2, block_size=BLOCK, target_layer_ids=(0, 1),
        target_hidden_size=256, borrows_head=True, **shared,
    )  # fmt: skip
    return target, draft


@pytest.fixture(scope="module")
def pair():
    sizes = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 768, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32}
    target = dataclasses.replace(TARGET, num_layers=2, **sizes)
    draft = dataclasses.replace(
        DRAFT, num_layers=2, block_size=BLOCK, target_layer_ids=(0, 1), target_hidden_size=256, mask_token_id=2047, **sizes
    )
    return random_pair(target, draft, 0)


def counted(pair, phase):
    analysis = phase_program(pair, phase, BLOCK, 1, CONTEXT).compiled.cost_analysis()
    return analysis[0] if isinstance(analysis, list) else analysis


@pytest.mark.parametrize("phase", ["draft", "verify"])
def test_flops_and_bytes_agree_with_the_compiler(pair, phase):
    """The loop's attention multiplies every slot of its cache of K + context rows; norms, softmax and rotations come on top.

    Bytes: the compiler counts an operand each time an operation reads it, so its figure is the larger; weights are most of both.
    """
    target, draft = specs()
    cost = step_cost(target, draft, StepShape(phase=phase, batch=1, query_tokens=BLOCK, context=CONTEXT), "float32")
    seen = BLOCK * (CONTEXT + BLOCK) + (BLOCK * BLOCK if phase == "draft" else 0)
    pairs_of_program = 4 * 8 * 32 * 2 * seen
    expected = cost.flops - cost.attention_flops + pairs_of_program
    found = counted(pair, phase)
    assert expected <= 1.001 * found["flops"]
    assert found["flops"] == pytest.approx(expected, rel=0.03)
    assert cost.weight_bytes + cost.kv_bytes <= found["bytes accessed"] <= 2 * cost.hbm_bytes
