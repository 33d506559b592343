"""The figures: what is drawn is what the records say."""

import msgspec
import pytest
from report_fixture import inputs, prediction, profile, row, run, trace
from report_steps import HOST_S, MACHINE, SIZES, audit, law_s, limit_s, measured_s, model, step_times

from perfmodel.records import PhaseTimes
from reports.acceptance import conditional_curve, heat_figure, survival_curve, tau_of
from reports.breakdown import breakdown_figure, breakdown_section, decode_of, trace_label, unique
from reports.chip import chip_of, grid
from reports.figure import block_size_axis, log_range, rounded, seconds_ticks, tick_seconds
from reports.flat import flat_marks
from reports.roofline import located, roofline_section
from reports.speedup import ceiling_trace, segments, speedup_figure, speedup_section, top
from reports.steptime import rejected_table, spread_text, steptime_section
from reports.validation import parameter_table, residual_figure, scatter_figure


def named(figure, name):
    """The traces of a figure with this legend name."""
    return [t for t in figure.data if t.get("name") == name]


def test_ceiling_is_the_speedup_at_tau_equal_k():
    # speedup = τ·T1/TK, so at τ = K it is K·T1/TK, whatever τ was
    ceiling = ceiling_trace(prediction("chat"))
    plain = law_s("verify", 1) + HOST_S
    step = law_s("verify", 8) + law_s("draft", 8) + law_s("commit", 8) + HOST_S
    at_eight = ceiling["y"][ceiling["x"].index(8)]
    assert at_eight == pytest.approx(8 * plain / step)


def test_pieces_beyond_the_trained_block_are_dotted():
    made = prediction("math")
    rows = sorted(made.rows, key=lambda r: r.block_size)
    solid, _, _ = segments(rows, made, False)
    dotted, _, _ = segments(rows, made, True)
    assert max(x for x in solid if x) == 8
    assert min(x for x in dotted if x) == 8  # the piece from 8 to 16 is already dotted
    assert max(x for x in dotted if x) == 1024


def test_speedup_axis_holds_intervals_and_checks():
    made = [prediction("math")]
    assert top(made, ()) == pytest.approx(max(1.5, 1.15 * max(r.speedup_high for r in made[0].rows)))
    high = [msgspec.structs.replace(c, measured_high=9.0) for c in run().checks[:1]]
    assert top(made, high) == pytest.approx(10.35)


def test_speedup_finding_names_winners_and_losers():
    figure = speedup_figure([prediction(task) for task in ("math", "code", "chat")], run().checks, 0)
    assert figure.title.startswith("Math peaks at K = 8 with ")
    assert figure.title.endswith("; chat loses at every K")
    assert len([t for t in figure.data if "measured" in t.get("name", "")]) == 3


def test_each_shape_gets_a_figure_and_later_ones_are_folded():
    other = msgspec.structs.replace(prediction("math"), context=1024)
    both = msgspec.structs.replace(inputs().predictions, here=(prediction("math"), other))
    section = speedup_section(inputs(predictions=both))
    assert [f.folded for f in section.figures] == [False, True]
    points = step_times().points
    more = tuple(msgspec.structs.replace(p, context=1024) for p in points)
    section = steptime_section(inputs(step_times=msgspec.structs.replace(step_times(), points=points + more)))
    assert [f.folded for f in section.figures] == [False, True]


def test_step_times_show_medians_every_sample_and_the_floor():
    figure = steptime_section(inputs()).figures[0]
    verify = named(figure, "verify")
    medians = next(t for t in verify if t["marker"]["size"] == 9)
    assert medians["y"][medians["x"].index(8)] == pytest.approx(step_times().points[SIZES.index(8) + len(SIZES)].median_s)
    num_samples = sum(len(p.samples_s) for p in step_times().points if p.phase == "verify")
    assert any(len(t["x"]) == num_samples for t in verify)
    memory = named(figure, "verify: memory floor")[0]
    assert memory["y"][memory["x"].index(2)] == pytest.approx(limit_s("verify", 2))
    fitted = named(figure, "verify: fitted")[0]
    assert fitted["y"][fitted["x"].index(8)] == pytest.approx(law_s("verify", 8))


