# Type `make` for the list of targets. The work is done by scripts/setup.sh and scripts/test.sh.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup tools demo test test-compiled test-spark test-simulation test-fronts test-interpreted fuzz sim homes mutants \
	lint format generate docs bench bench-spark bench-pipeline wheel clean FORCE

VENV := .venv
PY := $(VENV)/bin/python
SOURCES := $(sort $(shell find src -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*'))

# Names the Python to build .venv from; empty: the first of python3.11 and python3 that is new enough.
PYTHON ?=
export PYTHON

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What tests the compiled code most, and knows no process, socket or disk.
PURE := $(addprefix tests/,cluster core dialects simulation/test_mutants.py testing wire)

# What users have in their hands.
FRONTS := $(addprefix tests/,browser cli client conformance docs)

tools: $(VENV)/tools ## install what only the tests need: packages, redis-cli, Tarantool, tmux, openssl, Chromium

setup: ## make .venv with the penstock command and Spark in it; does only what changed
	+@$(MAKE) -j2 $(VENV)/core

demo: setup ## show the queue at work, with Spark if it is there: it ends with a table and a report
	@$(VENV)/bin/penstock demo

test: ## run everything: build, lint, the tests compiled and interpreted
	+@scripts/test.sh

test-compiled: tools setup ## run the tests on the compiled package, as a user gets it (ARGS="-k name" goes to pytest)
	@env -u PYTHONPATH PENSTOCK_EXPECT=compiled $(PY) -m pytest $(addprefix --ignore=,tests/spark tests/simulation $(FRONTS)) $(ARGS)

test-spark: tools setup ## run those that need Spark (ARGS as above)
	@env -u PYTHONPATH $(PY) -m pytest tests/spark $(ARGS)

test-simulation: tools setup ## run some seeds of simulated clusters; `make sim` runs many
	@env -u PYTHONPATH $(PY) -m pytest tests/simulation $(ARGS)

test-fronts: tools setup ## run those of the CLI, the clients and the docs, and the same scripts through every front
	@env -u PYTHONPATH $(PY) -m pytest $(FRONTS) $(ARGS)

test-interpreted: $(VENV)/tools ## run the tests of the pure parts on the source as it is (ARGS=tests: all of them)
	@PYTHONPATH=src PENSTOCK_EXPECT=interpreted $(PY) -m pytest $(or $(ARGS),$(PURE))

fuzz: $(VENV)/tools ## look for input that breaks a promise, SECONDS=60 a target; what is found is a file in tests/data/corpus
	@PYTHONPATH=src:. $(PY) -m tests.fuzz $(or $(SECONDS),60)

sim: tools setup ## simulate clusters, SEEDS=1000 of them from SEED=1 on, a process on each core
	@$(VENV)/bin/penstock sim --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1000) --workers 0

homes: tools setup ## use tubes of a cluster while its nodes are killed: JOBS=5000 a tube
	@env -u PYTHONPATH PENSTOCK_HOMES_JOBS=$(or $(JOBS),5000) $(PY) -m pytest tests/server/test_homes_under_fire.py $(ARGS)

mutants: $(VENV)/tools ## plant every known bug in turn, and see that each is caught
	@PYTHONPATH=src:. $(PY) -m tests.simulation.mutants

lint: $(VENV)/tools ## check style and types, the types for Linux and for macOS
	@failed=0; \
	$(PY) -m ruff check --quiet || failed=1; \
	$(PY) -m ruff format --check || failed=1; \
	$(PY) -m mypy || failed=1; \
	$(PY) -m mypy --platform darwin --cache-dir .mypy_cache/darwin || failed=1; \
	exit $$failed

generate: $(VENV)/tools ## write the modules for threads out of those for asyncio
	@$(PY) scripts/generate_sync.py

format: generate ## put the source into the house format
	@$(PY) -m ruff check --fix --quiet
	@$(PY) -m ruff format --quiet

docs: $(VENV)/tools ## write the generated parts of the documentation anew
	@PYTHONPATH=src:. $(PY) scripts/generate_docs.py

bench: tools setup ## measure the speed
	@$(PY) -m bench

bench-pipeline: tools setup ## measure the pipeline on Spark: SIZES="1 10", in millions of events
	@$(PY) -m bench.pipeline $(SIZES)

bench-spark: tools setup ## measure Spark against a live node (ARGS=--quick for the short form)
	@$(PY) -m bench.spark $(ARGS)

wheel: $(VENV)/base ## build a wheel into dist/
	@scripts/setup.sh wheel

clean: ## remove everything that make made
	@rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What builds and runs penstock. Again when pyproject.toml changes.
$(VENV)/base: pyproject.toml scripts/setup.sh
	@scripts/setup.sh base
	@touch $@

# Spark is large, so it is installed while the wheel is built.
$(VENV)/spark: $(VENV)/base
	@scripts/setup.sh spark
	@touch $@

# What only the tests need. Where it is, the simulator is compiled, too.
$(VENV)/tools: $(VENV)/spark
	@scripts/setup.sh tools
	@touch $@

$(VENV)/wheel: $(VENV)/base $(wildcard $(VENV)/tools) $(VENV)/sources setup.py $(SOURCES)
	@scripts/setup.sh wheel
	@touch $@

# The package, installed as a user gets it. The file says whether the core is compiled.
$(VENV)/core: $(VENV)/spark $(VENV)/wheel
	@scripts/setup.sh package

# A deleted file is newer than nothing, so the list of files is a prerequisite of its own.
$(VENV)/sources: $(VENV)/base FORCE
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@
