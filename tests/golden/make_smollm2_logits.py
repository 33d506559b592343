"""Records what `transformers` computes on the converted SmolLM2 folder: run in an environment with torch and transformers.

    python tests/golden/make_smollm2_logits.py FOLDER

FOLDER is what `decoding.embedded.smollm2_folder()` returns. The result, smollm2_logits.json, holds for each prompt its token
ids, a sample of the last position's logits, and the greedy continuation in float32.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    "What is the capital of France?",
    "Natalia sold clips to 48 of her friends in April, and then half as many in May. How many clips did she sell altogether?",
    "Write a Python function that returns the factorial of n.",
    "Tell me a short story about a lighthouse.\n\nIt should end well — naïve, if you like: ½ cup of tea, 1234 waves.",
    "List three uses of a paper clip.",
]
NUM_TOKENS = 32
STRIDE = 256


def main() -> None:
    """Write the golden file beside this script."""
    folder = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for prompt in PROMPTS:
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
            output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_TOKENS, do_sample=False)
        rows.append(
            {
                "prompt": prompt,
                "text": text,
                "ids": ids[0].tolist(),
                "logits": [round(value, 5) for value in logits[::STRIDE].tolist()],
                "top": logits.topk(10).indices.tolist(),
                "continuation": output[0, ids.shape[1] :].tolist(),
            }
        )
    path = Path(__file__).with_name("smollm2_logits.json")
    path.write_text(
        json.dumps({"stride": STRIDE, "num_tokens": NUM_TOKENS, "rows": rows}, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
