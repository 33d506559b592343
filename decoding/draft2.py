"""The DFlash 2 drafter: the DFlash block with convolutions along it and a selector that makes neighbouring drafts fit each other.

A block drafter chooses all its tokens at once, each without knowing its neighbours' choice. Two cheap additions help. A causal
convolution over the last few slots, before and after attention and MLP, lets every channel mix with the slots before it; its kernel is
a learned one per channel plus a part per group of channels that depends on the slot's own input. And of the `top_k` likeliest tokens
of each slot one is chosen from left to right: a token's score is its logit plus the product, over `rank` dimensions, of a code of the
token chosen before, a projection of the slot's hidden state, and a code of the candidate.
Source: layout and definition of the published `DFlash2DraftModel` checkpoints.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from . import draft
from .config import TargetConfig
from .config_draft import Draft2Config
from .draft import Choose, extend_context, feature_layer_ids, init_state, trained_block_size
from .layers import KVCache, linear, rms_norm

__all__ = ["extend_context", "feature_layer_ids", "init_state", "propose", "trained_block_size"]

Params = dict[str, Any]
"""Those of `draft`, and per layer attention_conv and mlp_conv {base [2 taps d], kernel [d 2·taps·groups]};
selector {predecessor [v r], successor [v r], hidden [d r]}."""

BEFORE, AFTER = 0, 1


def propose(
    params: Params,
    config: Draft2Config,
    target_params: Params,
    target_config: TargetConfig,
    anchor: Int[Array, "b 1"],
    position: Int[Array, " b"],
    state: KVCache,
    block_size: int,
    choose: Choose,
) -> tuple[Int[Array, "b k"], Float[Array, "b k v"] | None, KVCache]:
    """K − 1 drafts for the positions behind the anchor, and the probabilities they were drawn from over the target's vocabulary."""
    hidden = draft.predicting_states(params, config, target_params, anchor, position, state, block_size, block_layer)
    logits = draft.draft_logits(params, config, target_params, target_config, hidden)
    with jax.named_scope("selector"):
        tokens, probabilities = select(params["selector"], config, hidden, logits, anchor[:, 0], choose)
    return tokens.astype(anchor.dtype), probabilities, state


def select(
    selector: Params,
    config: Draft2Config,
    hidden: Float[Array, "b k d"],
    logits: Float[Array, "b k v"],
    previous: Int[Array, " b"],
    choose: Choose,
) -> tuple[Int[Array, "b k"], Float[Array, "b k v"] | None]:
    """One of the likeliest tokens per slot, from left to right, and the probabilities of the draw over the whole vocabulary."""
    unary, candidates = jax.lax.top_k(logits, config.selector_top_k)
    states = linear(hidden, selector["hidden"]).astype(jnp.float32)
    tokens, rows = [], []
    for slot in range(hidden.shape[1]):
        before = jnp.take(selector["predecessor"], previous, axis=0).astype(jnp.float32) * states[:, slot]
        codes = jnp.take(selector["successor"], candidates[:, slot], axis=0).astype(jnp.float32)
        scores = unary[:, slot] + jnp.einsum("br,bcr->bc", before, codes, precision=jax.lax.Precision.HIGHEST)
        index, probabilities = choose(scores[:, None], slot)
        previous = jnp.take_along_axis(candidates[:, slot], index, axis=1)[:, 0]
        tokens.append(previous)
        if probabilities is not None:
            whole = jnp.zeros((logits.shape[0], logits.shape[-1]), probabilities.dtype)
            rows.append(whole.at[jnp.arange(logits.shape[0])[:, None], candidates[:, slot]].set(probabilities[:, 0]))
    return jnp.stack(tokens, axis=1), jnp.stack(rows, axis=1) if rows else None


def block_layer(
    layer: Params,
    config: Draft2Config,
    x: Float[Array, "b t d"],
    table: tuple[Array, Array],
    attention: Callable[[Array, Array, Array], Array],
) -> Float[Array, "b t d"]:
    """One drafter layer over block tokens, with a convolution before and after each branch."""
    normed = rms_norm(x, layer["attn_norm"], config.rms_norm_eps)
    kernels = slot_kernels(layer["attention_conv"], config, normed)
    mixed = convolve(layer["attention_conv"], config, normed, kernels, BEFORE)
    mixed = draft.attention_branch(layer, config, mixed, table, attention)
    x = x + convolve(layer["attention_conv"], config, mixed, kernels, AFTER)
    normed = rms_norm(x, layer["mlp_norm"], config.rms_norm_eps)
    kernels = slot_kernels(layer["mlp_conv"], config, normed)
    mixed = draft.mlp_branch(layer, convolve(layer["mlp_conv"], config, normed, kernels, BEFORE))
    return x + convolve(layer["mlp_conv"], config, mixed, kernels, AFTER)


def slot_kernels(conv: Params, config: Draft2Config, normed: Float[Array, "b t d"]) -> Float[Array, "b t 2 taps groups"]:
    """The input-dependent part of both kernels of a branch, from the branch's normed input."""
    b, t, d = normed.shape
    with jax.named_scope("conv_kernels"):
        return linear(normed, conv["kernel"]).reshape(b, t, 2, config.conv_kernel_size, d // config.conv_group_size)


def convolve(
    conv: Params, config: Draft2Config, x: Float[Array, "b t d"], kernels: Float[Array, "b t 2 taps groups"], side: int
) -> Float[Array, "b t d"]:
    """Σ over taps j of (base[j] + kernels[j]) · x[slot − j], channel by channel; before the block's first slot there is nothing."""
    length = x.shape[1]
    with jax.named_scope("conv"):
        total = jnp.zeros_like(x)
        for tap in range(config.conv_kernel_size):
            shifted = jnp.pad(x, ((0, 0), (tap, 0), (0, 0)))[:, :length]
            dynamic = jnp.repeat(kernels[:, :, side, tap], config.conv_group_size, axis=-1)
            total = total + (conv["base"][side, tap] + dynamic) * shifted
        return total
