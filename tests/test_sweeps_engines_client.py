"""The client's parts: addresses, streams, dialects, commands, counters."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.prompts import Prompt
from perfmodel.errors import InputError
from perfmodel.records import ImportedRun
from sweeps.engines.client import Client, error_text, parse_address
from sweeps.engines.counters import block_size_of, difference, settled_scrape, speculates
from sweeps.engines.dialect import Dialect, answer, find_dialect, read_answer, served_model
from sweeps.engines.failure import EngineError
from sweeps.engines.launch import check_command, command_at, is_taken, launched
from sweeps.engines.load import run_load, work

SERVER = Path(__file__).with_name("engine_server.py")
PROMPT = Prompt("math", "1", ({"role": "user", "content": "How many?"},))


@contextmanager
def serving(*more: str) -> Iterator[Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-S", str(SERVER), "--port", str(port), *more])
    address = parse_address(f"http://127.0.0.1:{port}")
    until = time.monotonic() + 20
    while not is_taken(address) and time.monotonic() < until:
        time.sleep(0.02)
    try:
        # A server that hangs is waited for in vain; one that is merely slow, on a busy machine, is not given up.
        yield Client(address, read_limit_s=1.0 if "hanging" in more else 60.0)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, "", False)),
        ("http://h:1/v1/", ("h", 1, "", False)),
        ("https://h/serve/v1", ("h", 443, "/serve", True)),
        ("http://[::1]:9", ("::1", 9, "", False)),
    ],
)
def test_addresses(url: str, expected: tuple[str, int, str, bool]) -> None:
    address = parse_address(url)
    assert (address.host, address.port, address.prefix, address.secure) == expected
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://h", "http://", "http://h:port", "http://u:p@h", "http://h/?a=b"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InputError):
        parse_address(url)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_address(text)
    except InputError:
        return
    assert 0 <= address.port < 65536


def piece(text: str, ids: list[int] | None = None, reason: str | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {"delta": {"content": text}, "finish_reason": reason}
    return {"choices": [choice | ({"token_ids": ids} if ids is not None else {})]}


def usage(tokens: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}


def test_an_answer_by_its_pieces() -> None:
    events = [
        (0.10, piece("", [])),  # the role: no text, not the first token
        (0.30, piece("a", [1])),
        (0.50, piece("bcd", [2, 3, 4])),
        (0.60, piece("", [5], "stop")),  # a stop token has no text, and ends the answer
        (0.61, usage(5)),
    ]
    found = read_answer("7", events)
    assert (found.ttft_s, found.e2e_s, found.text, found.finish_reason) == (0.30, 0.60, "abcd", "stop")
    assert found.decode_s == pytest.approx(0.30)
    assert found.tokens == (1, 2, 3, 4, 5)
    assert found.committed == (3, 1)
    assert found.tpot_s == pytest.approx(0.30 / 4)
    assert found.num_prompt_tokens == 5


def test_the_servers_own_steps_win_over_pieces() -> None:
    metrics = {"metrics": {"speculative_decoding": {"per_step_accepted": [1, 3]}}}
    events = [(0.1, piece("a", [1])), (0.2, piece("bcde", [2, 3, 4, 5], "length")), (0.3, usage(5) | metrics)]
    assert read_answer("7", events).committed == (2, 4)  # 1 + 2 + 4 = 7 tokens, two of them past the end
    wrong = {"metrics": {"speculative_decoding": {"per_step_accepted": [3, 3]}}}
    events[-1] = (0.3, usage(5) | wrong)
    assert read_answer("7", events).committed == (4,)  # the first step alone would have ended it


def test_without_ids_there_are_no_steps() -> None:
    found = read_answer("7", [(0.1, piece("a")), (0.2, piece("b", reason="stop")), (0.2, usage(2))])
    assert (found.tokens, found.committed) == (None, None)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [(0.1, usage(3))],
        [(0.1, piece("a", [1])), (0.2, usage(1))],  # no reason why it ended
        [(0.1, piece("a", [1], "stop"))],  # no usage
        [(0.1, piece("a", [1], "stop")), (0.2, usage(0))],
    ],
)
def test_an_answer_that_is_not_whole(events: list[tuple[float, dict[str, Any]]]) -> None:
    with pytest.raises(EngineError):
        read_answer("7", events)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "content", "token_ids", "usage", "completion_tokens"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "metrics"]), values, max_size=3), max_size=4))
def test_any_stream_is_an_answer_or_an_error(events: list[dict[str, Any]]) -> None:
    try:
        found = read_answer("1", [(float(index), event) for index, event in enumerate(events)])
    except EngineError:
        return
    assert found.decode_s >= 0


def test_error_replies() -> None:
    assert error_text('{"error": {"message": "no"}}') == "no"
    assert error_text('{"error": "no"}') == "no"
    assert error_text('{"object": "error", "message": "no"}') == "no"
    assert error_text("<html>") == "<html>"
    assert error_text("[1]") == "[1]"


def test_a_stream_of_a_real_server() -> None:
    with serving("--drafts", "3") as client:
        assert served_model(client, "other") == "tiny"
        dialect = find_dialect(client, "tiny", PROMPT, 16)
        assert dialect.path == "/v1/chat/completions"
        assert len(dialect.extra) == 2
        found = answer(client, dialect, "tiny", PROMPT, 16)
    assert found.num_output_tokens == 16
    assert found.committed == (1, 2, 4, 1, 3, 1, 2, 1)  # accepted 0, 1, 3, 0, 2, 0, 1, then cut: 1 + 15 tokens
    assert 0 < found.ttft_s < found.e2e_s


@pytest.mark.parametrize(
    ("fault", "path", "num_extra"), [("strict", "/v1/chat/completions", 0), ("untemplated", "/v1/completions", 1)]
)
def test_poorer_dialects(fault: str, path: str, num_extra: int) -> None:
    with serving("--fault", fault) as client:
        dialect = find_dialect(client, "tiny", PROMPT, 4)
        assert (dialect.path, len(dialect.extra)) == (path, num_extra)
        assert answer(client, dialect, "tiny", PROMPT, 4).text == "t0 t1 t2 t3 "


@pytest.mark.parametrize(
    ("fault", "code"),
    [("cutting", "stream-cut"), ("breaking", "stream-error"), ("hanging", "server-silent"), ("refusing", "request-refused")],
)
def test_answers_that_break(fault: str, code: str) -> None:
    with serving("--fault", fault) as client, pytest.raises(EngineError) as error:
        answer(client, Dialect("/v1/chat/completions"), "tiny", PROMPT, 40)
    assert error.value.code == code


def test_a_stream_of_something_else() -> None:
    with serving() as client, pytest.raises(EngineError) as error:
        list(client.events("/nowhere", {"max_tokens": "many"}))
    assert error.value.code in ("server-unreachable", "stream-cut")


def test_counters_between_two_scrapes(tmp_path: Path) -> None:
    with serving("--drafts", "3") as client:
        dialect = find_dialect(client, "tiny", PROMPT, 16)
        scrapes = [settled_scrape(client, tmp_path / "before")]
        answer(client, dialect, "tiny", PROMPT, 16)
        scrapes.append(settled_scrape(client, tmp_path / "after"))
    assert scrapes[0] is not None
    assert scrapes[1] is not None
    run = difference(scrapes[0], scrapes[1], "tiny")
    assert (run.num_steps, run.num_draft_tokens, run.num_output_tokens) == (8, 24, 16)
    assert run.num_accepted == 0 + 1 + 3 + 0 + 2 + 0 + 1 + 3  # the last step's three were accepted, two of them cut
    assert block_size_of(run) == 4
    assert speculates(scrapes[0].text)
    with pytest.raises(EngineError, match="restarted"):
        difference(scrapes[1], scrapes[0], "tiny")


def counted(drafts: int, drafted: int, *by_position: int) -> ImportedRun:
    survival = tuple(count / drafts for count in by_position) if drafts else None
    size = 1 + round(drafted / drafts) if drafts else None
    return ImportedRun(
        name="x", source="x", definition="x", num_steps=drafts, num_draft_tokens=drafted, survival=survival, block_size=size
    )


def test_k_by_the_counters() -> None:
    assert block_size_of(counted(10, 70, 5, 4, 3, 2, 1, 1, 0)) == 8
    assert block_size_of(counted(440, 1146, 400, 360, 347)) == 4  # n-grams: 2.6 drafts a step, three positions
    assert block_size_of(counted(10, 150, *[5] * 15, 0)) == 16  # 16 positions counted, 15 drafted
    assert block_size_of(counted(10, 20, 9, 9, 5)) == 4  # two on average, and the third was reached
    assert block_size_of(counted(0, 0)) is None


def test_work_gives_every_place_two_rounds() -> None:
    prompts = [PROMPT] * 3
    assert len(work(prompts, 1)) == 3
    assert len(work(prompts, 8)) == 16
    assert len(work([PROMPT] * 50, 8)) == 50


def test_the_first_failure_of_a_load_is_raised() -> None:
    def ask(prompt: Prompt) -> Any:
        raise EngineError("stream-cut", prompt.id)

    with pytest.raises(EngineError):
        run_load([PROMPT] * 9, 4, ask)


LAUNCH = (
    "A=1 B='x y' vllm serve M --port {port} --speculative-config "
    '{"method": "ngram", "num_speculative_tokens": {num_speculative_tokens}}'
)


def test_a_command_at_a_k() -> None:
    words, variables = command_at(LAUNCH, 8, 99)
    assert variables == {"A": "1", "B": "x y"}
    assert words[:5] == ["vllm", "serve", "M", "--port", "99"]
    assert words[5:] == ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 7}']


def test_plain_decoding_leaves_the_speculative_options_out() -> None:
    assert command_at(LAUNCH, 1, 99)[0] == ["vllm", "serve", "M", "--port", "99"]
    sglang = "python -m sglang.launch_server --speculative-algorithm DFLASH --speculative-num-draft-tokens {block_size} --port 1"
    assert command_at(sglang, 1, 1)[0] == ["python", "-m", "sglang.launch_server", "--port", "1"]
    assert command_at(sglang, 8, 1)[0][3:7] == ["--speculative-algorithm", "DFLASH", "--speculative-num-draft-tokens", "8"]
    detailed = "v --per-request-spec-decode-metrics detailed --spec-tokens={num_speculative_tokens} M"
    assert command_at(detailed, 1, 1)[0] == ["v", "M"]


@pytest.mark.parametrize("template", ["vllm serve M", "'{block_size}", "A=1 B={block_size}"])
def test_commands_that_are_none(template: str) -> None:
    with pytest.raises(InputError):
        check_command(template)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    address = parse_address("http://127.0.0.1:9")
    with (
        pytest.raises(EngineError, match="cannot be started"),
        launched("no-such-program {block_size}", 2, address, tmp_path / "x", 1),
    ):
        pass
