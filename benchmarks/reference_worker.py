"""The PyPI package `dflash` behind a pipe: one JSON request a line, one answer a line. Runs in an environment of its own.

    python reference_worker.py TARGET_FOLDER DRAFT_FOLDER NUM_THREADS

A request is `{"prompt": [ids], "block_size": K, "max_new_tokens": n, "stop": [ids]}`; block size 1 is the package's own plain loop, and
block size 0 is the `generate` of transformers, greedy.
"""

import json
import sys
import time


def main(target_folder: str, draft_folder: str, num_threads: str) -> None:
    """Load the pair and answer requests until the pipe closes."""
    import dflash.model
    import torch
    import transformers

    torch.set_num_threads(int(num_threads))
    dflash.model._cuda_time = time.perf_counter  # the package's clock waits for a GPU
    target = transformers.AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float32).eval()
    draft = dflash.model.DFlashDraftModel.from_pretrained(draft_folder, dtype=torch.float32).eval()
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        prompt = torch.tensor([request["prompt"]])
        with torch.inference_mode():
            answer = (
                generate(target, prompt, request) if request["block_size"] == 0 else speculate(draft, target, prompt, request)
            )
        print(json.dumps(answer), flush=True)


def speculate(draft, target, prompt, request):
    """The package's own loop; a decode time without the prefill, s."""
    import dflash.model

    result = dflash.model.dflash_generate(
        draft, target, prompt, request["max_new_tokens"], request["stop"], block_size=request["block_size"], return_stats=True
    )
    return {
        "tokens": result.output_ids[0, result.num_input_tokens :].tolist(),
        "committed": [int(count) for count in result.acceptance_lengths],
        "decode_s": result.time_per_output_token * result.num_output_tokens,
    }


def generate(target, prompt, request):
    """The `generate` of transformers. Its decode time is what a whole answer takes beyond an answer of one token, s."""
    seconds = []
    for num_tokens in (1, request["max_new_tokens"]):
        started = time.perf_counter()
        output = target.generate(
            prompt, max_new_tokens=num_tokens, do_sample=False, eos_token_id=request["stop"] or None, pad_token_id=0
        )
        seconds.append(time.perf_counter() - started)
    tokens = output[0, prompt.shape[1] :].tolist()
    return {"tokens": tokens, "committed": [1] * (len(tokens) - 1), "decode_s": seconds[1] - seconds[0]}


if __name__ == "__main__":
    main(*sys.argv[1:])
