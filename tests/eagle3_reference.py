"""A dense EAGLE-3 chain in NumPy, float64, written from the published description: no cache, one row after the other."""

from collections.abc import Mapping

import numpy as np

from decoding.config_eagle3 import Eagle3Config


class Tensors:
    """Random tensors under their published names, as a checkpoint would give them."""

    def __init__(self, config: Eagle3Config, seed: int = 0, prefix: str = "midlayer.", own_embedding: bool = False) -> None:
        generator = np.random.default_rng(seed)
        d, f, h = config.hidden_size, config.intermediate_size, config.head_dim
        heads, kv = config.num_heads * h, config.num_kv_heads * h
        shapes = {
            "fc": (d, len(config.target_layer_ids) * config.target_hidden_size), "norm": (d,),
            "lm_head": (config.draft_vocab_size, d), f"{prefix}input_layernorm": (d,), f"{prefix}hidden_norm": (d,),
            f"{prefix}post_attention_layernorm": (d,), f"{prefix}self_attn.q_proj": (heads, 2 * d),
            f"{prefix}self_attn.k_proj": (kv, 2 * d), f"{prefix}self_attn.v_proj": (kv, 2 * d),
            f"{prefix}self_attn.o_proj": (d, heads), f"{prefix}mlp.gate_proj": (f, d), f"{prefix}mlp.up_proj": (f, d),
            f"{prefix}mlp.down_proj": (d, f),
        }  # fmt: skip
        if own_embedding:
            shapes["embed_tokens"] = (config.vocab_size, d)
        self.tensors = {
            f"{name}.weight": (1 + 0.1 * generator.standard_normal(shape)).astype(np.float32)
            if len(shape) == 1
            else (generator.standard_normal(shape) * shape[1] ** -0.5).astype(np.float32)
            for name, shape in shapes.items()
        }
        if config.draft_vocab_size < config.vocab_size:
            ids = np.sort(generator.choice(config.vocab_size, config.draft_vocab_size, replace=False))
            self.tensors["d2t"] = ids - np.arange(len(ids))
            self.tensors["t2d"] = np.isin(np.arange(config.vocab_size), ids)

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        assert self.tensors[name].shape == shape, name
        return self.tensors[name]

    def has(self, name: str) -> bool:
        return name in self.tensors


def chain_logits(
    config: Eagle3Config,
    tensors: Mapping[str, np.ndarray],
    embed: np.ndarray,
    features: np.ndarray,
    tokens: list[int],
    num_drafts: int,
    prefix: str = "midlayer.",
) -> tuple[np.ndarray, list[int]]:
    """Logits of each draft and the target ids drafted greedily.

    `features` [s f] are those of positions 0 … s − 1, `tokens` the s + 1 tokens known: row t pairs feature t with token t + 1.
    """
    w = {name.removesuffix(".weight").removeprefix(prefix): value.astype(np.float64) for name, value in tensors.items()}
    table = w.get("embed_tokens", embed)
    n, k, h = config.num_heads, config.num_kv_heads, config.head_dim

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean() + config.rms_norm_eps) * weight

    def turn(x: np.ndarray, position: int) -> np.ndarray:
        angle = position * config.rope_theta ** (-np.arange(h // 2) / (h // 2))
        a, b = x[: h // 2], x[h // 2 :]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])

    keys: list[np.ndarray] = []
    values: list[np.ndarray] = []

    def row(feature: np.ndarray, token: int, position: int) -> np.ndarray:
        normed = norm(feature, w["hidden_norm"])
        x = np.concatenate([norm(table[token].astype(np.float64), w["input_layernorm"]), normed])
        q, key, value = (w[f"self_attn.{name}_proj"] @ x for name in "qkv")
        keys.append(np.concatenate([turn(key[i * h : (i + 1) * h], position) for i in range(k)]))
        values.append(value)
        mixed = []
        for head in range(n):
            own = slice((head // (n // k)) * h, (head // (n // k) + 1) * h)
            query = turn(q[head * h : (head + 1) * h], position)
            score = np.array([query @ key[own] for key in keys]) / np.sqrt(h)
            weight = np.exp(score - score.max())
            mixed.append(sum(a * value[own] for a, value in zip(weight / weight.sum(), values, strict=True)))
        x = (normed if config.norm_before_residual else feature) + w["self_attn.o_proj"] @ np.concatenate(mixed)
        inner = norm(x, w["post_attention_layernorm"])
        gate = w["mlp.gate_proj"] @ inner
        return x + w["mlp.down_proj"] @ (gate / (1 + np.exp(-gate)) * (w["mlp.up_proj"] @ inner))

    fused = features.astype(np.float64) @ w["fc"].T
    for position in range(len(features)):
        hidden = row(fused[position], tokens[position + 1], position)
    logits, drafts = [], []
    for i in range(num_drafts):
        logits.append(w["lm_head"] @ norm(hidden, w["norm"]))
        best = int(logits[-1].argmax())
        drafts.append(best + int(tensors["d2t"][best]) if "d2t" in tensors else best)
        hidden = row(hidden, drafts[-1], len(features) + i)
    return np.array(logits), drafts
