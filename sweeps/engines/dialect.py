"""How to ask a server: the richest request it accepts, found out once, on the warm-up.

vLLM returns token ids on request and takes arguments of the chat template, others refuse unknown fields, and a model without a chat
template is asked through the plain completions path. Greedy throughout, so that answers of all K can be compared.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from decoding.prompts import Prompt
from perfmodel.records import ServedRequest

from .client import Client, Event, RefusedError
from .failure import EngineError

_CHAT, _PLAIN = "/v1/chat/completions", "/v1/completions"
_IDS = {"return_token_ids": True}
_NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@dataclass(frozen=True)
class Dialect:
    """A path and the fields beside the usual ones."""

    path: str
    extra: tuple[dict[str, Any], ...] = ()

    def body(self, model: str, prompt: Prompt, max_new_tokens: int) -> dict[str, Any]:
        """The request for an answer, without `stream`."""
        asked: dict[str, Any] = {"messages": list(prompt.messages)}
        if self.path == _PLAIN:
            asked = {"prompt": "\n\n".join(message["content"] for message in prompt.messages)}
        body = {"model": model, "max_tokens": max_new_tokens, "temperature": 0, "stream_options": {"include_usage": True}}
        for fields in self.extra:
            body |= fields
        return body | asked


DIALECTS = (
    Dialect(_CHAT, (_IDS, _NO_THINKING)),
    Dialect(_CHAT, (_NO_THINKING,)),
    Dialect(_CHAT),
    Dialect(_PLAIN, (_IDS,)),
    Dialect(_PLAIN),
)


def find_dialect(client: Client, model: str, prompt: Prompt, max_new_tokens: int) -> Dialect:
    """The first dialect that the server answers. Raises `EngineError` of the last refusal, or of any other failure at once."""
    refusal: EngineError | None = None
    for dialect in DIALECTS:
        try:
            answer(client, dialect, model, prompt, max_new_tokens)
        except RefusedError as error:
            if error.status >= 500:
                raise
            refusal = error
        else:
            return dialect
    assert refusal is not None
    raise refusal


def answer(client: Client, dialect: Dialect, model: str, prompt: Prompt, max_new_tokens: int) -> ServedRequest:
    """One answer with its times. Raises `EngineError` where it did not come whole."""
    events = client.events(dialect.path, dialect.body(model, prompt, max_new_tokens))
    return read_answer(prompt.id, events)


def read_answer(prompt: str, events: Iterable[Event]) -> ServedRequest:
    """The answer that a stream of events carries.

    The first text is the prefill's token; a piece whose text is empty (a role, half a character) is not taken for it. The
    answer ends with the piece that says why it ended. Raises `EngineError` for a stream without text, end or usage.
    """
    pieces: list[str] = []
    tokens: list[int] | None = []
    counts: list[int] = []
    first = last = None
    reason: str | None = None
    usage: dict[str, Any] = {}
    steps: list[int] | None = None
    for now, event in events:
        usage = event["usage"] if isinstance(event.get("usage"), dict) else usage
        steps = _accepted(event) or steps
        for choice in _list(event.get("choices"))[:1]:
            text = _text(choice)
            ids = _integers(choice.get("token_ids"))
            if ids is None:
                tokens = tokens if not text else None
            elif ids:
                counts.append(len(ids))
                tokens = None if tokens is None else tokens + ids
            if text:
                pieces.append(text)
                first = now if first is None else first
            if text or choice.get("finish_reason"):
                last = now
            reason = choice.get("finish_reason") or reason
    num_output = usage.get("completion_tokens")
    if not isinstance(num_output, int) or isinstance(num_output, bool):
        raise EngineError("no-usage", "the server does not say how many tokens an answer has", "it must know stream_options")
    if reason is None or last is None or num_output < 1:
        raise EngineError("stream-cut", "an answer ended without a reason or without any token", "look at the server's log")
    first = last if first is None else first
    whole = tokens if tokens and len(tokens) == num_output else None
    by_step = [[1 + accepted for accepted in steps or ()], counts[1:] if whole else []]
    num_prompt = usage.get("prompt_tokens")
    return ServedRequest(
        prompt=prompt,
        num_prompt_tokens=num_prompt if isinstance(num_prompt, int) else None,
        num_output_tokens=num_output,
        ttft_s=first,
        e2e_s=last,
        decode_s=last - first,
        text="".join(pieces),
        tokens=tuple(whole) if whole else None,
        committed=next((tuple(found) for found in by_step if _adds_up(found, num_output)), None),
        finish_reason=str(reason),
    )


def _adds_up(committed: list[int], num_output: int) -> bool:
    """Whether the steps give the answer: all but the last within it, the last reaching its end or beyond."""
    return num_output == 1 if not committed else 1 + sum(committed[:-1]) < num_output <= 1 + sum(committed)


def _accepted(event: dict[str, Any]) -> list[int] | None:
    """vLLM's accepted drafts of every step, where the server was started to tell them."""
    metrics = event.get("metrics")
    found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    return _integers(found.get("per_step_accepted")) if isinstance(found, dict) else None


def _integers(value: Any) -> list[int] | None:
    good = isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value)
    return value if good else None


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta")
    values = [choice.get("text")]
    if isinstance(delta, dict):
        values = [delta.get("reasoning_content"), delta.get("reasoning"), delta.get("content")]
    return "".join(value for value in values if isinstance(value, str))


def served_model(client: Client, hint: str) -> str:
    """The model's name as the server lists it: the only one, or the one that is `hint`. Raises `EngineError`."""
    reply = client.get("/v1/models")
    try:
        listed = [str(row["id"]) for row in json.loads(reply.text)["data"]]
    except (ValueError, KeyError, TypeError):
        listed = []
    if not listed:
        text = f"{client.address} lists no model (status {reply.status})"
        raise EngineError("no-model", text, "is it an OpenAI-compatible server?")
    return hint if hint in listed else listed[0]
