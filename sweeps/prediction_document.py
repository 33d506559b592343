"""The `perf.prediction` document: rows over every chip, task, batch and context, and the best of the first."""

from typing import Any

import numpy as np

from perfmodel.codec import to_document
from perfmodel.landscape import Landscape
from perfmodel.records import KPrediction

from .predicting import Answer


def prediction_document(found: Answer) -> dict[str, Any]:
    """The body of `perf.prediction`. Of a large grid the head is its first cell's, and rows carry no intervals."""
    bodies = [_body(prediction) for prediction in found.predictions]
    if found.grid is not None:
        finding = {
            "code": "grid-without-intervals",
            "severity": "info",
            "message": f"{found.grid.num_cells:,} cells were asked for; rows carry no intervals",
            "hint": "ask for a hundred combinations of chip, task, batch and context or fewer",
            "where": "",
        }
        return {
            **bodies[0],
            "rows": _grid_rows(found.grid),
            "cells": _grid_cells(found.grid),
            "findings": [*bodies[0]["findings"], finding],
        }
    rows = [row | {"hardware": body["hardware"], "task": body["task"]} for body in bodies for row in body["rows"]]
    return {**bodies[0], "rows": rows, "predictions": [{k: v for k, v in body.items() if k != "rows"} for body in bodies]}


def _body(prediction: KPrediction) -> dict[str, Any]:
    body = to_document(prediction)
    del body["schema"], body["version"]
    for row, record in [*zip(body["rows"], prediction.rows, strict=True), (body["best"], prediction.best)]:
        row["num_speculative_tokens"] = record.num_speculative_tokens
    return body


def _known(values: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in values.reshape(-1).tolist()]


def _grid_rows(grid: Landscape) -> list[dict[str, Any]]:
    """One row per cell: chip, task, batch and context from slow to fast, block sizes fastest."""
    shape = grid.speedup.shape

    def flat(values: np.ndarray) -> list[Any]:
        return np.moveaxis(np.broadcast_to(values, shape), 2, -1).reshape(-1).tolist()

    def per_chip(name: str) -> list[Any]:
        return flat(np.stack([getattr(part, name) for part in grid.grids])[:, None])

    places = np.moveaxis(np.indices(shape), 3, -1).reshape(5, -1)
    blocks, batches, contexts = (axis.tolist() for axis in (grid.block_sizes, grid.batches, grid.contexts))
    tau = grid.tau[None, :, :, None, None]
    columns = {
        "draft_s": per_chip("draft_s"),
        "verify_s": per_chip("verify_s"),
        "host_s": per_chip("host_s"),
        "tau": flat(tau),
        "tpot_s": flat(grid.step_s[:, None] / tau),
        "speedup": _known(np.moveaxis(grid.speedup, 2, -1)),
        "bound": per_chip("bound"),
        "extrapolated": flat(np.stack([part.extrapolated for part in grid.grids])[:, None] | grid.beyond[None, :, :, None, None]),
        "in_training": flat(grid.in_training[None, :, :, None, None]),
        "usd_per_million_tokens": _known(np.moveaxis(grid.usd_per_million_tokens, 2, -1)),
    }
    chip, task, block, batch, context = places.tolist()
    return [
        {
            "hardware": grid.chips[chip[i]],
            "task": grid.tasks[task[i]],
            "block_size": blocks[block[i]],
            "num_speculative_tokens": blocks[block[i]] - 1,
            "batch": batches[batch[i]],
            "context": contexts[context[i]],
            "speedup_low": None,
            "speedup_high": None,
            **{name: column[i] for name, column in columns.items()},
        }
        for i in range(len(chip))
    ]


def _grid_cells(grid: Landscape) -> list[dict[str, Any]]:
    """The best block size of every chip, task, batch and context."""
    at = np.searchsorted(grid.block_sizes, grid.best)
    speedup = np.take_along_axis(grid.speedup, at[:, :, None], axis=2)[:, :, 0]
    indices = np.indices(grid.best.shape).reshape(4, -1).T.tolist()
    best, gains = grid.best.reshape(-1).tolist(), _known(speedup)
    return [
        {
            "hardware": grid.chips[chip],
            "task": grid.tasks[task],
            "batch": int(grid.batches[batch]),
            "context": int(grid.contexts[context]),
            "best_block_size": size,
            "num_speculative_tokens": size - 1,
            "speedup": gain,
        }
        for (chip, task, batch, context), size, gain in zip(indices, best, gains, strict=True)
    ]
