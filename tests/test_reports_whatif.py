"""What if: the page's own arithmetic, run in a browser, against the model's."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from page_browser import dumped
from report_fixture import GENERATED_AT, inputs

import reports
from perfmodel.acceptance import load_profile
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.records import AcceptanceSet, PredictionSet
from perfmodel.stepgrid import StepGrid, datasheet_grid
from perfmodel.steptime import host_mode_s, prior_values
from reports.evidence import script_json
from reports.inputs import PageInputs
from reports.page import render
from reports.whatif import Chip, Task, WhatIf, grid_of, what_if

SIZES = (1, 2, 5, 8, 16, 33)
BATCHES = (1, 3, 64)
CONTEXTS = (0, 256, 5000, 100_000)
SCALES = (0.7, 1.0, 1.2)

GRID = """
const model = JSON.parse(document.getElementById(KEY).textContent);
const out = model.chips.map((chip) => SIZES.map((k) => BATCHES.map((b) => CONTEXTS.map((s) => {
  const t = WhatIf.step(model, chip, k, b, s);
  return [t.draft_s, t.verify_s, t.host_s];
}))));
const taus = model.tasks.map((task) => SCALES.map((scale) => SIZES.map((k) => WhatIf.tau(task.survival, k, scale))));
const found = document.createElement("pre");
found.id = "found-" + KEY;
found.textContent = JSON.stringify({ steps: out, taus });
document.body.append(found);
"""


MOVE = """<script>
document.getElementById("whatif-chip").value = "3";
document.getElementById("whatif-k").value = "4";
document.getElementById("whatif-k").dispatchEvent(new Event("input"));
</script>"""
"""Another chip and another K, as a reader's hand would choose them."""


def script(key: str) -> str:
    """The script that computes a grid of steps and τ from the data under `key` and leaves them in the page."""
    body = GRID.replace("KEY", json.dumps(key))
    for name, values in (("SIZES", SIZES), ("BATCHES", BATCHES), ("CONTEXTS", CONTEXTS), ("SCALES", SCALES)):
        body = body.replace(name, json.dumps(values))
    return f"<script>(function () {{{body}}})();</script>"


def found(dom: str, key: str) -> dict:
    start = dom.index(f'<pre id="found-{key}">') + len(f'<pre id="found-{key}">')
    return json.loads(dom[start : dom.index("</pre>", start)])


def agree(computed: Sequence, grid: StepGrid) -> None:
    expected = np.stack([grid.draft_s, grid.verify_s, grid.host_s], axis=-1)
    np.testing.assert_allclose(np.array(computed), expected, rtol=1e-6, atol=1e-15)


def tau_by_hand(task: Task, scale: float, size: int) -> float:
    """1 + Σ_{i<K} Π_{j≤i} min(scale · S_j / S_{j−1}, 1)."""
    survival = np.array(task.survival)
    alpha = survival / np.concatenate([[1.0], survival[:-1]])
    return 1.0 + float(np.cumprod(np.minimum(scale * alpha, 1.0))[: size - 1].sum())


def test_the_page_computes_what_the_model_computes(tmp_path: Path):
    """A fitted machine and every chip by its data sheet, over K, batch and context, and τ under a scaled α."""
    what = what_if(inputs())
    assert isinstance(what, WhatIf)
    assert what.chips[0].model is not None
    page = render(inputs()).replace("</body>", script("whatif-data") + MOVE + "</body>")
    dom = dumped(page, tmp_path)
    assert "K = 4 (num_speculative_tokens 3)</output>" in dom  # the sliders move the page's own words
    assert f"on {what.chips[3].name}, batch 1, context 256 tokens: " in dom
    result = found(dom, "whatif-data")
    assert len(result["steps"]) == len(what.chips) > 10
    for chip, steps in zip(what.chips, result["steps"], strict=True):
        agree(steps, grid_of(what, chip, SIZES, BATCHES, CONTEXTS))
    for task, rows in zip(what.tasks, result["taus"], strict=True):
        for scale, row in zip(SCALES, rows, strict=True):
            assert row == pytest.approx([tau_by_hand(task, scale, size) for size in SIZES], rel=1e-9)


