# Two commands for a newcomer: `make demo` shows it working, `make test` proves it.
# Both set up .venv themselves; all they need is Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif

.PHONY: demo test lint types unit clean help

help:
	@echo "make demo   set up, then see what real models do on Qualcomm's NPU compiler"
	@echo "make test   set up, then lint, types and every test"
	@echo "make clean  remove the environment and caches"

# The stamps are rebuilt when the dependencies change, not on every call.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hexport needs Python 3.11 or newer; try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[zoo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(VENV)/demo.stamp
	@$(BIN)/python -m hexport.cli.demo

test: lint types unit

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

unit: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
