# `make demo` and `make test` do all the set-up a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# the trackers' pins clash with ours: they write their logs in an interpreter of their own
TRACKERS := .venv-trackers
ETASTAR_TRACKERS_PYTHON ?= $(CURDIR)/$(TRACKERS)/bin/python

.PHONY: demo test test-all faults test-browser test-cluster test-trackers check docs clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/etastar demo --out out/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

test-all: $(STAMP)
	HYPOTHESIS_PROFILE=default $(BIN)/python -m pytest -n auto -m 'not gpu and not cluster and not trackers and not browser and not faults'
	$(BIN)/python -m pytest -m cluster
	$(BIN)/python -m pytest -m browser tests/browser
	ETASTAR_TRACKERS_PYTHON=$(ETASTAR_TRACKERS_PYTHON) $(BIN)/python -m pytest -m trackers

# every fault of tests/faults, counted; ETASTAR_FAULTS_* sets counts and seed, the table goes to docs/reliability.md
faults: $(STAMP)
	$(BIN)/python -m pytest -m faults -p no:cacheprovider tests/faults; found=$$?; \
	  $(BIN)/python -m tests.faults.report && exit $$found

# the report in a real headless Chromium (Debian's package); without one it is skipped, and said
test-browser: $(STAMP)
	$(BIN)/python -m pytest -m browser tests/browser

# a real Ray and a real Slurm on this machine; what does not start is skipped, and said at the end
test-cluster: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,dev,ray,slurm]' \
	  || echo 'ray and submitit could not be installed'
	$(BIN)/python -m pytest -m 'cluster and not slow' tests/conformance tests/launch

$(TRACKERS)/.installed: constraints-trackers.txt
	test -x $(TRACKERS)/bin/python || $(PYTHON) -m venv $(TRACKERS)
	$(TRACKERS)/bin/python -m pip install --quiet --constraint constraints-trackers.txt \
	  torch wandb tensorboard mlflow trackio transformers accelerate lightning
	touch $@

# logs written by the real wandb, tensorboard, mlflow, trackio, transformers and lightning, read by ours
test-trackers: $(STAMP)
	test -x $(ETASTAR_TRACKERS_PYTHON) && test ! -e $(TRACKERS) || $(MAKE) $(TRACKERS)/.installed \
	  || { rm -rf $(TRACKERS); echo 'the trackers could not be installed'; }
	ETASTAR_TRACKERS_PYTHON=$(ETASTAR_TRACKERS_PYTHON) $(BIN)/python -m pytest -m trackers tests/conformance tests/importers

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# the documentation as a site in out/site, then what holds of it: whole, nothing loaded from elsewhere, and every command
# that the pages show runs (a few minutes)
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,dev,docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	ETASTAR_SITE=out/site $(BIN)/python -m pytest -m slow tests/docs/test_site.py

clean:
	rm -rf $(VENV) $(TRACKERS) out build dist
