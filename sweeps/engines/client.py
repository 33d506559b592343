"""A client of an OpenAI-compatible server: plain HTTP/1.1 from the standard library, and the event stream of an answer.

An answer arrives as server-sent events, one JSON object each, ended by `[DONE]`. A stream that ends without it was cut, and its times
are those of no answer; so is one that carries an error in the middle of a reply whose status was 200.
"""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from perfmodel.errors import InputError

from .failure import EngineError

CONNECT_LIMIT_S = 10.0
READ_LIMIT_S = 120.0
"""Longest silence within an answer."""

ANSWER_LIMIT_S = 900.0
"""Longest answer as a whole: a server that trickles must not hold the sweep for ever."""

MAX_EVENT_BYTES = 2**22
MAX_REPLY_BYTES = 2**26

Event = tuple[float, dict[str, Any]]


@dataclass(frozen=True)
class Address:
    """Where a server listens; `prefix` is the path before `/v1`."""

    host: str
    port: int
    prefix: str = ""
    secure: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.prefix}"


def parse_address(url: str) -> Address:
    """The address in a base URL, with or without `/v1`. Raises `InputError`."""
    hint = "give it like http://127.0.0.1:8000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"--base-url {url[:80]!r} is no address: {error}", hint) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"--base-url {url[:80]!r} is no http address", hint)
    if parts.username is not None or parts.query or parts.fragment:
        raise InputError(f"--base-url {parts.hostname} has a user, a query or a fragment, which have no place there", hint)
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    secure = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if secure else 80), prefix, secure)


@dataclass(frozen=True)
class Reply:
    """Status and text of a reply."""

    status: int
    text: str


class Client:
    """Requests to one server, a connection each: what is timed is then never a stale connection."""

    def __init__(self, address: Address, read_limit_s: float = READ_LIMIT_S) -> None:
        self.address = address
        self.read_limit_s = read_limit_s

    def get(self, path: str, limit_s: float | None = None) -> Reply:
        """The reply to a GET. Raises `EngineError` when nobody answers."""
        connection = self._connect(limit_s or self.read_limit_s)
        try:
            connection.request("GET", self.address.prefix + path)
            response = connection.getresponse()
            return Reply(response.status, response.read(MAX_REPLY_BYTES).decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def events(self, path: str, body: dict[str, Any]) -> Iterator[Event]:
        """The events of a streamed answer with the seconds since it was asked for.

        Raises `EngineError`: `request-refused` for a status other than 200, `stream-error` for an error inside the stream,
        `stream-cut` when it ends early, `server-silent` when nothing comes for long, `server-unreachable` when nobody is there.
        """
        connection = self._connect(self.read_limit_s)
        begin = time.perf_counter()
        try:
            data = json.dumps(body | {"stream": True}).encode()
            connection.request("POST", self.address.prefix + path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                text = response.read(MAX_EVENT_BYTES).decode(errors="replace")
                raise RefusedError(response.status, error_text(text))
            yield from self._events(response, begin)
        except TimeoutError as error:
            text = f"{self.address} sent nothing for {self.read_limit_s:g} s in the middle of an answer"
            raise EngineError("server-silent", text, "look at the server's log; it may hang") from error
        except http.client.IncompleteRead as error:
            raise _cut(str(self.address)) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _events(self, response: http.client.HTTPResponse, begin: float) -> Iterator[Event]:
        while True:
            line = response.readline(MAX_EVENT_BYTES)
            now = time.perf_counter() - begin
            if not line:
                raise _cut(str(self.address))
            if now > ANSWER_LIMIT_S:
                text = f"an answer of {self.address} took more than {ANSWER_LIMIT_S:g} s"
                raise EngineError("server-silent", text, "ask for fewer prompts or a faster model")
            field, _, value = line.strip().partition(b":")
            if field != b"data":
                continue
            if value.strip() == b"[DONE]":
                return
            try:
                event = json.loads(value)
            except (ValueError, RecursionError):
                text = f"{self.address} sent an event that is not JSON: {value[:80].decode(errors='replace')!r}"
                raise EngineError("stream-error", text, "is it an OpenAI-compatible server?") from None
            if not isinstance(event, dict):
                raise EngineError("stream-error", f"{self.address} sent an event that is no object", "is it OpenAI-compatible?")
            if event.get("error"):
                text = f"{self.address} broke off an answer: {error_text(json.dumps(event))}"
                raise EngineError("stream-error", text, "look at the server's log")
            yield now, event

    def _connect(self, limit_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.address.secure else http.client.HTTPConnection
        connection = kind(self.address.host, self.address.port, timeout=min(CONNECT_LIMIT_S, limit_s))
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        connection.sock.settimeout(limit_s)
        return connection

    def _unreachable(self, error: Exception) -> EngineError:
        text = f"{self.address} does not answer: {error or type(error).__name__}"
        return EngineError("server-unreachable", text, "is the server running, and is this its address?")


class RefusedError(EngineError):
    """A request that the server answered with another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__("request-refused", f"the server answered with status {status}: {text}", "look at the server's log")
        self.status = status


def error_text(text: str) -> str:
    """The message of an error reply in OpenAI's form, else its beginning."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()[:300]
    error = document.get("error", document) if isinstance(document, dict) else document
    message = error.get("message") if isinstance(error, dict) else error
    return str(message if message is not None else text).strip()[:300]


def _cut(address: str) -> EngineError:
    return EngineError("stream-cut", f"{address} ended a stream before the answer was whole", "look at the server's log")
