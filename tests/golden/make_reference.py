"""Makes reference_*.json and reference_*.npz: what the PyPI package `dflash` computes on tiny random pairs.

Run with an interpreter that has torch (CPU), transformers, safetensors and dflash 0.1.0:  python make_reference.py [FOLDER [CASE …]]
The pairs are checkpoint folders in the published layouts, their weights drawn by NumPy's frozen legacy generator, so that the
test can write the very same folders without torch. All embeddings share a direction that a few rows of the head lean towards:
target and drafter then often choose among the same few tokens, and a random drafter is accepted often enough to be a test.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

BLOCK_SIZES = (1, 2, 4, 8, 16)
MAX_NEW_TOKENS = 48
LOGGED_BLOCK_SIZE = 8
LOGGED_STEPS = 6

QWEN3_TARGET = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "head_dim": 24, "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 512, "num_attention_heads": 4,
    "num_hidden_layers": 5, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "vocab_size": 128,
}  # fmt: skip
QWEN3_DRAFT = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "attention_bias": False, "block_size": 8,
    "dflash_config": {"mask_token_id": 127, "target_layer_ids": [3, 1]}, "head_dim": 24, "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 512, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "num_target_layers": 5, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "vocab_size": 128,
}  # fmt: skip
LLAMA_TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 512, "mlp_bias": False, "num_attention_heads": 4,
    "num_hidden_layers": 6, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 50000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "tie_word_embeddings": False, "vocab_size": 112,
}  # fmt: skip
LLAMA_DRAFT = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "attention_bias": False,
    "dflash_config": {"mask_token_id": 100, "block_size": 4}, "head_dim": 16, "hidden_act": "silu", "hidden_size": 64,
    "intermediate_size": 80, "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
    "num_key_value_heads": 4, "num_target_layers": 6, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": False, "vocab_size": 112,
}  # fmt: skip

WINDOWED_DRAFT = QWEN3_DRAFT | {
    "dflash_config": {
        "mask_token_id": 126, "block_size": 6, "input_embedding_scale": 0.75, "output_multiplier": 1.5,
        "final_logit_softcapping": 12.0,
    },
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "num_hidden_layers": 3,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0, "beta_slow": 0.5, "original_max_position_embeddings": 32,
    },
    "sliding_window": 7, "use_sliding_window": True,
}  # fmt: skip
DFLASH2_DRAFT = LLAMA_DRAFT | {
    "architectures": ["DFlash2DraftModel"],
    "dflash_config": {
        "mask_token_id": 100, "target_layer_ids": [4, 0, 2], "block_size": 8, "conv_kernel_size": 3, "conv_group_size": 8,
        "selector_rank": 12, "selector_top_k": 5, "input_embedding_scale": 1.25, "final_logit_softcapping": 20.0,
    },
    "is_causal": False, "layer_types": ["sliding_attention"] * 2, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "sliding_window": 9, "use_sliding_window": True,
}  # fmt: skip

CASES = {
    "qwen3": {"target": QWEN3_TARGET, "draft": QWEN3_DRAFT, "seed": 103, "favoured": 3, "lean": 8.0, "prompt_tokens": 13},
    "llama": {"target": LLAMA_TARGET, "draft": LLAMA_DRAFT, "seed": 157, "favoured": 8, "lean": 10.0, "prompt_tokens": 9},
    "windowed": {
        "target": QWEN3_TARGET, "draft": WINDOWED_DRAFT, "seed": 103, "draft_seed": 303, "favoured": 3, "lean": 8.0,
        "prompt_tokens": 21,
    },
    "dflash2": {
        "target": LLAMA_TARGET, "draft": DFLASH2_DRAFT, "seed": 157, "draft_seed": 232, "favoured": 8, "lean": 10.0,
        "prompt_tokens": 17,
    },
}  # fmt: skip


def target_shapes(config):
    """Shape of every tensor of a target, by its Hugging Face name."""
    d, v = config["hidden_size"], config["vocab_size"]
    shapes = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= layer_shapes(config, f"model.layers.{layer}.", config["model_type"] == "qwen3")
    return shapes if config["tie_word_embeddings"] else shapes | {"lm_head.weight": (v, d)}


def draft_shapes(config):
    """Shape of every tensor of a drafter, by its z-lab name."""
    d = config["hidden_size"]
    num_features = len(config["dflash_config"].get("target_layer_ids", range(config["num_hidden_layers"])))
    shapes = {"fc.weight": (d, num_features * d), "hidden_norm.weight": (d,), "norm.weight": (d,)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= layer_shapes(config, f"layers.{layer}.", True)
    return shapes | dflash2_shapes(config)


def dflash2_shapes(config):
    """Shapes of what DFlash 2 adds: two convolutions per layer and the candidate selector."""
    own, d, v = config["dflash_config"], config["hidden_size"], config["vocab_size"]
    if "selector_rank" not in own:
        return {}
    taps, rank = own["conv_kernel_size"], own["selector_rank"]
    conv = {"base_kernel": (2, taps, d), "kernel_projection.weight": (2 * taps * d // own["conv_group_size"], d)}
    shapes = {
        f"layers.{layer}.{name}.{part}": shape
        for layer in range(config["num_hidden_layers"])
        for name in ("attention_conv", "mlp_conv")
        for part, shape in conv.items()
    }
    selector = {"predecessor_codebook": (v, rank), "successor_codebook": (v, rank), "hidden_projection.weight": (rank, d)}
    return shapes | {f"candidate_selector.{name}": shape for name, shape in selector.items()}


def layer_shapes(config, prefix, qk_norm):
    """Shapes of one decoder layer."""
    d, f = config["hidden_size"], config["intermediate_size"]
    h = config.get("head_dim", d // config["num_attention_heads"])
    n, k = config["num_attention_heads"] * h, config["num_key_value_heads"] * h
    linears = {
        "self_attn.q_proj": (n, d), "self_attn.k_proj": (k, d), "self_attn.v_proj": (k, d), "self_attn.o_proj": (d, n),
        "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f),
    }  # fmt: skip
    norms = {"input_layernorm": (d,), "post_attention_layernorm": (d,)}
    if qk_norm:
        norms |= {"self_attn.q_norm": (h,), "self_attn.k_norm": (h,)}
    return {f"{prefix}{name}.weight": shape for name, shape in (linears | norms).items()}


def draw(shapes, seed, favoured=0, lean=0.0):
    """Tensors of these shapes: norms near 1, linear weights of unit gain.

    A target's embeddings share one direction, and the head's first `favoured` rows lean towards it.
    """
    generator = np.random.RandomState(seed)
    tensors = {}
    for name in sorted(shapes):
        shape = shapes[name]
        values = generator.standard_normal(shape)
        tensors[name] = 1 + 0.1 * values if len(shape) == 1 else values * (1.0 if "embed" in name else shape[-1] ** -0.5)
        if name.endswith("base_kernel"):
            tensors[name] = 0.3 * values + (np.arange(shape[1]) == 0)[:, None]  # mostly the slot itself
    if "model.embed_tokens.weight" in tensors:
        width = shapes["model.embed_tokens.weight"][1]
        shared = generator.standard_normal(width)
        tensors["model.embed_tokens.weight"] += shared
        head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        head[:favoured] += np.outer(lean * 0.9 ** np.arange(favoured), shared) / width
    return {name: values.astype(np.float32) for name, values in tensors.items()}


def write_pair(case, folder):
    """Write both checkpoints of a case; returns their folders."""
    target, draft = Path(folder) / "target", Path(folder) / "draft"
    target_tensors = draw(target_shapes(case["target"]), case["seed"], case["favoured"], case["lean"])
    for path, config, tensors in (
        (target, case["target"], target_tensors),
        (draft, case["draft"], draw(draft_shapes(case["draft"]), case.get("draft_seed", case["seed"] + 1000))),
    ):
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(config))
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return target, draft


def prompt_of(case, number=0):
    """A prompt of a case, token ids."""
    size = case["prompt_tokens"]
    return np.random.RandomState(case["seed"] + 2000 + number).randint(case["target"]["vocab_size"], size=size).tolist()


def reference_run(target, draft, prompt, block_size, stop_token_ids=None, log=None):
    """Tokens and committed counts of the reference; `log` gathers draft logits and target outputs of every call."""
    import torch
    from dflash.model import dflash_generate

    if log is not None:
        plain = draft.compute_logits
        draft.compute_logits = lambda hidden, head: log.setdefault("draft", []).append(plain(hidden, head)) or log["draft"][-1]
        handle = target.register_forward_hook(lambda module, args, output: log.setdefault("target", []).append(output))
    result = dflash_generate(
        draft, target, torch.tensor([prompt]), MAX_NEW_TOKENS, stop_token_ids, block_size=block_size, return_stats=True
    )
    if log is not None:
        handle.remove()
        draft.compute_logits = plain
    return result.output_ids[0, len(prompt) :].tolist(), list(result.acceptance_lengths)


def record(case):
    """The JSON document and the arrays of one case."""
    import dflash.model
    import torch
    import transformers

    dflash.model._cuda_time = lambda: 0.0  # the reference's clock waits for a GPU
    with tempfile.TemporaryDirectory() as folder:
        target_folder, draft_folder = write_pair(case, folder)
        target = transformers.AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float32).eval()
        architecture = getattr(dflash.model, case["draft"]["architectures"][0])
        draft = architecture.from_pretrained(draft_folder, dtype=torch.float32).eval()
    prompt = prompt_of(case)
    runs = {}
    for block_size in BLOCK_SIZES:
        tokens, committed = reference_run(target, draft, prompt, block_size)
        runs[str(block_size)] = {"tokens": tokens, "committed": committed}
    log = {}
    reference_run(target, draft, prompt, LOGGED_BLOCK_SIZE, log=log)
    _prefill, *verified = log["target"]
    with torch.inference_mode():
        whole = target(torch.tensor([prompt]), output_hidden_states=True)
    layer_ids = list(draft.target_layer_ids)
    gaps = [torch.topk(output.logits[0], 2).values.diff().abs().min().item() for output in log["target"]]
    draft_gaps = [torch.topk(logits[0], 2).values.diff().abs().min().item() for logits in log["draft"]]
    document = {
        "made_with": {"dflash": "0.1.0", "torch": torch.__version__, "transformers": transformers.__version__},
        "prompt": prompt,
        "max_new_tokens": MAX_NEW_TOKENS,
        "target_layer_ids": layer_ids,
        "runs": runs,
        "stopped": stopped_run(target, draft, case),
        "smallest_gap_of_best_two": min(gaps + draft_gaps),
    }
    arrays = {
        "features": torch.cat([whole.hidden_states[i + 1] for i in layer_ids], dim=-1)[0].numpy(),
        "prompt_logits": whole.logits[0].numpy(),
        "draft_logits": torch.cat(log["draft"][:LOGGED_STEPS]).numpy(),
        "verify_logits": torch.cat([output.logits for output in verified[:LOGGED_STEPS]]).numpy(),
    }
    return document, arrays


def stopped_run(target, draft, case):
    """A run that a stop token ends inside an accepted run, so that the run must be cut: the first prompt that has one."""
    for attempt in range(200):
        prompt = prompt_of(case, attempt + 1)
        tokens, committed = reference_run(target, draft, prompt, LOGGED_BLOCK_SIZE)
        at = 1
        for count in committed:
            for place in range(at, at + count - 1):
                if tokens[place] not in tokens[:place]:
                    stop = tokens[place]
                    tokens, committed = reference_run(target, draft, prompt, LOGGED_BLOCK_SIZE, stop_token_ids=[stop])
                    return {"prompt": prompt, "stop_token_id": stop, "tokens": tokens, "committed": committed}
            at += count
    raise SystemExit("no prompt has a token to stop at inside an accepted run: change the seed")


def main():
    """Write both files of every case."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, case in CASES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        document, arrays = record(case)
        (folder / f"reference_{name}.json").write_text(json.dumps(document) + "\n")
        np.savez_compressed(folder / f"reference_{name}.npz", **arrays)
        committed = {k: run["committed"] for k, run in document["runs"].items()}
        print(name, committed, "smallest gap", document["smallest_gap_of_best_two"])


if __name__ == "__main__":
    main()
