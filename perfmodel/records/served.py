"""What was measured at a running server: requests as a client saw them, and the server's own counters beside them."""

import msgspec

from .base import Finding, Record
from .imported import ImportedRun


class ServedRequest(Record):
    """One streamed answer, seconds on the client's clock. `decode_s` runs from the first text to the end of the answer.

    `committed` lists the tokens of each step after the prefill where the server told them, by step or by piece of the stream; the
    last one may have been cut by the length limit. `tokens` are token ids where the server gives them.
    """

    prompt: str
    num_prompt_tokens: int | None
    num_output_tokens: int
    ttft_s: float
    e2e_s: float
    decode_s: float
    text: str
    tokens: tuple[int, ...] | None = None
    committed: tuple[int, ...] | None = None
    finish_reason: str | None = None

    @property
    def num_decoded(self) -> int:
        """Tokens that steps added: all but the prefill's."""
        return self.num_output_tokens - 1

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first; None for an answer of one token."""
        return self.decode_s / self.num_decoded if self.num_decoded > 0 else None


class ServedPoint(Record):
    """One task at one K and one number of requests in flight.

    `block_size` is K by the counters (drafted over drafts), 1 without speculation, None where the server tells neither; `asked` is the
    K that the launched command was given. `num_steps` counts steps of single requests, `step_s` is the mean time of one as its
    request saw it and `tokens_per_step` what it added, so `step_s / tokens_per_step` is the time per token. `counters` is the
    difference of two scrapes. `expected_speedup` is what the points before this one let expect.
    """

    task: str
    concurrency: int
    asked: int | None
    block_size: int | None
    requests: tuple[ServedRequest, ...]
    wall_s: float
    num_steps: int | None = None
    step_s: float | None = None
    tokens_per_step: float | None = None
    counters: ImportedRun | None = None
    expected_speedup: float | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def num_decoded(self) -> int:
        """Tokens that steps added, over all requests."""
        return sum(request.num_decoded for request in self.requests)

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first, over all requests; None where every answer had one token."""
        return sum(request.decode_s for request in self.requests) / self.num_decoded if self.num_decoded else None

    @property
    def context(self) -> int | None:
        """Mean tokens in the cache halfway through an answer; None where the server does not count prompt tokens."""
        lengths = [r.num_prompt_tokens + r.num_output_tokens / 2 for r in self.requests if r.num_prompt_tokens is not None]
        return round(sum(lengths) / len(lengths)) if len(lengths) == len(self.requests) and lengths else None


class Served(Record):
    """A server measured at one or several K: `served.json`. `launched` lists K in the order in which servers were started."""

    engine: str
    base_url: str
    model: str
    points: tuple[ServedPoint, ...]
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    launched: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
