# Every target does its own set-up: all it needs is Python 3.11 or newer and make.
#   make reproduce   run the study at quick scale; open results/report.html
#   make serve       start a demo of the service with simulated visitors; open the address it prints
#   make test        run the tests
# Another interpreter: make test PYTHON=/path/to/python3.14

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One thing at a time: pip must not write to one environment from two targets at once.
.NOTPARALLEL:

PYTHON ?=
SCALE ?= quick
OUT ?= results
TEST_ARGS ?= -n 2
FUZZ_SECONDS ?= 60
BENCH_ARGS ?=
SERVE_ARGS ?=

# the newest that works
PYTHONS := $(or $(PYTHON),python3.15 python3.14 python3.13 python3.12 python3.11 python3 python)
VENV := .venv
BENCH_VENV := .venv-bench
# Python compiles the few modules that are imported when they are; pip would compile all of them.
PIP_INSTALL := -m pip --disable-pip-version-check -q install --no-compile
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests run side by side: threads of linear algebra would only get in each other's way. They start
# further processes, which need the byte code that pip did not write.
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(VENV)/bin/python -m pytest

.PHONY: help reproduce serve test test-all fuzz lint format bench docs clean

help:  ## say what the targets do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

reproduce: $(VENV)/.installed-run  ## reproduce the study (SCALE=quick|paper, OUT=results)
	$(VENV)/bin/zib reproduce --scale "$(SCALE)" --out "$(OUT)"

serve: $(VENV)/.installed-serve  ## a demo of the service with simulated visitors (SERVE_ARGS="--port 9000")
	@$(VENV)/bin/zib serve --demo $(SERVE_ARGS)

test: $(VENV)/.installed-test  ## run the tests, less the slow ones (TEST_ARGS="-k ucb")
	$(PYTEST) $(TEST_ARGS)

test-all: test $(VENV)/.installed-test-all  ## run the tests, then the slow ones
	$(PYTEST) -m slow $(TEST_ARGS)

fuzz: $(VENV)/.installed-test  ## fuzz with fresh seeds (FUZZ_SECONDS=60 a test, ZIB_FUZZ_SEED=1 to repeat)
	@seed=$${ZIB_FUZZ_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "ZIB_FUZZ_SEED=$$seed"; \
	ZIB_FUZZ_SEED=$$seed ZIB_FUZZ_SECONDS=$(FUZZ_SECONDS) \
	  $(PYTEST) -m "slow or not slow" tests/fuzz $(TEST_ARGS) \
	  || { echo "to repeat: make fuzz ZIB_FUZZ_SEED=$$seed" >&2; exit 1; }

lint: $(VENV)/.installed-dev  ## check style, types and the direction of imports
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/.installed-dev  ## rewrite the sources in house style
	$(VENV)/bin/python -m ruff check --fix .
	$(VENV)/bin/python -m ruff format .

bench: $(BENCH_VENV)/.installed  ## measure speed next to other libraries (BENCH_ARGS="--only online")
	$(BENCH_VENV)/bin/python -m benchmarks $(BENCH_ARGS)

docs: $(VENV)/.installed-docs  ## build the documentation into site/
	$(VENV)/bin/python -m mkdocs build --quiet

clean:  ## remove environments, caches and built files (results stay)
	rm -rf $(VENV) $(BENCH_VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache src/*.egg-info
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments. A stamp is younger than the two files it depends on, or the packages are renewed.

%/bin/python:
	@for candidate in $(PYTHONS); do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	      >/dev/null 2>&1; then \
	    echo "creating $* with $$("$$candidate" --version)"; \
	    "$$candidate" -m venv $*; \
	    exit 0; \
	  fi; \
	done; \
	echo "zib needs Python 3.11 or newer with the venv module; none of $(PYTHONS) is one." >&2; \
	echo "Name one yourself: make $(MAKECMDGOALS) PYTHON=/path/to/python3.14" >&2; \
	exit 1

.PRECIOUS: %/bin/python

$(VENV)/.installed-run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e ".[data]"
	@touch $@

$(VENV)/.installed-serve: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e ".[serve]"
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e ".[test]"
	@touch $@ $(VENV)/.installed-serve $(VENV)/.installed-run

$(VENV)/.installed-test-all: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e ".[test-all]"
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed-serve $(VENV)/.installed-run

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.installed-test-all $(VENV)/.installed-test $(VENV)/.installed-serve $(VENV)/.installed-run

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e ".[docs]"
	@touch $@

# A peer that does not install is left out, and the benchmark says why it is missing.
$(BENCH_VENV)/.installed: pyproject.toml constraints.txt benchmarks/peers.txt | $(BENCH_VENV)/bin/python
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e ".[data,dask,postgres,serve]"
	@grep -vE '^[[:space:]]*(#|$$)' benchmarks/peers.txt | while read -r peer; do \
	  $(BENCH_VENV)/bin/python $(PIP_INSTALL) --only-binary=:all: -c constraints.txt "$$peer" \
	    >$(BENCH_VENV)/pip.log 2>&1 </dev/null && echo "installed $$peer" \
	    || echo "left out $$peer: $$(grep -m1 ERROR $(BENCH_VENV)/pip.log || tail -n 1 $(BENCH_VENV)/pip.log)"; \
	done
	@touch $@
