# `make sweep` and `make test` do everything on a fresh machine: they make .venv, install pinned versions, and run.
# PYTHON chooses the interpreter; EXTRA=tpu or EXTRA=cuda adds a backend; ARGS is handed to the command.

VENV ?= .venv
EXTRA ?=
ARGS ?=
PERF := $(VENV)/bin/perf
STAMP := $(VENV)/.installed$(if $(EXTRA),-$(EXTRA))

.PHONY: sweep test test-slow test-vllm lint bench compile-matrix docs clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make sweep   run 'perf sweep-k --max 1024' on the embedded model and write an HTML report (under ten minutes)"
	@echo "make test    run the default test suite"
	@echo "make lint    ruff, mypy and the import floors"
	@echo "make bench   speed benchmarks: decoding beside the reference, reading traces beside XProf, prediction grids"
	@echo "make test-vllm        tests against a real vLLM server, in an environment of its own"
	@echo "make compile-matrix   compile the whole loop for every TPU generation (EXTRA=tpu; an hour or two)"
	@echo "make docs    regenerate docs/cli.md and docs/claims.md"

$(STAMP): pyproject.toml constraints.txt tools/venv.sh
	sh tools/venv.sh "$(VENV)" "$(EXTRA)"
	@touch "$@"

sweep: $(STAMP)
	$(PERF) sweep-k --max 1024 $(ARGS)

test: $(STAMP)
	$(VENV)/bin/python -m pytest -q -n auto --dist loadscope --cov=perfmodel --cov-report=term:skip-covered --cov-fail-under=95 $(ARGS)

test-slow: $(STAMP)
	$(VENV)/bin/python -m pytest -q -m slow $(ARGS)

# Real vLLM servers, in an environment of their own (2.5 GB).
test-vllm: $(STAMP)
	sh tools/vllm_env.sh .venv-vllm
	PERF_VLLM_PYTHON="$(CURDIR)/.venv-vllm/bin/python" $(VENV)/bin/python -m pytest -q -m vllm_cpu $(ARGS)

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(STAMP)
	$(VENV)/bin/python -m benchmarks.decode $(ARGS)
	$(VENV)/bin/python -m benchmarks.xplane
	$(VENV)/bin/python -m benchmarks.predict

compile-matrix: $(STAMP)
	$(VENV)/bin/python -m benchmarks.compile_matrix $(ARGS)

docs: $(STAMP)
	$(VENV)/bin/python -m perfcli.reference docs/cli.md
	$(VENV)/bin/python -m reports.claims docs

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
