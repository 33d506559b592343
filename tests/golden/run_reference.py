"""Decodes prompts with the PyPI package `dflash` 0.1.0: `run_reference.py TARGET DRAFT PROMPT_IDS.json OUT.json MAX_NEW_TOKENS K`.

Run with an interpreter that has torch (CPU), transformers and dflash. Writes what `perf capture --dump-tokens` writes: tokens (the
prefill's and any stop token included) and the counts committed per step, greedily, in float32.
"""

import json
import sys
from pathlib import Path


def main():
    """Decode every prompt and write the answers."""
    import dflash.model
    import torch
    import transformers

    dflash.model._cuda_time = lambda: 0.0  # the reference's clock waits for a GPU
    target_folder, draft_folder, prompts, out, max_new_tokens, block_size = sys.argv[1:]
    target = transformers.AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float32).eval()
    architecture = getattr(dflash.model, json.loads((Path(draft_folder) / "config.json").read_text())["architectures"][0])
    draft = architecture.from_pretrained(draft_folder, dtype=torch.float32).eval()
    stops = target.generation_config.eos_token_id
    stops = stops if isinstance(stops, list) or stops is None else [stops]
    answers = []
    for prompt in json.loads(Path(prompts).read_text()):
        result = dflash.model.dflash_generate(
            draft, target, torch.tensor([prompt]), int(max_new_tokens), stops, block_size=int(block_size), return_stats=True
        )
        tokens = result.output_ids[0, len(prompt) :].tolist()
        answers.append({"tokens": tokens, "committed": list(result.acceptance_lengths)})
    Path(out).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
