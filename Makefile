# Two commands do everything: `make lab` and `make test`. `make help` lists the rest.
# Each step leaves a stamp, so the second time only what changed is done again.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV    := .venv
BIN     := $(VENV)/bin
PYTHON  ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
PIP     := $(BIN)/python -m pip --disable-pip-version-check
BROWSER ?= yes
DEMO    ?= build/demo
PYTEST_ARGS ?=
JOBS    ?= 2
# Of pytest: one more than the cores, as tests of the browser leave a core idle for a third of their time.
WORKERS ?= 3
LAB_ARGS ?=

ENV_STAMP   := $(VENV)/.tbuda-env
NPM_STAMP   := labextension/node_modules/.tbuda-npm
FRONT_STAMP := build/.front-end
FRONT_SOURCES := $(shell find labextension/src labextension/style labextension/schema labextension/scripts -type f 2>/dev/null) \
                 $(wildcard labextension/*.json labextension/*.js labextension/*.mjs labextension/*.cjs labextension/*.ts)

# One BLAS thread: the numbers and the timings then depend less on the machine.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
# Compiled modules are kept where an environment forbids it, too: without them a worker of pytest takes 13 s longer to
# collect the tests, and each kernel and process of a test half a second to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help lab test check demo env front-end compiled browser lint types layers test-python test-front-end bench docs fuzz notebooks wheel clean distclean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

lab: front-end  ## open JupyterLab on the bring-up notebook
	@root=$$([ "$$(id -u)" = 0 ] && echo --allow-root || true)
	echo "== starting JupyterLab on notebooks/01_bring_up.ipynb: your browser opens; Ctrl+C here ends it"
	exec $(BIN)/jupyter lab $$root $(LAB_ARGS) notebooks/01_bring_up.ipynb

demo: front-end  ## the same bring-up in the terminal; writes build/demo/
	@$(BIN)/tbuda demo --out $(DEMO)

# First what pytest needs. Then pytest, and beside it the other checks, which give way to it. What the checks say is
# printed after the tests.
test:  ## everything: lint, types, layers, TypeScript, Python, the browser
	@failed=0; checks=$$(mktemp)
	$(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync=target browser front-end compiled
	nice $(MAKE) --no-print-directory --keep-going lint layers types test-front-end >$$checks 2>&1 & checking=$$!
	$(MAKE) --no-print-directory test-python || failed=1
	wait $$checking || failed=1
	cat $$checks; rm $$checks
	exit $$failed

# The tests that find most faults in little time: units, rules, small models through the whole pipeline.
CHECKED := tests/analysis tests/balancer tests/core tests/formats tests/graph tests/lowering tests/netlist tests/ops \
           tests/dialects tests/device tests/tti tests/cli tests/sim tests/session/test_edits.py \
           tests/pybuda/test_trainer.py tests/pybuda/test_face.py tests/test_tests.py

check: env  ## the fifth of the tests that finds most faults: run it before each commit
	@$(MAKE) --no-print-directory lint layers
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -q -m "not slow and not browser" $(CHECKED) $(PYTEST_ARGS)

# -- the parts of `make test` -------------------------------------------------------------------------------------
lint: env  ## ruff
	@echo "== ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .

types: env  ## mypy, strict
	@echo "== mypy"; $(BIN)/mypy

layers: env  ## import-linter: who may import whom
	@echo "== import-linter"; $(BIN)/lint-imports --no-logo

test-front-end: front-end  ## TypeScript: types, linter and unit tests
	@echo "== TypeScript"; cd labextension; npm run --silent check:test; npm run --silent lint; npm run --silent test

test-python: front-end  ## pytest with the slowest tests listed (PYTEST_ARGS=... to choose)
	@echo "== pytest"
	if [ "$(BROWSER)" = no ]; then set -- -m "not browser"; else set --; fi
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=1 "$$@" $(PYTEST_ARGS)

# -- setting up -----------------------------------------------------------------------------------------------------
env: $(ENV_STAMP)  ## the Python environment in .venv

$(ENV_STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is needed and none was found (set PYTHON=/path/to/python)" >&2; exit 1; fi
	if [ ! -x $(BIN)/python ]; then echo "== making $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); fi
	echo "== installing Python packages (torch is the largest: minutes on a slow line); what is fetched is listed"
	SKIP_JUPYTER_BUILDER=1 $(PIP) install --progress-bar off -c constraints.txt -e ".[lab,test,docs,dev]" | { grep --line-buffered -E '^(Collecting|Downloading|Installing|Successfully)' || true; }
	touch $@

$(NPM_STAMP): labextension/package.json labextension/package-lock.json
	@if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then echo "Node 20 or newer is needed to build the front end" >&2; exit 1; fi
	echo "== installing Node packages (about a minute)"
	cd labextension; npm ci --no-audit --no-fund --loglevel=error
	touch node_modules/.tbuda-npm

front-end: $(FRONT_STAMP)  ## build the widget bundle and the JupyterLab extension

$(FRONT_STAMP): $(ENV_STAMP) $(NPM_STAMP) $(FRONT_SOURCES)
	@echo "== building the front end (half a minute)"
	(cd labextension; PATH="$(abspath $(BIN)):$$PATH" npm run --silent build:prod)
	mkdir -p $(VENV)/share/jupyter/labextensions/@tbuda-lab build
	rm -rf $(VENV)/share/jupyter/labextensions/@tbuda-lab/labextension
	ln -s $(abspath tbuda_lab/labextension) $(VENV)/share/jupyter/labextensions/@tbuda-lab/labextension
	touch $@

# In a fresh clone each worker of pytest would compile the package and rewrite the assertions of 300 files for itself.
compiled: env
	@echo "== collecting the tests"; $(BIN)/python -m pytest --collect-only -qq -n 0 >/dev/null 2>&1 || true

browser:  ## Chromium for the browser test, from the distribution's packages where that is allowed
	@if [ "$(BROWSER)" = no ] || command -v chromium chromium-browser google-chrome >/dev/null; then exit 0; fi
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	  echo "== installing Chromium"
	  apt-get -qq update
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null
	else
	  echo "the browser test needs Chromium: install your distribution's package (Debian: sudo apt-get install chromium), or leave the test out with BROWSER=no" >&2
	  exit 1
	fi

# -- chores -----------------------------------------------------------------------------------------------------------
bench: env  ## print the tables of bench/README.md
	@for script in bench/compile_stages.py bench/executor.py bench/memory.py bench/rounding.py; do $(BIN)/python $$script; done

docs: env  ## the site of guide, recipes, reference and design, in build/site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	echo "build/site/index.html"

fuzz: env  ## attack every reader of files for long (FUZZ_ARGS="image --share 0.1" for less)
	@$(BIN)/python -W ignore -m tests.fuzz $(FUZZ_ARGS)

notebooks: front-end  ## run the notebooks and store their outputs
	@$(BIN)/python notebooks/render.py

wheel: front-end  ## a wheel with the built front end, in dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean:  ## remove what was built
	rm -rf build dist tbuda_lab/labextension labextension/lib .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f tbuda_lab/widgets/static/*.js tbuda_lab/widgets/static/*.css

distclean: clean  ## remove what was installed, too
	rm -rf $(VENV) labextension/node_modules
