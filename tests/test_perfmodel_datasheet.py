"""Chips known only by their data sheets: how flat they are, and the table of the model page."""

from pathlib import Path

import pytest

from perfmodel.datasheet import datasheet_flatness, datasheet_model
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.stepmodel import PRIORS

DENSE, MIXTURE = load_model("qwen3-4b"), load_model("qwen3-30b-a3b")
SHOWN = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x", "a100-80gb", "h100", "b200")
PAGE = Path(__file__).parent.parent / "docs" / "model.md"


def row(chip: str) -> str:
    cells = [chip]
    for batch, keys in ((1, ("0.05", "0.10", "0.25")), (8, ("0.10",)), (32, ("0.10",))):
        flat = datasheet_flatness(load_hardware(chip), DENSE, batch, 1024)
        cells += [f"{flat.widths[key]} ({flat.widths_low[key]}–{flat.widths_high[key]})" for key in keys]
        if batch == 1:
            knee = f"{flat.knee_tokens} ({flat.knee_low}–{flat.knee_high})"
    return f"| {' | '.join([*cells, knee])} |"


@pytest.mark.parametrize("chip", SHOWN)
def test_the_page_shows_what_the_data_sheets_say(chip):
    assert row(chip) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("chip", SHOWN)
def test_no_chip_is_flat_to_a_thousand_tokens(chip):
    """Published tables claim equal times from K=16 to K=1024 at batch 1; at 1024 every chip's arithmetic alone takes longer."""
    flat = datasheet_flatness(load_hardware(chip), DENSE, 1, 1024)
    assert flat.widths_high["0.25"] < 1024
    assert flat.cause == "memory"
    assert flat.limit == 4096


def test_a_mixture_is_flat_nowhere_because_every_token_wakes_experts():
    flat = datasheet_flatness(load_hardware("h100"), MIXTURE, 1, 1024)
    assert set(flat.widths.values()) == {1}
    assert flat.cause == "experts"


def test_everything_in_it_is_a_labelled_prior():
    model = datasheet_model(load_hardware("tpu-v5p"), DENSE)
    assert not any(parameter.identified for parameter in model.parameters.values())
    assert all(parameter.note.startswith("prior from") for parameter in model.parameters.values())
    assert len(model.draws[0]) == len(model.parameters)
    assert all(
        PRIORS[name].low <= value <= PRIORS[name].high
        for draw in model.draws
        for name, value in zip(model.parameters, draw, strict=True)
    )
    assert model.findings[0].code == "not-measured"
    with pytest.raises(InputError, match="no known bfloat16 peak"):
        datasheet_model(load_hardware("rtx-4060"), DENSE)
