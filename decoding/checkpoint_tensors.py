"""Where a model's tensors come from: the safetensors files of a folder, or a seeded generator. Never a pickle.

A pickle runs whatever its author put in; safetensors holds numbers and nothing else. Tensors are taken one by one by name and shape,
so that at most one is in memory beside the model, and what was never taken is known at the end: a tensor that nobody understands
belongs to another network.
"""

import functools
import json
import zlib
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open

from perfmodel.errors import InputError

ALIASES = {
    "fc.weight": "encoder.fc.weight",
    "hidden_norm.weight": "encoder.output_norm_enc.weight",
    "candidate_selector.predecessor_codebook": "candidate_selector.predecessor_codebook.weight",
    "candidate_selector.successor_codebook": "candidate_selector.successor_codebook.weight",
}
"""Names used here → what some checkpoints call the same tensor."""


class Tensors(Protocol):
    """Tensors of a model by name."""

    def __call__(self, name: str, *shape: int) -> Any:
        """The tensor of that name, a NumPy or JAX array of the given shape."""

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""


class FolderTensors:
    """Tensors of a folder by name, with or without the `model.` prefix; remembers which were never asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.handles: dict[str, Any] = {}
        for path in _files(folder):
            try:
                handle = safe_open(path, framework="numpy")
            except (SafetensorError, OSError) as error:
                raise InputError(f"{path} is not a whole safetensors file: {error}", "the download may be incomplete") from error
            self.handles |= dict.fromkeys(handle.keys(), handle)
        self.left = set(self.handles)

    def has(self, name: str) -> bool:
        """Whether the folder holds a tensor of that name."""
        return self._find(name) is not None

    def _find(self, name: str) -> str | None:
        alias = ALIASES.get(name, name)
        return next((n for n in (name, f"model.{name}", name.removeprefix("model."), alias) if n in self.handles), None)

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        """The tensor of that name. Raises `InputError` when it is missing or of another shape."""
        found = self._find(name)
        if found is None:
            raise InputError(f"{self.folder} has no tensor {name}", "config.json and weights do not belong together")
        tensor: np.ndarray = self.handles[found].get_tensor(found)
        if tensor.shape != shape:
            raise InputError(
                f"{self.folder}: {name} has shape {list(tensor.shape)}, config.json says {list(shape)}",
                "config.json and weights do not belong together",
            )
        self.left.discard(found)
        return tensor

    def finish(self, allowed: tuple[str, ...] = ()) -> None:
        """Raises `InputError` naming the tensors that nobody took, `allowed` ones and derived RoPE tables apart."""
        unused = sorted(name for name in self.left if not name.endswith("rotary_emb.inv_freq") and name not in allowed)
        if unused:
            raise InputError(
                f"{self.folder} holds {len(unused)} tensors that are not used: {', '.join(unused[:4])}"
                + (", …" if len(unused) > 4 else ""),
                "the network would be another one without them; the checkpoint is of another kind",
            )


def _files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"{folder} holds no safetensors file", "other weight formats are not read; convert the checkpoint first")
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return files
    try:
        wanted = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{index} is not an index of weights: {error!r}", "the download may be incomplete") from error
    missing = wanted - {path.name for path in files}
    if missing:
        raise InputError(f"{folder} lacks {', '.join(sorted(map(str, missing)))}", "the download may be incomplete")
    return [path for path in files if path.name in wanted]


class _Drawn:
    """What all generated weights share: norms near 1, linear weights of unit gain, a draft vocabulary of the first ids."""

    def __init__(self, own_vocabulary: bool) -> None:
        self.own_vocabulary = own_vocabulary

    def has(self, name: str) -> bool:
        """Whether a checkpoint of this kind would hold the tensor."""
        return self.own_vocabulary and name in ("embed_tokens.weight", "lm_head.weight", "d2t")


class RandomTensors(_Drawn):
    """Seeded random tensors, drawn in the order they are asked for, in float32 on the host."""

    def __init__(self, seed: int, own_vocabulary: bool = False) -> None:
        super().__init__(own_vocabulary)
        self.generator = np.random.default_rng(seed)

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        """A tensor of that shape; the next draw."""
        if name == "d2t":
            return np.zeros(shape, np.int64)
        values = self.generator.standard_normal(shape, dtype=np.float32)
        return 1.0 + 0.1 * values if len(shape) == 1 else _scale(name, shape) * values


class DeviceTensors(_Drawn):
    """Seeded random tensors, each made on the device in its final type: nothing as large as the model passes through the host.

    Uniform instead of normal, with the same variance: a network's time does not depend on which, and drawing is cheaper.
    """

    def __init__(self, seed: int, dtype: DTypeLike, own_vocabulary: bool = False) -> None:
        super().__init__(own_vocabulary)
        self.key = jax.random.key(seed, impl="rbg")
        self.dtype = jnp.dtype(dtype)

    def __call__(self, name: str, *shape: int) -> jax.Array | np.ndarray:
        """A tensor of that shape; what it holds depends on seed and name. A map of token ids stays on the host, which checks it."""
        if name == "d2t":
            return np.zeros(shape, np.int32)
        scale, middle = (0.1, 1.0) if len(shape) == 1 else (_scale(name, shape), 0.0)
        key = jax.random.fold_in(self.key, zlib.crc32(name.encode()))
        return _uniform(key, scale * 3**0.5, middle, shape, self.dtype)


@functools.partial(jax.jit, static_argnames=("shape", "dtype"))
def _uniform(key: jax.Array, reach: float, middle: float, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    drawn = jax.random.uniform(key, shape, dtype, minval=-1, maxval=1)
    return jnp.asarray(middle, dtype) + jnp.asarray(reach, dtype) * drawn


def _scale(name: str, shape: tuple[int, ...]) -> float:
    """Standard deviation that keeps activations of unit size: one over the root of a weight's inputs."""
    return 1.0 if "embed" in name or "codebook" in name else float(shape[-1]) ** -0.5


def target_ids(take: Tensors, num_rows: int, vocab_size: int) -> np.ndarray:
    """The target's token id of each row of a draft vocabulary; files hold the offset, target id minus row.

    Raises `InputError` when the map is missing, leaves the vocabulary, or contradicts its inverse `t2d`.
    """
    rows = np.arange(num_rows)
    if not take.has("d2t"):
        if num_rows != vocab_size:
            raise InputError(
                f"a draft vocabulary of {num_rows} tokens, and no tensor d2t that says which", "the checkpoint is incomplete"
            )
        return rows.astype(np.int32)
    ids = rows + np.asarray(take("d2t", num_rows)).astype(np.int64)
    if ids.min() < 0 or ids.max() >= vocab_size or len(np.unique(ids)) != len(ids):
        raise InputError(
            f"d2t does not map {num_rows} draft tokens to different ids below {vocab_size}",
            "the tensor holds offsets: target id minus draft id",
        )
    if take.has("t2d") and not np.array_equal(np.flatnonzero(np.asarray(take("t2d", vocab_size))), np.sort(ids)):
        raise InputError("t2d and d2t name different target tokens", "the checkpoint's two maps do not belong together")
    return ids.astype(np.int32)
