"""A closed loop of requests: as many in flight as asked, the next one sent when one is answered.

A closed loop keeps the batch of the server at the number in flight until the queue runs dry, which is what a step time at that batch
means. So there are at least twice as many requests as places.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import cycle, islice

from decoding.prompts import Prompt
from perfmodel.records import ServedRequest

ROUNDS = 2
"""Requests per place in flight, at least."""


def work(prompts: Sequence[Prompt], concurrency: int) -> list[Prompt]:
    """The prompts to send at a concurrency: all of them, from the start again until every place has had two."""
    num = max(len(prompts), ROUNDS * concurrency if concurrency > 1 else 0)
    return list(islice(cycle(prompts), num))


def run_load(prompts: Sequence[Prompt], concurrency: int, ask: Callable[[Prompt], ServedRequest]) -> list[ServedRequest]:
    """Answers in the order of `prompts`. The first failure stops the rest and is raised."""
    answers: dict[int, ServedRequest] = {}
    failures: list[BaseException] = []
    queue = iter(enumerate(prompts))
    lock = threading.Lock()

    def place() -> None:
        while not failures:
            with lock:
                index, prompt = next(queue, (-1, None))
            if prompt is None:
                return
            try:
                answers[index] = ask(prompt)
            except BaseException as error:
                failures.append(error)
                return

    places = [threading.Thread(target=place, daemon=True) for _ in range(min(concurrency, len(prompts)))]
    for thread in places:
        thread.start()
    for thread in places:
        thread.join()
    if failures:
        raise failures[0]
    return [answers[index] for index in range(len(prompts))]
