"""Decodes on one device and on eight, for `test_decoding_parallel`: a script, since device counts are fixed when JAX starts.

Prints a JSON line per case: what is split, and whether both loops gave the single device's tokens and counts.
"""

import dataclasses
import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from decoding_pairs import DRAFT, TARGET

from decoding.attention import MESH_AXIS, default_kernel
from decoding.fused import compile_fused, generate_fused
from decoding.loop import Decoder, Generation, generate
from decoding.pair import Pair, random_pair
from decoding.parallel import device_mesh, split_kernel, split_pair

PROMPTS = [[3, 1, 4, 1, 5], [9]]
NEW_TOKENS, CAPACITY, BLOCK_SIZE = 8, 32, 4


def run(pair: Pair, fused: bool, mesh: jax.sharding.Mesh | None = None) -> Generation:
    """The answers of one loop, on one device or split over the mesh."""
    kernel = default_kernel() if mesh is None else split_kernel(default_kernel(), mesh)
    decoder = Decoder(pair if mesh is None else split_pair(pair, mesh), BLOCK_SIZE, len(PROMPTS), CAPACITY, kernel=kernel)
    if fused:
        return generate_fused(compile_fused(decoder, 8, NEW_TOKENS), PROMPTS, NEW_TOKENS)
    return generate(decoder, PROMPTS, NEW_TOKENS)


def main() -> None:
    """Cases by number of KV heads: as many as devices (split), and fewer (whole on each)."""
    mesh = device_mesh(jax.devices())
    for num_kv_heads in map(int, sys.argv[1:]):
        sizes = {"num_heads": 8, "num_kv_heads": num_kv_heads, "vocab_size": 64}
        pair = random_pair(dataclasses.replace(TARGET, **sizes), dataclasses.replace(DRAFT, **sizes), seed=0)
        layer = split_pair(pair, mesh).target_params["layers"][0]
        alone = run(pair, fused=False)
        split = [run(pair, fused, mesh) for fused in (False, True)]
        case = {
            "num_kv_heads": num_kv_heads,
            "devices": mesh.shape[MESH_AXIS],
            "q_columns_each": layer["qkv"][0].addressable_shards[0].data.shape[1],
            "k_columns_each": layer["qkv"][1].addressable_shards[0].data.shape[1],
            "same_tokens": [result.tokens == alone.tokens for result in split],
            "same_counts": [result.committed == alone.committed for result in split],
        }
        sys.stdout.write(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
