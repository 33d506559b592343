"""Block sizes, neighbours, and the names a sweep is asked with."""

from pathlib import Path

import pytest

from perfmodel.errors import InputError
from perfmodel.records import RunSpec
from sweeps.grid import block_sizes, neighbours
from sweeps.plan import describe, make_spec

ASKED = {
    "maximum": 16,
    "points": None,
    "target": "tiny",
    "draft": None,
    "tasks": ("math",),
    "prompts": None,
    "batches": (1,),
    "contexts": (256,),
    "dtype": "float32",
    "repeats": 5,
    "hardware": ("TPU_v5p",),
    "quick": False,
}


def spec(**changes: object) -> RunSpec:
    return make_spec(**{**ASKED, **changes})  # type: ignore[arg-type]


def test_block_sizes_double_and_end_at_the_maximum() -> None:
    assert block_sizes(1) == (1,)
    assert block_sizes(16) == (1, 2, 4, 8, 16)
    assert block_sizes(1024)[-2:] == (512, 1024)
    assert block_sizes(24) == (1, 2, 4, 8, 16, 24)


@pytest.mark.parametrize("maximum", [0, -1, 8193])
def test_a_maximum_out_of_range_is_refused(maximum: int) -> None:
    with pytest.raises(InputError, match=str(maximum)):
        block_sizes(maximum)


def test_a_prediction_is_checked_at_its_best_and_beside_it() -> None:
    assert neighbours(best=5, best_drafting=5, trained_block_size=8) == (1, 4, 5, 6)
    assert neighbours(best=8, best_drafting=8, trained_block_size=8) == (1, 7, 8)
    assert neighbours(best=2, best_drafting=2, trained_block_size=8) == (1, 2, 3)


def test_where_plain_decoding_wins_the_best_drafting_size_is_checked_too() -> None:
    assert neighbours(best=1, best_drafting=4, trained_block_size=8) == (1, 2, 4, 8)


def test_a_spec_settles_names_and_the_drafter() -> None:
    found = spec()
    assert (found.target, found.draft, found.hardware) == ("tiny", "tiny-dflash", ("tpu-v5p",))
    assert found.block_sizes == (1, 2, 4, 8, 16)
    assert spec(points=(8, 2)).block_sizes == (1, 2, 8), "plain decoding is always timed"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"target": "tinny"}, "tinny"),
        ({"draft": "tiny-dflsh"}, "tiny-dflsh"),
        ({"tasks": ("prose",)}, "prose"),
        ({"tasks": ()}, "--task"),
        ({"hardware": ("tpu-v99",)}, "tpu-v99"),
        ({"prompts": Path("absent.jsonl")}, "absent.jsonl"),
        ({"target": "/"}, "no drafter ships"),
    ],
)
def test_unknown_names_are_refused_before_anything_runs(changes: dict, word: str) -> None:
    with pytest.raises(InputError) as caught:
        spec(**changes)
    assert word in caught.value.message
    assert caught.value.hint


def test_own_prompts_bring_their_tasks(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "What is 2 + 2?", "answer": "4"}\n')
    assert spec(prompts=path, tasks=("math", "code")).tasks == ("math",)
    with pytest.raises(InputError, match="no prompts for code"):
        spec(prompts=path, tasks=("code",))


def test_prompts_that_do_not_say_their_family_need_a_task(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "Tell me a story."}\n')
    assert spec(prompts=path, tasks=("chat",)).tasks == ("chat",)
    with pytest.raises(InputError) as caught:
        spec(prompts=path, tasks=("math", "chat"))
    assert "--task chat" in caught.value.hint


def test_the_plan_says_what_will_run() -> None:
    text = describe(spec(), Path("run"))
    for word in ("tiny + tiny-dflash", "1, 2, 4, 8, 16", "math", "tpu-v5p", "run", "two CPU cores"):
        assert word in text
