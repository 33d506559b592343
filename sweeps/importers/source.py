"""A file somebody else wrote, read without trust: line by line with a limit, or as one JSON document with a limit.

A log of a gigabyte is streamed, never held; a line above 8 MiB is refused rather than collected; JSON is read strictly (no NaN, no
infinity). Whatever is wrong is reported with the file and the line, so that a person can look there.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

import msgspec

from perfmodel.errors import InputError

MAX_LINE_BYTES = 8 * 2**20
"""Longest line that is read; logs and records of one request stay far below."""

MAX_DOCUMENT_BYTES = 256 * 2**20
"""Largest JSON document that is read as a whole."""

HEAD_BYTES = 64 * 2**10
"""How much of a file is looked at to tell what it is."""

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BYTE = re.compile(r"\(byte (\d+)\)")
_TOO_LARGE = re.compile(rb"\d[eE]\+?\d{3,}")


LINES_TOLD = 4096
"""Progress is told every so many lines."""


class Source:
    """One file: its lines, its JSON, and what its beginning looks like. `progress` is told the share of its bytes that is read."""

    def __init__(
        self,
        path: Path,
        columns: Mapping[str, str] | None = None,
        progress: Callable[[float], object] = lambda share: None,
    ) -> None:
        self.path = path
        self.columns = dict(columns or {})
        self._progress = progress

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def head(self) -> str:
        """The first 64 KiB as text. Raises `InputError` when the file cannot be read."""
        with self.open() as stream:
            return self._guarded(lambda: stream.read(HEAD_BYTES)).decode("utf-8-sig", errors="replace")

    @cached_property
    def looks_like_json(self) -> bool:
        """Whether the first character starts a JSON object or list."""
        return self.head.lstrip()[:1] in ("{", "[")

    @cached_property
    def first_row(self) -> Mapping[str, Any] | None:
        """The first line's JSON object when the file has one object a line and more than one line, else None."""
        if not self.head.lstrip().startswith("{"):
            return None
        with self.open() as stream:
            first = self._guarded(lambda: stream.readline(MAX_LINE_BYTES + 1))
            more = self._guarded(lambda: stream.readline(64 * 2**10))
            while more and not more.strip():
                more = self._guarded(lambda: stream.readline(64 * 2**10))
        if not more or len(first) > MAX_LINE_BYTES:
            return None
        try:
            row = msgspec.json.decode(first.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, RecursionError):
            return None
        return row if isinstance(row, dict) else None

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value. Raises `InputError` naming the line where it is not JSON, and when it is too large."""
        try:
            return msgspec.json.decode(self._bytes)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            position, number = _BYTE.search(str(error)), _TOO_LARGE.search(self._bytes)
            end = int(position[1]) if position else number.start() if number else len(self._bytes)
            line = self._bytes.count(b"\n", 0, end) + 1
            raise InputError(f"{self}, line {line}: not JSON: {error}", "the file may be truncated or edited") from error
        except RecursionError:
            raise InputError(f"{self}, line 1: nested too deeply to be a result file", "check the file") from None

    @cached_property
    def document_or_none(self) -> Any:
        """The whole file's JSON value, or None where it is one object a line or no JSON."""
        if not self.looks_like_json or self.first_row is not None:
            return None
        try:
            return self.document
        except InputError:
            return None

    @cached_property
    def _bytes(self) -> bytes:
        with self.open() as stream:
            data = self._guarded(lambda: stream.read(MAX_DOCUMENT_BYTES + 1))
        if len(data) > MAX_DOCUMENT_BYTES:
            raise InputError(
                f"{self} is a JSON document above {MAX_DOCUMENT_BYTES >> 20} MiB",
                "save the result without per-token details, or as one object a line",
            )
        return data.removeprefix(b"\xef\xbb\xbf")

    def open(self) -> BinaryIO:
        """The file's bytes, unpacked where it is gzip. Raises `InputError`."""
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            raise InputError(f"{self} does not exist", "check the path") from None
        except OSError as error:
            raise InputError(f"{self} cannot be read: {error.strerror}", "check the path and its permissions") from error
        try:
            magic = self._guarded(lambda: stream.peek(2))[:2]
        except InputError:
            stream.close()
            raise
        if magic != b"\x1f\x8b":
            return stream
        stream.close()
        return cast(BinaryIO, gzip.open(self.path, "rb"))

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line number, line) without line ends, colour codes or a byte order mark; a line above 8 MiB raises `InputError`."""
        with self.open() as stream:
            number = 0
            while raw := self._guarded(lambda: stream.readline(MAX_LINE_BYTES + 1)):
                number += 1
                if number % LINES_TOLD == 0:
                    self._progress(self._position(stream) / max(1, self.path.stat().st_size))
                if len(raw) > MAX_LINE_BYTES:
                    raise InputError(
                        f"{self}, line {number} is longer than {MAX_LINE_BYTES >> 20} MiB",
                        "this is no log and no table; check the file",
                    )
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").rstrip("\r\n")
                if "\r" in text:  # a progress bar wrote over itself: what stands there in the end counts
                    text = text.rpartition("\r")[2]
                yield number, _ANSI.sub("", text) if "\x1b" in text else text

    @staticmethod
    def _position(stream: BinaryIO) -> int:
        """Bytes of the file itself that are read: of one in gzip, those still packed."""
        packed = getattr(stream, "fileobj", None)
        return int((stream if packed is None else packed).tell())

    def rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """(where, object) per line of a file with one JSON object a line; a document that is a list gives its entries.

        Raises `InputError` naming the line that is not an object.
        """
        document = self.document_or_none
        if document is not None:
            for number, item in enumerate(document if isinstance(document, list) else [document], start=1):
                if not isinstance(item, dict):
                    raise InputError(
                        f"{self}, entry {number} (line {self.line_of(str(number))}) is not an object", "check the file"
                    )
                yield f"{self}, entry {number}", item
            return
        for number, line in self.lines():
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InputError(f"{self}, line {number}: not JSON: {error}", "one JSON object a line is wanted") from error
            if not isinstance(row, dict):
                raise InputError(f"{self}, line {number} is not an object", "one JSON object a line is wanted")
            yield f"{self}, line {number}", row

    def line_of(self, key: str) -> int:
        """The line of a JSON document on which a key first stands, 1 where it is not found."""
        found = self._bytes.find(f'"{key}"'.encode())
        return self._bytes.count(b"\n", 0, found) + 1 if found >= 0 else 1

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self} cannot be read: {error}", "the file may be a folder, damaged or truncated") from error

    def refuse(self, line: int, what: str, hint: str = "the file may be damaged or edited") -> NoReturn:
        """Raise `InputError` about one line."""
        raise InputError(f"{self}, line {line}: {what}", hint)
