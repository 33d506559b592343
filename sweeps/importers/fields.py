"""Typed access to somebody else's JSON: a count is a whole number that is not negative, a number is finite, absent stays None.

Anything else is refused with the file, the line and the key, because a figure read wrongly is worse than none.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from perfmodel.errors import InputError

from .source import Source


class Fields:
    """A JSON object with readers per kind of value; each takes several names and uses the first that is present and not null."""

    def __init__(self, values: Mapping[str, Any], where: Callable[[str], str]) -> None:
        self.values = values
        self.where = where

    @classmethod
    def of_document(cls, source: Source, values: Any) -> "Fields":
        """Fields of an object within a JSON document; errors name the line on which the key first stands."""
        if not isinstance(values, Mapping):
            raise InputError(f"{source}, line 1: an object is wanted, not {type(values).__name__}", "check the file")
        return cls(values, lambda key: f"{source}, line {source.line_of(key)}")

    @classmethod
    def of_row(cls, where: str, values: Mapping[str, Any]) -> "Fields":
        """Fields of one line."""
        return cls(values, lambda key: where)

    def section(self, *names: str) -> "Fields | None":
        """The object under a key, None where it is absent."""
        found = self._first(names)
        if found is None:
            return None
        key, value = found
        if not isinstance(value, Mapping):
            self._refuse(key, value, "an object")
        return Fields(value, self.where)

    def sections(self, *names: str) -> "list[Fields]":
        """The objects in the list under a key; empty where it is absent."""
        found = self._first(names)
        if found is None:
            return []
        key, value = found
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self._refuse(key, value, "a list of objects")
        return [Fields(item, self.where) for item in value]

    def count(self, *names: str) -> int | None:
        """A whole number of at least zero."""
        found = self._first(names)
        return None if found is None else self._count(*found)

    def counts(self, *names: str) -> list[int] | None:
        """A list of whole numbers of at least zero."""
        return None if (found := self._list(names)) is None else [self._count(found[0], item) for item in found[1]]

    def number(self, *names: str) -> float | None:
        """A finite number of at least zero."""
        found = self._first(names)
        return None if found is None else self._number(*found)

    def numbers(self, *names: str) -> list[float] | None:
        """A list of finite numbers of at least zero."""
        return None if (found := self._list(names)) is None else [self._number(found[0], item) for item in found[1]]

    def text(self, *names: str) -> str | None:
        """A text, None for an empty one."""
        found = self._first(names)
        if found is None:
            return None
        if not isinstance(found[1], str):
            self._refuse(*found, "a text")
        return found[1] or None

    def flag(self, *names: str) -> bool:
        """Whether a flag is set; absent is not set."""
        found = self._first(names)
        if found is None:
            return False
        if not isinstance(found[1], bool):
            self._refuse(*found, "true or false")
        return bool(found[1])

    def items(self) -> Iterator[tuple[str, Any]]:
        """Keys and raw values."""
        yield from self.values.items()

    def need(self, value: Any, key: str) -> Any:
        """The value, refused where it is absent."""
        if value is None:
            raise InputError(f"{self.where(key)}: `{key}` is missing", "the file may be truncated or of another version")
        return value

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any] | None:
        return next(((name, self.values[name]) for name in names if self.values.get(name) is not None), None)

    def _list(self, names: tuple[str, ...]) -> tuple[str, list[Any]] | None:
        found = self._first(names)
        if found is None:
            return None
        if not isinstance(found[1], list):
            self._refuse(*found, "a list")
        return found

    def _count(self, key: str, value: Any) -> int:
        number = self._number(key, value)
        if number != int(number):
            self._refuse(key, value, "a whole number")
        return int(number)

    def _number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, value, "a number")
        if not math.isfinite(value) or abs(value) > 1e15:
            self._refuse(key, value, "a finite number")
        if value < 0:
            self._refuse(key, value, "a number that is not negative")
        return float(value)

    def _refuse(self, key: str, value: Any, wanted: str) -> NoReturn:
        shown = repr(value)
        raise InputError(
            f"{self.where(key)}: `{key}` is {shown[:60]}{'…' if len(shown) > 60 else ''}, and {wanted} is wanted",
            "the file may be damaged or edited",
        )
