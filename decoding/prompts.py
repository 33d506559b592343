"""Prompts out of files in the layouts that the public benchmark sets come in, worded as the DFlash benchmark words them.

Acceptance depends on the text: the same drafter keeps twice as many tokens of a worked solution as of an essay, and the request
to reason step by step is part of what makes a solution predictable. So each known set gets the wording under which figures are
published (docs of the reference, dflash 0.1.0): math problems ask for the answer in \\boxed{}, HumanEval stands in a Python
fence, MBPP and chat prompts stay as they are, of a conversation in several turns only the first is asked.
A row that matches no layout is refused with its line, never sent as it is.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError

TASKS = ("math", "code", "chat")
"""The families of prompts; each has its own acceptance."""

Row = dict[str, Any]
Message = dict[str, str]

LAYOUT_HINT = (
    "known layouts: {question}, {problem}, {prompt}, {prompt, task_id}, {text, test_list}, {prompt, test_list}, {turns}, "
    "{instruction, input}, {problem_statement}, {messages}"
)

ID_KEYS = ("id", "task_id", "question_id", "unique_id", "instance_id")


@dataclass(frozen=True)
class Prompt:
    """One conversation to be answered. `task` is None where neither the row nor its layout says which family it is of."""

    task: str | None
    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Layout:
    """A way to write prompts down: how to know it, what its rows ask, which family they are of."""

    name: str
    task: str | None
    matches: Callable[[Row], bool]
    messages: Callable[[Row], list[Message]]


def math_wording(problem: str) -> str:
    """A math problem with the benchmark's request behind it."""
    return f"{problem}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def code_wording(stub: str) -> str:
    """A function stub inside the benchmark's request to complete it."""
    return f"Write a solution to the following problem and make sure that it passes the tests:\n```python\n{stub}\n```"


def issue_wording(statement: str) -> str:
    """A repository issue with the benchmark's request to fix it."""
    return f"Problem Statement:\n{statement}\nPlease fix the issue described above."


def instruction_wording(row: Row) -> str:
    """An instruction, with its input under a label where it has one."""
    instances = row.get("instances") or [{}]
    context = row.get("input") or instances[0].get("input")
    return f"{row['instruction']}\n\nInput:\n{context}" if context else row["instruction"]


def _asks(wording: Callable[[Row], str]) -> Callable[[Row], list[Message]]:
    return lambda row: [{"role": "user", "content": wording(row)}]


def _has(*keys: str) -> Callable[[Row], bool]:
    return lambda row: all(key in row for key in keys)


def _conversation(row: Row) -> list[Message]:
    messages = [{"role": message["role"], "content": message["content"]} for message in row["messages"]]
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()  # the recorded answer: it is what is to be decoded
    return messages


LAYOUTS = (
    Layout("messages", None, _has("messages"), _conversation),
    Layout("MT-Bench", "chat", _has("turns"), _asks(lambda row: row["turns"][0])),
    Layout("MT-Bench", "chat", lambda row: isinstance(row.get("prompt"), list), _asks(lambda row: row["prompt"][0])),
    Layout("SWE-bench", "code", _has("problem_statement"), _asks(lambda row: issue_wording(row["problem_statement"]))),
    Layout("GSM8K", "math", _has("question"), _asks(lambda row: math_wording(row["question"]))),
    Layout("MATH, AIME", "math", _has("problem"), _asks(lambda row: math_wording(row["problem"]))),
    Layout("MBPP", "code", _has("text", "test_list"), _asks(lambda row: row["text"])),
    Layout("MBPP sanitized", "code", _has("prompt", "test_list"), _asks(lambda row: row["prompt"])),
    Layout("HumanEval", "code", _has("prompt", "task_id"), _asks(lambda row: code_wording(row["prompt"]))),
    Layout("Alpaca", "chat", _has("instruction"), _asks(instruction_wording)),
    Layout("plain", None, _has("prompt"), _asks(lambda row: row["prompt"])),
)
"""Tried in this order; the first that matches reads the row."""


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a `.jsonl`, `.jsonl.gz` or `.json` file (one array), in file order.

    Raises `InputError` naming the line (the entry, in an array) that cannot be read.
    """
    prompts = [_prompt(path, place, number, row) for place, number, row in _rows(path, _text(path))]
    if not prompts:
        raise InputError(f"{path} holds no prompts", LAYOUT_HINT)
    return prompts


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "give a file of prompts, one JSON object per line") from error
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path} is a damaged gzip file: {error}", "the download may be incomplete") from error
    elif path.suffix == ".gz":
        raise InputError(f"{path} is named .gz and is not a gzip file", "rename it, or fetch it again")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text", "give a file of prompts, one JSON object per line") from error


def _rows(path: Path, text: str) -> Iterator[tuple[str, int, Any]]:
    """Place in words, running number and decoded value of every row."""
    if text.lstrip().startswith("["):
        for number, row in enumerate(_decode(path, text, first_line=1), start=1):
            yield f"entry {number}", number, row
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", number, _decode(path, line, first_line=number)


def _decode(path: Path, text: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InputError(f"{path}, line {line}: not JSON ({error.msg}, column {error.colno})", LAYOUT_HINT) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets in brackets without end
        raise InputError(f"{path}, from line {first_line}: JSON that cannot be read ({error})", LAYOUT_HINT) from error


def _prompt(path: Path, place: str, number: int, row: Any) -> Prompt:
    if not isinstance(row, dict):
        raise InputError(f"{path}, {place}: not a JSON object", LAYOUT_HINT)
    layout = next((layout for layout in LAYOUTS if layout.matches(row)), None)
    if layout is None:
        raise InputError(f"{path}, {place}: no known layout has the keys {', '.join(sorted(row)) or '(none)'}", LAYOUT_HINT)
    task = row.get("task", layout.task)
    if task is not None and task not in TASKS:
        raise InputError(f"{path}, {place}: task {task!r} is not one of {', '.join(TASKS)}", "correct it or leave the key out")
    try:
        messages = layout.messages(row)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(f"{path}, {place}: a damaged row of the {layout.name} layout ({error!r})", LAYOUT_HINT) from error
    if not messages or not all(isinstance(m["content"], str) and m["content"].strip() for m in messages):
        raise InputError(f"{path}, {place}: the {layout.name} row asks nothing (its text is empty or no text)", LAYOUT_HINT)
    if any("\ud800" <= sign <= "\udfff" for m in messages for sign in m["content"]):
        raise InputError(f"{path}, {place}: half a surrogate pair is no text", "write the character itself, in UTF-8")
    name = next((row[key] for key in ID_KEYS if key in row), number)
    return Prompt(task, str(name), tuple(messages))
