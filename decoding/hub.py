"""Checkpoints of the Hugging Face hub by id, where the machine is online: downloaded once into the hub's own cache.

Only what is read here is fetched: configurations, safetensors, the tokenizer and its chat template. A repository's code and pickles
stay where they are.
"""

import re
from pathlib import Path

from perfmodel.errors import InputError, UnsupportedError

SMALL_FILES = ("*.json", "*.jinja")
WEIGHT_FILES = ("*.safetensors",)
ELSEWHERE = ("*/*",)
"""Subfolders hold the same weights for other programs, as `original/` or `onnx/`; nothing in them is read here."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_id(name: str) -> bool:
    """Whether the name has the form of a hub id, `owner/model`, and is no path of this machine."""
    return bool(_HUB_ID.fullmatch(name)) and not Path(name).exists() and not Path(name).parent.is_dir()


def hub_folder(hub_id: str, with_weights: bool = True) -> Path:
    """The folder of the checkpoint in the hub's cache, fetched if need be; without its weights if they are not wanted.

    Raises:
        UnsupportedError: `huggingface_hub` is not installed, or the hub cannot be reached and its cache lacks something.
        InputError: no hub id, or the hub knows no such checkpoint, or does not give it to this user.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            FileMetadataError,
            GatedRepoError,
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )
    except ImportError as error:
        raise UnsupportedError(
            f"{hub_id} looks like a hub id, and huggingface_hub is not installed",
            "pip install 'dflash-perf[hub]', or give the folder of a downloaded checkpoint",
        ) from error
    # Which library carries its requests differs by version; its errors are what the hub's own are made of.
    transport_error: type[Exception] = HfHubHTTPError.__bases__[0]
    patterns = [*SMALL_FILES, *(WEIGHT_FILES if with_weights else ())]
    try:
        return Path(snapshot_download(hub_id, allow_patterns=patterns, ignore_patterns=list(ELSEWHERE)))
    except GatedRepoError as error:
        raise InputError(
            f"the hub does not give {hub_id} to everyone", "accept its terms there, and log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise InputError(
            f"the hub knows no model {hub_id}, or this user may not see it", "check the id; log in with `hf auth login`"
        ) from error
    except HFValidationError as error:
        raise InputError(f"{hub_id} cannot be a hub id", "ids read owner/model; or give the folder of a checkpoint") from error
    except LocalEntryNotFoundError as error:
        reason = error.__cause__ or error
        if isinstance(reason, (HfHubHTTPError, FileMetadataError)):
            raise _not_fetched(hub_id, reason) from error
        raise UnsupportedError(
            f"{hub_id} is not whole in the hub's cache, and the hub cannot be reached",
            "give the folder of a downloaded checkpoint",
        ) from error
    except (transport_error, OSError) as error:
        raise _not_fetched(hub_id, error) from error


def _not_fetched(hub_id: str, error: BaseException) -> UnsupportedError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return UnsupportedError(
        f"{hub_id} could not be fetched from the hub: {reason}", "try again; a file that is whole already is not fetched twice"
    )
