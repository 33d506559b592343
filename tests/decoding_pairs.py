"""Small pairs for the tests of decoding: a few thousand weights, in float32."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from decoding.config import TargetConfig
from decoding.config_draft import DraftConfig
from decoding.pair import Pair, random_pair

VOCAB_SIZE = 61
MASK_TOKEN_ID = 60

TARGET = TargetConfig(
    vocab_size=VOCAB_SIZE, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    rms_norm_eps=1e-6, rope_theta=1e4, qk_norm=True, tied_embeddings=False,
)  # fmt: skip
DRAFT = DraftConfig(
    vocab_size=VOCAB_SIZE, hidden_size=32, intermediate_size=48, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=8,
    rms_norm_eps=1e-6, rope_theta=1e4, block_size=4, mask_token_id=MASK_TOKEN_ID, target_layer_ids=(1, 0), num_target_layers=2,
    target_hidden_size=32,
)  # fmt: skip


def small_pair(seed: int, lean: float = 0.0, **changes: object) -> Pair:
    """A random pair. With `lean`, a few rows of the head lean towards a direction that all embeddings share.

    Target and drafter then often choose among the same few tokens, so that drafts are sometimes accepted.
    """
    pair = random_pair(TARGET, DRAFT, seed)
    if lean:
        shared = np.random.default_rng(seed).standard_normal(TARGET.hidden_size).astype(np.float32)
        head = np.array(pair.target_params["head"])
        head[:, :4] += lean * np.outer(shared, 0.9 ** np.arange(4)) / TARGET.hidden_size
        params = pair.target_params | {"embed": pair.target_params["embed"] + shared, "head": jnp.asarray(head)}
        pair = dataclasses.replace(pair, target_params=params)
    return dataclasses.replace(pair, **changes)
