# make demo   sets up .venv from the pinned lock and runs the demo
# make check  lint, types, import rules, unit tests: before every commit
# make test   sets up .venv and runs the test suite: each claim once, through real processes
# make compose  the tests of docker compose, where an engine answers
# make sglang the tests against the real SGLang on a CPU, installed once beside the checkout
# make test-all  all of these, and what takes minutes
# make gpu    .venv for a machine with GPUs, and SGLang in an environment of its own
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# `make gpu` leaves this file: the environment is for GPUs from then on, until `make clean`.
GPU := $(VENV)/.gpu
CONSTRAINTS := $(if $(wildcard $(GPU)),constraints-gpu.txt,constraints.txt)
TORCH := $(shell sed -n 's/^torch==//p' $(CONSTRAINTS))
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY := $(VENV)/.ready
# The tests of so many files run at a time; JOBS=0: one after another, in one process. Three keep two cores busy: tests
# wait for processes, peers and deadlines a third of the time.
JOBS ?= 3
CHAOS ?= runs/chaos.json
CHAOS_SEED ?= 1
CHAOS_TESTS := tests/chaos/failpoints/test_every_point.py tests/chaos/faults/test_other_faults.py
# Tests that start no processes: what else runs on the machine only makes them slower.
PURE := tests/unit tests/contract
COMPOSE := tests/e2e/compose
# Files in the order of the tree: the dearest, whole runs, are not left for the end.
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --numprocesses $(JOBS)
RUN ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)

# Idle OpenMP threads must sleep: spinning ones cost several services on few cores most of their time.
export OMP_WAIT_POLICY := PASSIVE
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false
# Images of Python set it; without byte code each process of a run, and each worker of pytest, compiles the tree anew.
unexport PYTHONDONTWRITEBYTECODE

AUDIT := build/audit
SBOM ?= build/sbom
# Outside of the checkout: 2.5 GB that all checkouts share.
SGLANG_VENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headrace/sglang-cpu
# For GPUs, with the libraries of CUDA.
SGLANG_GPU_VENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headrace/sglang-gpu

# What the real SGLang is tested in, and which of the tests with engines run.
SGLANG := tests/integration/sglang tests/chaos tests/e2e
ONLY ?= not alone

.PHONY: help demo gpu test chaos soak pure processes engines compose test-all long alone sglang sglang-venv docs check static lint types unit sizes proto audit sbom
.PHONY: generate lock clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## Train a tiny model to add two-digit numbers, in about three minutes after two of installing
	$(BIN)/headrace demo --run-dir $(RUN)

# Both environments have the torch of SGLang, hence one NCCL: with two, weights never go by it.
gpu: ## For a machine with GPUs: .venv with the torch of SGLang, and SGLang beside it (8 GB of wheels, once)
	@mkdir -p $(VENV) $(dir $(SGLANG_GPU_VENV))
	@test -e $(GPU) || touch $(GPU)
	$(MAKE) --no-print-directory $(READY)
	$(BIN)/python deploy/gpu/pins.py check
	PYTHON=$(PYTHON) deploy/gpu/install.sh $(SGLANG_GPU_VENV)
	@echo "SGLang is in $(SGLANG_GPU_VENV): --run.device cuda --rollout.engine sglang --rollout.sglang.venv $(SGLANG_GPU_VENV)"

# A part that fails says nothing about the next one: all of them run.
define each
	@TIMEFORMAT='== %R s; %U + %S s of the CPUs'; status=0; \
	for part in $(1); do echo "== make $$part"; time $(MAKE) --no-print-directory $$part || status=1; done; \
	exit $$status
endef

# Tests that fail beside others are repeated in a fresh process where REPEAT is set, as in continuous integration; the
# first that fails again ends it. Units are not repeated.
define repeated
$(1) -o cache_dir=.pytest_cache/$@ || { [ $$? = 1 ] && [ -n "$(REPEAT)" ] && echo "== REPEATED: what fails by itself, too, is a failure" && \
  $(1) -o cache_dir=.pytest_cache/$@ --last-failed --last-failed-no-failures none --numprocesses 0 --maxfail 1 -rfEp; }
endef

test: $(READY) ## Each claim once, through real processes; needs no Docker and no SGLang
ifdef TESTS
	$(PYTEST) $(TESTS)
else
	$(call each,pure processes)
endif

pure: $(READY)
	$(PYTEST) -m "not long" $(PURE)

processes: $(READY)
	$(call repeated,$(PYTEST) -m "not long and not sglang" $(addprefix --ignore=,$(PURE) $(COMPOSE)))

test-all: $(READY) ## Everything: also docker compose, the real SGLang and what takes minutes
	$(call each,static test engines long alone)

# Each waits for its containers or servers most of the time. Their output comes when they have ended, one after the other.
engines: $(READY) sglang-venv
	@$(MAKE) --no-print-directory --keep-going -j2 --output-sync=target compose sglang

compose: $(READY) ## The tests of docker compose, where an engine answers
	$(call repeated,$(BIN)/python -m pytest -m "$(ONLY)" $(COMPOSE))

