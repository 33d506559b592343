"""One server per K: started from a command with places for K, waited for until it is healthy, and stopped whatever happens.

K is fixed when a server starts, so a sweep over K is a sweep over servers. Plain decoding is the same command without its speculative
options: every option whose name begins with `--spec` is left out with its values, as vLLM and SGLang name theirs.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perfmodel.errors import InputError

from .client import Address, Client
from .failure import EngineError

PLACES = ("{num_speculative_tokens}", "{block_size}")
"""What a command must hold one of: K − 1 as vLLM counts, K as SGLang counts."""

STOP_LIMIT_S = 30.0
POLL_S = 0.25
_SPECULATIVE = re.compile(r"^--(?:\w+-)*spec")
_VARIABLE = re.compile(r"^[A-Za-z_]\w*=")


def check_command(template: str) -> None:
    """Refuse a command without a place for K, or one that no shell would split. Raises `InputError`."""
    hint = """for example --launch 'vllm serve MODEL --speculative-config {"method":"ngram",…:{num_speculative_tokens}}'"""
    if not any(place in template for place in PLACES):
        raise InputError(f"--launch has no place for K: neither {' nor '.join(PLACES)}", hint)
    try:
        words = _split(_filled(template, 2, 1))
    except ValueError as error:
        raise InputError(f"--launch cannot be split into words: {error}", "check its quotes") from None
    if all(_VARIABLE.match(word) for word in words):
        raise InputError("--launch names no program", hint)


def command_at(template: str, block_size: int, port: int) -> tuple[list[str], dict[str, str]]:
    """The words of the command for one K, and the variables set before it (`NAME=value` in front, as in a shell).

    A JSON object that stands bare among the words is one word, its quotes kept, so that it need not be quoted twice.
    """
    words = _split(_filled(template, block_size, port))
    variables: dict[str, str] = {}
    while _VARIABLE.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return _without_speculation(words) if block_size == 1 else words, variables


def _filled(template: str, block_size: int, port: int) -> str:
    values = {PLACES[0]: str(block_size - 1), PLACES[1]: str(block_size), "{port}": str(port)}
    for place, value in values.items():
        template = template.replace(place, value)
    return template


def _split(command: str) -> list[str]:
    """The words of a command. Raises `ValueError` when a quote is left open."""
    quoted, at = "", 0
    for match in re.finditer(r"(?<=\s)\{", command):
        if match.start() < at:
            continue
        try:
            _, end = json.JSONDecoder().raw_decode(command, match.start())
        except ValueError:
            continue
        quoted += command[at : match.start()] + shlex.quote(command[match.start() : end])
        at = end
    return shlex.split(quoted + command[at:])


def _without_speculation(words: list[str]) -> list[str]:
    kept, dropping = [], False
    for word in words:
        if _SPECULATIVE.match(word):
            dropping = "=" not in word
        elif word.startswith("-") or not dropping:
            dropping = False
            kept.append(word)
    return kept


class Server:
    """A server process of ours: its group is killed on the way out, so that none of its children keeps the port."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: Address, log: Path) -> None:
        self.process = process
        self.address = address
        self.log = log

    def wait_healthy(self, limit_s: float) -> None:
        """Return when the server answers. Raises `EngineError` when it ends first or takes longer than `limit_s`."""
        client = Client(self.address)
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            status = self.process.poll()
            if status is not None:
                text = f"the server ended with status {status} before it was healthy{self.last_words()}"
                raise EngineError("server-ended", text, f"its log: {self.log}")
            if is_healthy(client):
                return
            time.sleep(POLL_S)
        text = f"the server was not healthy after {limit_s:g} s{self.last_words()}"
        raise EngineError("server-not-healthy", text, f"its log: {self.log}; a large model may need a longer --launch-limit")

    def ended(self, within_s: float) -> int | None:
        """The exit status of the server if it ends in that time, else None."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(within_s)
        return None

    def last_words(self) -> str:
        """The last line of the log that speaks of an error, else its last line, as the end of a sentence."""
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - 2**18))
            lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
        named = [line for line in lines if re.search(r"\b\w*Error\b", line)]
        return f"; it says: {(named or lines)[-1][:300]}" if lines else ""

    def stop(self) -> None:
        """End the server: asked first, then killed with all its children."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_LIMIT_S)
        with suppress(ProcessLookupError, PermissionError):  # the group may be gone already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        until = time.monotonic() + STOP_LIMIT_S
        while is_taken(self.address) and time.monotonic() < until:
            time.sleep(POLL_S)


def is_healthy(client: Client) -> bool:
    """Whether `/health` is 200; where there is no such path, whether models are listed."""
    try:
        status = client.get("/health", limit_s=5.0).status
        return client.get("/v1/models", limit_s=5.0).status == 200 if status == 404 else status == 200
    except EngineError:
        return False


def is_taken(address: Address) -> bool:
    """Whether somebody listens at the address."""
    try:
        with socket.create_connection((address.host, address.port), timeout=2.0):
            return True
    except OSError:
        return False


@contextmanager
def launched(template: str, block_size: int, address: Address, log: Path, limit_s: float) -> Iterator[Server]:
    """A healthy server at this K while inside. Raises `EngineError` when the port is taken or it does not become one."""
    if is_taken(address):
        text = f"somebody listens at {address} already, so no server was started there"
        raise EngineError("port-taken", text, "stop it (a server left over?), or give another port in --base-url and --launch")
    words, variables = command_at(template, block_size, address.port)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream, _terminated_as_interrupted():
        stream.write(f"$ {shlex.join(words)}\n".encode())
        stream.flush()
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=os.environ | variables,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError("server-ended", f"{words[0]} cannot be started: {error.strerror}", "check --launch") from error
        server = Server(process, address, log)
        try:
            server.wait_healthy(limit_s)
            yield server
        finally:
            server.stop()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C while a server of ours lives, so that it is stopped too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