PAIRS = (
    ("qwen3-4b", "qwen3-4b-dflash-b16"),
    ("qwen3-4b", "qwen3-4b-eagle3"),
    ("llama-3.1-8b", "llama-3.1-8b-eagle3"),
    ("qwen3-30b-a3b-fp8", "qwen3-30b-a3b-dflash"),
    ("qwen3-30b-a3b", "qwen3-30b-a3b-eagle3"),
    ("qwen3.5-27b", "qwen3.6-27b-dflash"),
    ("qwen3.5-35b-a3b", "qwen3.5-35b-a3b-dflash"),
    ("qwen3-next-80b-a3b", "qwen3-4b-dflash-b16"),
    ("deepseek-v3", "qwen3-4b-dflash-b16"),
    ("deepseek-v4-flash", "qwen3-4b-dflash-b16"),
)
"""Every kind of token mixer and MLP that ships, with block and chained drafters."""

EXTRA = {
    "cache_slowdown": 1.7, "attention_slowdown": 3.1, "tile_tokens": 128.0, "kernel": 0.6, "batch_overhead_s": 1e-6,
    "draft_ratio": 1.3, "verify_compute_ratio": 0.9,
}  # fmt: skip


def variants(draft: str) -> list:
    """The drafter as it ships, and once each as every other kind of block drafter."""
    spec = load_model(draft)
    changes = ({}, {"drafter": "peagle"}, {"drafter": "dflare"}, {"sample_from_anchor": True},
               {"drafter": "domino", "correction_rank": 256, "correction_state": 512})  # fmt: skip
    return [spec] if spec.drafter == "eagle3" else [msgspec.structs.replace(spec, **change) for change in changes]


def test_every_kind_of_model_is_priced_alike(tmp_path: Path):
    """All shipped architectures, on one chip and on four, with the law's rarer constants."""
    cases: dict[str, WhatIf] = {}
    host = host_mode_s(np.array([1, 2])).tolist()
    for target, draft in PAIRS:
        for number, spec in enumerate(variants(draft)):
            chips = tuple(Chip(name, load_hardware(name), "bfloat16", prior_values(), *host) for name in ("tpu-v5p", "h100:4"))
            task = Task("t", (0.5,) * 40, 16)
            cases[f"{target}/{draft}/{number}"] = WhatIf(load_model(target), spec, chips, (task,), 0, 1, 256, 4)
    fitted = what_if(inputs())
    assert isinstance(fitted, WhatIf)
    chip = fitted.chips[0]
    parameters = dict(chip.model.parameters)
    one = next(iter(parameters.values()))
    parameters |= {name: msgspec.structs.replace(one, value=value) for name, value in EXTRA.items()}
    model = msgspec.structs.replace(chip.model, parameters=parameters)
    rare = dataclasses.replace(chip, model=model, values={**chip.values, **EXTRA})
    cases["rare"] = dataclasses.replace(fitted, chips=(rare,))

    code = (Path(reports.__file__).parent / "templates" / "whatif.js").read_text(encoding="utf-8")
    data = "".join(f'<script type="application/json" id="{key}">{script_json(c.document())}</script>' for key, c in cases.items())
    page = f"<html><body>{data}<script>{code}</script>{''.join(map(script, cases))}</body></html>"
    dom = dumped(page, tmp_path)
    for key, case in cases.items():
        for one_chip, steps in zip(case.chips, found(dom, key)["steps"], strict=True):
            if key == "rare":
                agree(steps, grid_of(case, one_chip, SIZES, BATCHES, CONTEXTS))
            else:
                pair = (one_chip.hardware, case.target, case.draft)
                agree(steps, datasheet_grid(*pair, SIZES, BATCHES, CONTEXTS))


def test_a_prediction_alone_is_enough_where_the_pair_ships():
    profile = load_profile("qwen3-4b-dflash-b16/math")
    page = PageInputs(generated_at=GENERATED_AT, acceptance=AcceptanceSet(profiles=(profile,)))
    assert what_if(page) == "no model with a drafter and no prediction is given"
    elsewhere = [p for p in inputs().predictions.elsewhere if p.draft == "qwen3-4b-dflash-b16"]
    what = what_if(PageInputs(generated_at=GENERATED_AT, predictions=PredictionSet(here=(), elsewhere=tuple(elsewhere))))
    assert isinstance(what, WhatIf)
    assert what.chips[what.chip].hardware.name == elsewhere[0].hardware
    assert what.tasks[0].survival == pytest.approx(np.diff([row.tau for row in elsewhere[0].rows[:8]]))


def test_without_a_known_pair_the_sliders_are_left_out():
    elsewhere = tuple(msgspec.structs.replace(p, target="nobody's") for p in inputs().predictions.elsewhere)
    alone = PageInputs(generated_at=GENERATED_AT, predictions=PredictionSet(here=(), elsewhere=elsewhere))
    assert "Left out: the dimensions of the pair are unknown" in render(alone)
