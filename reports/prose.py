"""Plain text to markup: everything escaped, `code` in backticks, and no line break between a number and what belongs to it."""

import re

from markupsafe import Markup, escape

_BOUND_SPACE = re.compile(r"(?<=[Kτ]) = (?=[\d.])|(?<=\d) (?=%|ms\b|µs\b|ns\b|s\b|[kMGTP]?B\b|[kMGTP]?FLOP)")
"""The spaces inside `K = 8`, `12 ms` and the like."""

_CODE = re.compile(r"`([^`]+)`")


def prose(text: str) -> Markup:
    """Escaped text with `code` spans, and no-break spaces inside quantities."""
    bound = _BOUND_SPACE.sub(lambda match: match.group().replace(" ", "\u00a0"), text)
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(bound))))


def heading(text: str) -> Markup:
    """Escaped text that may break after an underscore, so that a long name does not widen its column."""
    return Markup(str(escape(text)).replace("_", "_<wbr>"))


def sentence(text: str) -> Markup:
    """Prose with a capital letter (a name with an underscore keeps its own) and a full stop."""
    first = text.partition(" ")[0]
    begun = text if "_" in first else text[:1].upper() + text[1:]
    return prose(begun + ("" if text.endswith((".", "!", "?")) else "."))