def test_the_impossible_point_is_crossed_out_with_its_reason():
    figure = steptime_section(inputs()).figures[0]
    cross = named(figure, "draft: invalid")[0]
    assert cross["x"] == [2]
    assert "the timer did not wait" in cross["text"][0]
    assert "1 point is faster than physically possible" in figure.title
    assert not named(figure, "verify: invalid")
    rows = rejected_table(inputs()).rows
    assert [r[5] for r in rows] == ["invalid", "failed"]
    assert rows[1][6] == "out of memory"


def test_spread_of_few_samples_is_unknown_not_zero():
    points = step_times().points
    assert spread_text(points[0]) == "3.5 %"
    assert spread_text(points[9]) == "unknown"  # three samples


def test_floors_vanish_without_peaks():
    bare = msgspec.structs.replace(model(), hardware=None, form="dense")
    assert chip_of(inputs(model=bare, run=None)) is None
    assert chip_of(inputs(model=None)).hardware == MACHINE
    assert chip_of(inputs(model=msgspec.structs.replace(model(), dtype="float31"))) is None


def test_roofline_points_are_flops_over_bytes_and_over_seconds():
    chip = chip_of(inputs())
    point = next(p for p in step_times().points if p.phase == "verify" and p.block_size == 16)
    [(_, intensity, rate)] = located(chip, [point])
    cost = chip.cost("verify", 16, 1, 256)
    assert intensity == pytest.approx(cost.flops / (cost.weight_bytes + cost.kv_bytes))
    assert rate == pytest.approx(cost.flops / point.median_s)
    # below the roof exactly when above the floor
    roof = min(MACHINE.bandwidth_bytes_per_s.value * intensity, MACHINE.flops_per_s["float32"].value)
    assert (rate < roof) == (point.median_s > limit_s("verify", 16))


def test_roofline_says_where_the_ridge_is_passed():
    figure = roofline_section(inputs()).figures[0]
    assert "it passes the ridge between K = 8 and K = 16" in figure.title
    assert named(figure, "draft: invalid")[0]["x"] == pytest.approx([located(chip_of(inputs()), step_times().points[1:2])[0][1]])


def test_survival_interval_surrounds_the_curve():
    curve = survival_curve(profile("math"))
    assert curve.x == (1, 2, 3, 4, 5, 6, 7)
    assert all(low <= y <= high for low, y, high in zip(curve.low, curve.y, curve.high, strict=True))
    counts = [c for steps in profile("math").committed for c in steps]
    assert curve.y[0] == pytest.approx(sum(c >= 2 for c in counts) / len(counts))


def test_conditional_acceptance_is_the_ratio_of_survivals():
    survival = survival_curve(profile("code")).y
    curve = conditional_curve(profile("code"))
    assert curve.y[0] == survival[0]
    assert curve.y[3] == pytest.approx(survival[3] / survival[2])


def test_tau_sums_survival():
    curve = tau_of(profile("chat"))
    assert curve.x[-1] == 8
    assert curve.y[0] == 1.0
    assert curve.y[7] == pytest.approx(1 + sum(profile("chat").survival))


def test_heat_map_has_one_cell_per_step():
    figure = heat_figure(profile("math"), 0)
    cells = figure.data[0]["z"]
    assert len(cells) == 12
    assert sum(cell is not None for line in cells for cell in line) == profile("math").num_steps


def test_a_profile_without_positions_shows_tau_only():
    bare = msgspec.structs.replace(profile("math"), survival=(), at_risk=(), committed=(), tau_points=((1, 1.0), (8, 3.2)))
    both = msgspec.structs.replace(inputs().acceptance, profiles=(bare,))
    from reports.acceptance import acceptance_section

    assert [f.key for f in acceptance_section(inputs(acceptance=both)).figures] == ["tau"]


