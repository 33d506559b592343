"""What rows of requests say of themselves: warm-up, further turns of a conversation, and replies wrapped in lists."""

from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.records import Finding

WARMUP_KEYS = ("is_warmup", "warmup", "is_warm_up")
TURN_KEYS = ("turn", "turn_id", "turn_index")
LISTS = ("turns", "choices", "responses", "outputs")
"""Keys under which a row holds several replies."""


def is_warmup(row: Mapping[str, Any]) -> bool:
    """Whether the row is marked as warm-up."""
    return any(row.get(key) is True for key in WARMUP_KEYS)


def is_further_turn(row: Mapping[str, Any]) -> bool:
    """Whether the row is a second or later turn, counted from 0."""
    return any(isinstance(row.get(key), int) and row[key] > 0 for key in TURN_KEYS)


def replies(row: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """(reply, whether it is a further turn): the row itself, the reply it wraps, and the entries of its lists."""
    yield row, is_further_turn(row)
    for key in ("response", "output"):
        if isinstance(row.get(key), Mapping):
            yield from replies(row[key])
    for key in LISTS:
        entries = row.get(key)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, Mapping):
                yield from ((reply, further or (key == "turns" and index > 0)) for reply, further in replies(entry))


def left_out(name: str, num_warmup: int, num_plain: int, num_turns: int) -> list[Finding]:
    """What was left out of the counts, and how many answers are further turns."""
    findings = []
    if num_warmup or num_plain:
        text = f"{name}: {num_warmup} warm-up rows and {num_plain} rows without speculation were left out"
        findings.append(Finding(code="rows-left-out", severity="info", message=text))
    if num_turns:
        text = f"{name}: {num_turns} answers are further turns of a conversation, counted as answers of their own"
        hint = "turns of one conversation are alike, so the interval is too narrow"
        findings.append(Finding(code="further-turns", severity="info", message=text, hint=hint))
    return findings
