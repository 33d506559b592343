"""Tokens from text: a checkpoint folder's `tokenizer.json` and chat template."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import jinja2
import jinja2.sandbox
import msgspec
from tokenizers import Tokenizer

from perfmodel.errors import InputError


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder. Raises `InputError` when it has none."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no tokenizer.json", "give the folder of a Hugging Face checkpoint")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception for every malformed file
        raise InputError(f"{path} is not a tokenizer: {error}", "the download may be incomplete") from error


def id_in(folder: Path) -> Callable[[str], int]:
    """What gives a special token's id in a checkpoint folder's vocabulary: a new one gets the first id behind it.

    So do the programs that drafters were trained with: they add a mask token to the target's tokenizer. Raises `InputError`.
    """

    def id_of(token: str) -> int:
        tokenizer = load_tokenizer(folder)
        tokenizer.add_special_tokens([token])
        found = tokenizer.token_to_id(token)
        if found is None:
            raise InputError(f"{token!r} cannot be a token of {folder}", "name the mask token, or give mask_token_id")
        return found

    return id_of


def tokenizer_config(folder: Path) -> dict:
    """The decoded `tokenizer_config.json`, or an empty dict where the folder has none."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not a JSON object: {error}", "the download may be incomplete") from error


def chat_template(folder: Path) -> str:
    """The chat template of a checkpoint folder: its own file, else the entry in `tokenizer_config.json`."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text: {error}", "the download may be incomplete") from error
    template = tokenizer_config(folder).get("chat_template")
    if not isinstance(template, str):
        raise InputError(f"{folder} has no chat template", "use a checkpoint of an instruction-tuned model")
    return template


def render_chat(folder: Path, messages: Sequence[dict[str, str]], **options: object) -> str:
    """The text a chat model reads before it answers: `messages` through the folder's template, opened for the assistant.

    `options` go to the template (for example `enable_thinking=False`).
    """
    names = {key: _content(value) for key, value in tokenizer_config(folder).items() if key.endswith("_token")}
    template = chat_template(folder)
    try:
        return _compiled(template).render(messages=list(messages), add_generation_prompt=True, **(names | options))
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise InputError(f"the chat template of {folder} fails: {error}", "check the template and the prompts' roles") from error


@functools.cache
def _compiled(template: str) -> jinja2.Template:
    # Templates come with checkpoints: run them in the sandbox.
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(template)


def _refuse(message: str) -> None:
    raise InputError(f"the chat template refuses these messages: {message}", "check the order of roles")


def _content(token: object) -> object:
    return token.get("content") if isinstance(token, dict) else token
