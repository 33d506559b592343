"""A process of its own that asks XProf's converters: `python -P xprof_worker.py XPLANE TOOL…`, one JSON object on stdout.

XProf is native code that logs to stderr and may end the process on a damaged file; neither may reach the caller. A tool that gave
None, which is its way to fail, is null in the answer.
"""

import json
import os
import sys


def main() -> int:
    """Write tool → table; returns the exit status."""
    from xprof.convert.raw_to_tool_data import xspace_to_tool_data

    path, *tools = sys.argv[1:]
    answer = {}
    for tool in tools:
        data, _ = xspace_to_tool_data([path], tool, {"use_saved_result": False})
        answer[tool] = None if data is None else json.loads(data)
    with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(json.dumps(answer).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
