"""The page's still figures: flatness against the floor, nine tasks predicted, shares at K=16, gain against concurrency."""

from collections.abc import Sequence
from html import escape

from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.stepgrid import datasheet_grid

from ..figure_svg import log_scale, style, text
from . import published
from .acceptances import TaskShare
from .costs import floor_ms
from .regression import ServedCheck, TaskCheck

WIDTH = 640
_LEFT, _RIGHT = 110.0, 610.0


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{style()}</style>\n"
        + "\n".join([text(16, 24, title, "t"), *body])
        + "\n</svg>\n"
    )


def _line(points: Sequence[tuple[float, float]], token: str, dashes: bool = False) -> str:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{"l d" if dashes else "l"}" stroke="var(--{token})" d="{path}"/>'


def _dot(x: float, y: float, token: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="var(--{token})"/>'


def flat_figure() -> str:
    """Verify time of Qwen3-4B on TPU v5p against K: published points, the floor, and the data-sheet prediction."""
    top, bottom = 70.0, 290.0
    blocks = [2**power for power in range(11)]
    x, y = log_scale(1, 1024, _LEFT, _RIGHT), log_scale(1, 64, bottom, top)
    specs = load_hardware("tpu-v5p"), load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
    grid = datasheet_grid(*specs, blocks, (1,), (256,))
    body = []
    for value in (1, 2, 4, 8, 16, 32, 64):
        body.append(f'<path class="g" d="M{_LEFT} {y(value):.1f}H{_RIGHT}"/>{text(_LEFT - 8, y(value) + 4, f"{value} ms", "r")}')
    body += [text(x(block), bottom + 18, str(block), "m") for block in blocks]
    body.append(text((_LEFT + _RIGHT) / 2, bottom + 38, "block size K (tokens verified per step)", "m"))
    body.append(_line([(x(block), y(floor_ms(block))) for block in blocks], "bad", dashes=True))
    body.append(_line([(x(b), y(1e3 * s)) for b, s in zip(blocks, grid.verify_s[:, 0, 0].tolist(), strict=True)], "blue"))
    body += [_dot(x(block), y(ms), "orange") for block, ms in published.V5P_VERIFY_MS.items()]
    body += [_dot(24, 45, "orange"), text(34, 49, "published")]
    body += [_line([(130, 45), (150, 45)], "bad", dashes=True), text(156, 49, "the least the chip can take")]
    body += [_line([(350, 45), (370, 45)], "blue"), text(376, 49, "predicted from the data sheet")]
    return _svg("Verify time on TPU v5p: the published points lie below the speed of light", bottom + 50, body)


def _rows(
    entries: Sequence[tuple[str, float, float, float, float | None]], ticks: Sequence[float], unit: str, mark: float | None
) -> tuple[list[str], float]:
    """Horizontal intervals with a dot, and a ring for another figure; (name, value, low, high, other) each."""
    top, step = 76.0, 26.0
    bottom = top + step * len(entries)
    low, high = ticks[0], ticks[-1]

    def x(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - low) / (high - low)

    body = [
        f'<path class="g" d="M{x(t):.1f} {top - 14}V{bottom - 8}"/>{text(x(t), bottom + 10, f"{t:g}{unit}", "m")}' for t in ticks
    ]
    if mark is not None:
        body.append(f'<path class="e" d="M{x(mark):.1f} {top - 14}V{bottom - 8}"/>')
    for index, (name, value, least, most, other) in enumerate(entries):
        y = top + step * index
        body += [text(_LEFT - 10, y + 4, name, "r"), _line([(x(least), y), (x(most), y)], "blue"), _dot(x(value), y, "blue")]
        if other is not None:
            body.append(f'<circle cx="{x(other):.1f}" cy="{y:.1f}" r="5.5" fill="none" stroke="var(--orange)" stroke-width="2"/>')
    return body, bottom


def tasks_figure(checks: Sequence[TaskCheck]) -> str:
    """Speedup of nine tasks on TPU v5p: predicted with interval, and published."""
    entries = [(c.task, c.predicted.value, c.predicted.low, c.predicted.high, c.published) for c in checks]
    body, bottom = _rows(entries, (1, 2, 3, 4, 5, 6), "×", None)
    body += [_dot(24, 45, "blue"), text(34, 49, "predicted: acceptance and two constants (95 %)")]
    body += [
        '<circle cx="340" cy="45" r="5.5" fill="none" stroke="var(--orange)" stroke-width="2"/>',
        text(352, 49, "published (raw files)"),
    ]
    return _svg("Speedup on TPU v5p, Qwen3-4B with DFlash, K=16", bottom + 26, body)


def shares_figure(shares: Sequence[TaskShare]) -> str:
    """Share of an endless block's τ that K=16 captures, per task."""
    entries = [
        (task, 100 * share.value, 100 * share.low, 100 * share.high, None)
        for task, share in shares
        if share.value is not None and share.low is not None and share.high is not None
    ]
    body, bottom = _rows(entries, (40, 50, 60, 70, 80, 90, 100), " %", 90)
    body.append(text(16, 49, "share of an endless block's τ, with 95 % interval; the line is the claim"))
    return _svg("How much of the ceiling K=16 captures", bottom + 26, body)


def served_figure(rows: Sequence[ServedCheck]) -> str:
    """Gain against concurrency on one B200: published, and predicted from concurrency 1 and 4."""
    top, bottom = 86.0, 290.0
    chosen = [row for row in rows if not row.served.is_mixture]
    x = log_scale(1, published.CONCURRENCY[-1], _LEFT, _RIGHT)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - 1) / 5

    body = [f'<path class="g" d="M{_LEFT} {y(v):.1f}H{_RIGHT}"/>{text(_LEFT - 8, y(v) + 4, f"{v}×", "r")}' for v in range(1, 7)]
    body += [text(x(c), bottom + 18, str(c), "m") for c in published.CONCURRENCY]
    body.append(text((_LEFT + _RIGHT) / 2, bottom + 38, "requests in flight", "m"))
    for index, row in enumerate(chosen):
        token = ("blue", "orange", "green", "purple")[index]
        gains = [fast / plain for fast, plain in zip(row.served.dflash, row.served.plain, strict=True)]
        body.append(_line([(x(c), y(gain)) for c, gain in zip(published.CONCURRENCY, gains, strict=True)], token))
        known = zip(published.CONCURRENCY, gains, row.from_two, strict=True)
        body += [_dot(x(c), y(gain * (1 + error)), token) for c, gain, error in known if error is not None]
        left = 16 + 310 * (index % 2)
        at = 45 + 18 * (index // 2)
        body += [_line([(left, at), (left + 18, at)], token), text(left + 24, at + 4, f"{row.served.target} {row.served.task}")]
    body.append(text(16, bottom + 58, "lines: published; dots: predicted from concurrency 1 and 4"))
    return _svg("DFlash against plain decoding on one B200 (SGLang)", bottom + 70, body)
