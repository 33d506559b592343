"""Checkpoints that a real vLLM serves on two cores: a random Qwen3 of 3.8 M weights and a random DFlash drafter for it.

A random target falls into a loop, which n-grams guess well; used as its own draft model it agrees with itself always; a random drafter
agrees with it next to never. The heads are 64 wide, as vLLM's CPU kernels want them; the tokenizer is that of the pair that ships.
"""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from decoding.pair import ASSETS

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD, VOCAB = 256, 768, 6, 4, 2, 64, 1024
FEATURE_LAYERS = (1, 2, 3)
BLOCK_SIZE = 8
END, MASK = 2, 3

Tensors = dict[str, np.ndarray]

COMMON = {
    "attention_bias": False,
    "eos_token_id": END,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 2048,
    "model_type": "qwen3",
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "vocab_size": VOCAB,
}


def make_pair(folder: Path) -> tuple[Path, Path]:
    """The folders of the target and of its drafter, written below `folder`."""
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (0.02 * random.standard_normal((rows, columns))).astype(np.float32)

    def layer(name: str) -> Tensors:
        widths = {"q_proj": (HEADS * HEAD, HIDDEN), "k_proj": (KV_HEADS * HEAD, HIDDEN), "v_proj": (KV_HEADS * HEAD, HIDDEN)}
        found = {f"{name}.self_attn.{part}.weight": matrix(*shape) for part, shape in widths.items()}
        found[f"{name}.self_attn.o_proj.weight"] = matrix(HIDDEN, HEADS * HEAD)
        found |= {f"{name}.self_attn.{part}.weight": np.ones(HEAD, np.float32) for part in ("q_norm", "k_norm")}
        found |= {f"{name}.mlp.{part}.weight": matrix(INNER, HIDDEN) for part in ("gate_proj", "up_proj")}
        found[f"{name}.mlp.down_proj.weight"] = matrix(HIDDEN, INNER)
        norms = ("input_layernorm", "post_attention_layernorm")
        return found | {f"{name}.{part}.weight": np.ones(HIDDEN, np.float32) for part in norms}

    target: Tensors = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN), "model.norm.weight": np.ones(HIDDEN, np.float32)}
    target["model.embed_tokens.weight"][END] = 0.0  # the head is tied to it: an answer never ends by itself
    for index in range(LAYERS):
        target |= layer(f"model.layers.{index}")
    draft: Tensors = {"fc.weight": matrix(HIDDEN, len(FEATURE_LAYERS) * HIDDEN)}
    draft |= {f"{name}.weight": np.ones(HIDDEN, np.float32) for name in ("hidden_norm", "norm")}
    draft |= layer("layers.0")
    documents = {
        "target": COMMON | {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": LAYERS, "tie_word_embeddings": True},
        "dflash": COMMON
        | {
            "architectures": ["DFlashDraftModel"],
            "block_size": BLOCK_SIZE,
            "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(FEATURE_LAYERS)},
            "layer_types": ["full_attention"],
            "num_hidden_layers": 1,
            "num_target_layers": LAYERS,
            "tie_word_embeddings": False,
        },
    }
    for (name, document), tensors in zip(documents.items(), (target, draft), strict=True):
        (folder / name).mkdir(parents=True)
        save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
        (folder / name / "config.json").write_text(json.dumps(document | {"torch_dtype": "float32"}, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ASSETS / "tiny" / name, folder / "target" / name)
    return folder / "target", folder / "dflash"