sglang: $(READY) sglang-venv ## The tests against the real SGLang, which is installed once (two minutes, 2.5 GB)
	$(call repeated,HEADRACE_SGLANG_VENV=$(SGLANG_VENV) $(BIN)/python -m pytest -m "sglang and $(ONLY)" $(or $(TESTS),$(SGLANG)))

long: $(READY)
	$(PYTEST) -m "long and not alone and not sglang" --ignore=$(COMPOSE)

alone: $(READY)
	$(BIN)/python -m pytest -m alone

chaos: $(READY) ## Kill every service at every failpoint, inject other faults, write docs/reliability.md; up to 30 minutes, CHAOS_SEED=N
	@mkdir -p $(dir $(CHAOS))
	@rm -f $(CHAOS)
	HEADRACE_CHAOS=$(CHAOS) HEADRACE_CHAOS_SEED=$(CHAOS_SEED) $(BIN)/python -m pytest -s $(CHAOS_TESTS)
	$(BIN)/python -m tests.chaos.failpoints.report $(CHAOS)

soak: $(READY) ## A run of 25 minutes: memory, descriptors and threads of each process may not grow with its steps
	$(BIN)/python -m benchmarks.soak

sglang-venv:
	@mkdir -p $(dir $(SGLANG_VENV))
	deploy/sglang-cpu/install.sh $(SGLANG_VENV)

docs: $(READY) ## The documentation site, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: $(READY) ## Lint, types, import rules, tests of units and messages
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint types unit sizes

# `make check` without the tests of units, which are among those of `make test`.
static: $(READY)
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint types sizes

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(PYTEST) -q -m "not long" $(PURE) --ignore=tests/contract/test_streams.py

sizes: ## List files over 300 lines, fail on those over 500
	@git ls-files '*.py' '*.proto' | grep -v '^wire/v1/' | xargs wc -l | awk '$$2 != "total" && $$1 > 300 { print "long file: " $$2 " (" $$1 " lines)"; if ($$1 > 500) bad = 1 } END { exit bad }'

proto: $(READY) ## Write wire/v1 from proto/ anew
	$(BIN)/python proto/generate.py

generate: $(READY) ## Write every generated file anew: contracts, pages, dashboards, the page's types and the page
	$(BIN)/python generate.py
	@if command -v npm >/dev/null; then cd ui && npm ci && npm run types && npm run build; \
	else echo "There is no npm: the types of the page (ui/src/api/schema.ts) and the page itself are left as they are."; fi

lock: ## Pin what is installed in .venv
	@test ! -e $(GPU) || { echo "$(VENV) is for GPUs, constraints.txt is for CPUs: make clean first"; exit 1; }
	$(BIN)/python -m pip freeze --exclude-editable --exclude headrace | sed -E 's/^(torch==[0-9.]+).*/\1/' > constraints.txt
	$(BIN)/python deploy/gpu/pins.py constraints constraints.txt > constraints-gpu.txt

# The tools have an environment of their own: they audit .venv and are not part of it.
$(AUDIT)/bin/pip-audit: Makefile
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip --disable-pip-version-check install -q pip-audit==2.10.1 cyclonedx-bom==7.5.0
	@touch $@

sbom: $(READY) $(AUDIT)/bin/pip-audit ## Bills of materials (CycloneDX) of .venv and of the pages, into build/sbom
	@mkdir -p $(SBOM)
	$(AUDIT)/bin/cyclonedx-py environment --output-reproducible --output-file $(SBOM)/python.json $(BIN)/python
	npm --prefix ui sbom --sbom-format cyclonedx --package-lock-only > $(SBOM)/ui.json

# --strict: what cannot be looked up is an error, and not a package without known vulnerabilities.
audit: sbom ## Known vulnerabilities of every pinned package, and the bills of materials; asks pypi.org and npmjs.org
	@status=0; \
	for pins in constraints.txt constraints-gpu.txt; do \
		$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off -r $$pins || status=1; \
	done; \
	npm --prefix ui audit || status=1; \
	exit $$status

clean: ## Remove the environment and caches; runs stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

$(READY): pyproject.toml $(CONSTRAINTS) $(wildcard $(GPU))
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt-get install python3.11 python3.11-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: set PYTHON to 3.11 or newer"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "apt-get install python3-venv, then try again"; exit 1; }
	@if [ "$$(uname)" = Linux ] && [ ! -e /dev/nvidia0 ] && [ ! -e $(GPU) ] && ! $(BIN)/python -c 'import torch' 2>/dev/null && ! $(PIP) index versions torch 2>/dev/null | grep -q '+cpu'; then \
	  echo "Note: pip knows no CPU build of torch here and will take the CUDA build (several GB)."; \
	  echo "For the small one, set PIP_EXTRA_INDEX_URL to PyTorch's public CPU wheel index (pytorch.org, Start Locally, Compute Platform: CPU)."; fi
	@echo "== torch, 200 MB where pip knows the build for CPUs: about a minute"
	$(PIP) install --progress-bar on torch==$(TORCH)
	@echo "== the other packages: about a minute"
	$(PIP) install --progress-bar on -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@
