# `make demo` and `make test` do all the set-up a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all test-browser test-cluster check clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/etastar demo --out out/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

test-all: $(STAMP)
	$(BIN)/python -m pytest -n auto -m 'not gpu and not cluster and not browser'
	$(BIN)/python -m pytest -m cluster
	$(BIN)/python -m pytest -m browser tests/browser

# the report in a real headless Chromium (Debian's package); without one it is skipped, and said
test-browser: $(STAMP)
	$(BIN)/python -m pytest -m browser tests/browser

# a real Ray and a real Slurm on this machine; what does not start is skipped, and said at the end
test-cluster: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,dev,ray,slurm]' \
	  || echo 'ray and submitit could not be installed'
	$(BIN)/python -m pytest -m 'cluster and not slow' tests/conformance tests/launch

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) out build dist