def test_a_trace_finds_its_decode_run():
    decode = decode_of(trace("code", 8), run())
    assert (decode.task, decode.block_size) == ("code", 8)
    assert trace_label(trace("code", 8), run()) == "code, K = 8"
    stray = msgspec.structs.replace(trace("code", 8), file="elsewhere/host.xplane.pb")
    assert decode_of(stray, run()) is None
    assert trace_label(stray, run()) == "host"


def test_bars_are_phase_medians_in_milliseconds():
    figure = breakdown_figure([trace("math", 8)], ["math, K = 8"])
    assert named(figure, "verify")[0]["x"] == [pytest.approx(1e3 * measured_s("verify", 8))]
    assert named(figure, "host gap")[0]["x"] == [pytest.approx(1e3 * HOST_S)]
    assert figure.title.startswith("Verify takes ")


def test_bars_come_by_task_and_block_size():
    shuffled = (trace("chat", 8), trace("math", 8), trace("chat", 1), trace("math", 1))
    figure = breakdown_section(inputs(traces=shuffled)).figures[0]
    assert list(figure.data[0]["y"]) == ["math, K = 1", "math, K = 8", "chat, K = 1", "chat, K = 8"]


def test_device_time_is_preferred_to_wall_time():
    timed = msgspec.structs.replace(
        trace("math", 8), phases={"verify": PhaseTimes(count=3, device_s_median=0.010, wall_s_median=0.012)}, timing="device"
    )
    assert named(breakdown_figure([timed], ["a"]), "verify")[0]["x"] == [10.0]


def test_traces_without_phases_leave_the_section_out():
    empty = msgspec.structs.replace(trace("math", 8), phases={})
    assert "no draft, verify or commit" in breakdown_section(inputs(traces=(empty,))).missing
    assert unique(["a", "b", "a"]) == ["a #1", "b", "a #2"]


def test_held_out_points_are_apart():
    figure = scatter_figure(model())
    held = [p for p in model().points if p.held_out and p.phase == "verify"]
    assert named(figure, "verify, held out")[0]["x"] == [p.measured_s for p in held]
    assert "On points it never saw" in figure.title
    nothing_held = msgspec.structs.replace(model(), held_out_median_error=None)
    assert "no point was held out" in scatter_figure(nothing_held).title


def test_residuals_name_the_worst_point():
    worst = max(model().points, key=lambda p: abs(p.error))
    assert f"{worst.phase} at K = {worst.block_size}" in residual_figure(model()).title


def test_parameters_say_what_the_data_cannot_see():
    table = parameter_table(model())
    assert "cannot identify: commit_overhead_s" in table.caption
    by_name = {r[0]: r for r in table.rows}
    assert by_name["commit_overhead_s"][3] == "no: prior"
    assert by_name["overhead_s"][1] == "410 µs ± 25 µs"


def test_flat_marks_only_at_their_shape():
    flat = inputs().flatness
    assert flat_marks(flat, 1, 1024) == {}
    assert flat_marks(None, 1, 256) == {}
    marks = flat_marks(flat, 1, 256)
    bars = [s for s in marks["shapes"] if s["y0"] == s["y1"]]
    assert [(b["x0"], b["x1"]) for b in bars] == [(2, 4), (2, 6), (2, 10)]
    assert any("knee: 15 tokens (13–18)" in a["text"] for a in marks["annotations"])


def test_axis_helpers():
    assert block_size_axis([1, 1024])["tickvals"] == [1, 4, 16, 64, 256, 1024]
    assert block_size_axis([1, 8])["tickvals"] == [1, 2, 4, 8]
    assert seconds_ticks([]) == {}
    assert tick_seconds(0.03) == "30 ms"
    assert tick_seconds(1.0) == "1 s"
    assert log_range([1, 100], 0.0) == [0.0, 2.0]
    assert grid([1, 64])[:4] == [1, 2, 3, 4]
    assert grid([1, 64])[-1] == 64
    assert rounded({"a": [1.23456789, float("nan"), float("inf")], "b": "x"}) == {"a": [1.23457, None, None], "b": "x"}


def test_audit_fixture_has_one_invalid_point():
    assert audit().num_invalid == 1
    assert row("math", 8).in_training
    assert not row("math", 16).in_training
