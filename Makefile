# `make demo` on a bare machine makes the environment first; see `make help`.
PYTHON ?= python3
BIN := .venv/bin
# KIND=cpu or KIND=gpu overrides what set-up finds on this machine.
SETUP := $(PYTHON) .ci/setup_env.py $(if $(KIND),--kind $(KIND))
# For the program behind a target: make demo ARGS="--report report.json"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo up test check bench faults docs lock

help:  ## List these targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | awk -F '\t' '{printf "  make %-8s %s\n", $$1, $$2}'

setup:  ## Make or refresh .venv from the hash-locked requirements
	@$(SETUP)

demo: setup  ## Watch four tenants' summarization jobs run (ARGS="--report FILE" writes the figures)
	@$(BIN)/lorry demo $(ARGS)

up: setup  ## Run the whole stack here until Ctrl-C
	@$(BIN)/lorry up $(ARGS)

test: check  ## Everything that has to pass: the checks, then all tests (ARGS="-k name" selects)
	$(BIN)/python -m pytest $(ARGS)

check: setup  ## Lint, types, import law, sizes
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy .ci/setup_env.py .ci/check_size.py
	$(BIN)/lint-imports
	$(BIN)/python .ci/check_size.py

bench: setup  ## Run the benchmarks; updates docs/benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

faults: setup  ## Kill everything 200 times under load, half an hour; updates docs/reliability.md
	$(BIN)/python -m tests.faults.long --json docs/reliability.json $(ARGS)
	$(BIN)/python -m tests.faults.page

docs: setup  ## Check that the documentation lists every setting, state and error code
	$(BIN)/python -m pytest tests/docs $(ARGS)

lock:  ## Resolve requirements/*.txt anew from pyproject.toml (maintainers; needs uv)
	@.ci/lock.sh
