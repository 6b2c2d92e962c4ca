# Everything a developer does here. Each target sets up what it needs, once.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.scrubjay-installed

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_ROOT_USER_ACTION = ignore

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format typecheck soak bench wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Made again when the dependencies may have changed; a stopped installation leaves no stamp.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Scrubjay needs Python 3.11 or newer on the PATH (or PYTHON=...)"; exit 1; }
	@echo "Setting up $(VENV); the first time takes a minute or two."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable ".[llm,postgres]" --group dev
	@touch $@

setup: $(STAMP) ## make .venv with Scrubjay and the tools in it

demo: $(STAMP) ## remember a bilingual conversation and answer a dozen questions about it
	@$(BIN)/python -m scrubjay.demo

lint: $(STAMP) ## ruff, mypy and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## everything that must hold before a commit; pytest's summary comes last
	$(BIN)/python -m pytest -m "not soak"

soak: $(STAMP) ## the long repetitions: kills, races, random users
	SCRUBJAY_SOAK=1 $(BIN)/python -m pytest -m soak --timeout=14400

format: $(STAMP) ## put imports and layout in order
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

bench: $(STAMP) ## speed, each figure beside its baseline from the same run
	$(BIN)/scrubjay bench

wheel: $(STAMP) ## build the wheel and try it in an environment of its own
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@set -eu; there=$$(mktemp -d); trap 'rm -rf "$$there"' EXIT; \
	echo "Installing $$(ls dist/*.whl) into an empty environment"; \
	$(PYTHON) -m venv "$$there/venv"; \
	"$$there/venv/bin/python" -m pip install --quiet dist/*.whl; \
	cd "$$there"; export PATH="$$there/venv/bin:$$PATH" SCRUBJAY_EMBEDDER=none; \
	scrubjay --version; \
	scrubjay add "The spare key is with Mira." --user ada --path store; \
	scrubjay search "spare key" --user ada --path store | tee found; \
	grep -q Mira found; \
	echo "The wheel installs, remembers and finds."

clean: ## remove what these targets made, .venv included
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
