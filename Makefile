# `make demo` and `make test` do all the set-up a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all check clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/etastar demo --out out/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

test-all: $(STAMP)
	$(BIN)/python -m pytest -n auto -m 'not gpu'

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) out build dist
