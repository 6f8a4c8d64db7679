# Type `make` for the list of targets. The work is done by scripts/setup.sh and scripts/test.sh.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup tools demo test check test-compiled test-spark test-spark-versions test-kills test-cluster-lake \
	test-simulation test-fronts test-api test-interpreted fuzz sim record-seeds homes chaos-tasks mutants lint format generate docs docs-site bench bench-spark bench-pipeline instructions wheel clean FORCE

VENV := .venv
PY := $(VENV)/bin/python
SOURCES := $(sort $(shell find src -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*'))

# The Python for .venv. If empty, the first of python3.11 and python3 that is new enough.
PYTHON ?=
export PYTHON

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Most tests wait for disks, sockets and processes most of the time, so several run at a time. ARGS=-n0 runs one at a time.
PARALLEL := -n 3 --dist loadscope

# Tests of the compiled packages that use no processes, sockets or disks.
PURE := $(addprefix tests/,cluster core dialects simulation/test_mutants.py testing wire)

# Tests of the interfaces that users see.
FRONTS := $(addprefix tests/,browser cli client conformance docs examples)

tools: $(VENV)/tools ## install the test dependencies: packages, redis-cli, Tarantool, tmux, openssl, curl, Chromium, valgrind

setup: ## create or update .venv with the penstock command and Spark
	+@$(MAKE) -j2 $(VENV)/core

demo: setup ## run the demo, with Spark if it is available; it ends with a table and a report
	@$(VENV)/bin/penstock demo

test: ## build, lint and run all tests, compiled and interpreted
	+@scripts/test.sh

check: lint ## two minutes: lint, house rules, generated files, and the tests of the pure packages on the source
	@PYTHONPATH=src PENSTOCK_EXPECT=interpreted $(PY) -m pytest -q tests/test_house_rules.py tests/test_prose.py \
		tests/test_generated_code.py tests/docs/test_generated.py $(PURE) $(ARGS)

test-compiled: tools setup ## run the tests on the installed, compiled package (ARGS="-k name" is passed to pytest)
	@env -u PYTHONPATH PENSTOCK_EXPECT=compiled $(PY) -m pytest $(PARALLEL) $(addprefix --ignore=,tests/spark tests/simulation $(FRONTS)) $(ARGS)

test-spark: tools setup ## run the tests that need Spark (ARGS as above)
	@env -u PYTHONPATH $(PY) -m pytest tests/spark $(ARGS)

test-spark-versions: tools setup ## run them with VERSIONS="4.0 4.1 4.2 4.3" of Spark, and kill its processes at every point
	@scripts/test_spark_versions.sh $(or $(VERSIONS),4.0 4.1 4.2 4.3) -- $(ARGS)

test-kills: tools setup ## kill a pipeline at every step of a turn and of a compaction, on a disk and on S3 (ARGS as above)
	@env -u PYTHONPATH PENSTOCK_KILLS=1 $(PY) -m pytest tests/spark/test_pipeline_kills.py $(ARGS)

test-cluster-lake: tools setup ## run the pipeline on a Spark cluster that shares only an S3 bucket, with speculation
	@env -u PYTHONPATH PENSTOCK_CLUSTER_LAKE=1 $(PY) -m pytest tests/spark/test_cluster_lake.py $(ARGS)

test-simulation: tools setup ## run a few simulated clusters; `make sim` runs many
	@env -u PYTHONPATH $(PY) -m pytest tests/simulation $(ARGS)

test-fronts: tools setup ## run the tests of the CLI, the clients, the docs and the browser, and the conformance tests
	@env -u PYTHONPATH $(PY) -m pytest $(PARALLEL) $(FRONTS) $(ARGS)

test-api: tools setup ## test the HTTP API with many more requests of its document, and 10,000 open streams
	@env -u PYTHONPATH PENSTOCK_API_EXAMPLES=100 PENSTOCK_API_STREAMS=10000 $(PY) -m pytest tests/web $(ARGS)

test-interpreted: $(VENV)/tools ## run the tests of the pure packages without compiling (ARGS=tests runs all tests)
	@PYTHONPATH=src PENSTOCK_EXPECT=interpreted $(PY) -m pytest $(or $(ARGS),$(PURE))

fuzz: $(VENV)/tools ## fuzz each target for SECONDS=60; failing inputs are stored in tests/data/corpus
	@PYTHONPATH=src:. $(PY) -m tests.fuzz $(or $(SECONDS),60)

sim: tools setup ## simulate SEEDS=1000 clusters from SEED=1 on, with WORKLOAD=disque or tubes and one process per core
	@$(VENV)/bin/penstock sim --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1000) --workers 0 \
		--set workload=$(or $(WORKLOAD),disque)

record-seeds: tools setup ## simulate SEEDS=20000 clusters and record them in tests/simulation/runs.tsv; can be interrupted
	@env -u PYTHONPATH $(PY) -m tests.simulation.record --workload $(or $(WORKLOAD),tubes) --seed $(or $(SEED),1) \
		--seeds $(or $(SEEDS),20000) --workers $(or $(WORKERS),0) $(if $(SINCE),--since $(SINCE))

homes: tools setup ## use the tubes of a cluster while its nodes are killed, with JOBS=5000 per tube
	@env -u PYTHONPATH PENSTOCK_HOMES_JOBS=$(or $(JOBS),5000) $(PY) -m pytest tests/server/peers/test_killed_homes.py $(ARGS)

chaos-tasks: tools setup ## kill workers and the server at random moments, for ROUNDS=20 from SEED=1 on
	@env -u PYTHONPATH ROUNDS=$(or $(ROUNDS),20) SEED=$(or $(SEED),1) $(PY) -m tests.tasks.chaos

mutants: $(VENV)/tools ## plant each known bug in turn and check that the simulation finds it
	@PYTHONPATH=src:. $(PY) -m tests.simulation.mutants

# What works on Windows: queues in memory, and the clients.
ON_WINDOWS := $(addprefix src/penstock/,__init__.py opening.py embedded.py embedded_async.py client compat core tasks/app.py)

lint: $(VENV)/tools ## check style and types, for Linux and macOS, and for Windows what works there
	@failed=0; \
	$(PY) -m ruff check --quiet || failed=1; \
	$(PY) -m ruff format --check || failed=1; \
	$(PY) -m mypy || failed=1; \
	$(PY) -m mypy --platform darwin --cache-dir .mypy_cache/darwin || failed=1; \
	$(PY) -m mypy --platform win32 --cache-dir .mypy_cache/win32 $(ON_WINDOWS) || failed=1; \
	exit $$failed

generate: $(VENV)/tools ## generate the synchronous modules from the asyncio ones
	@$(PY) scripts/generate_sync.py

format: generate ## format the source
	@$(PY) -m ruff check --fix --quiet
	@$(PY) -m ruff format --quiet

docs: $(VENV)/tools ## regenerate the generated parts of the documentation
	@PYTHONPATH=src:. $(PY) scripts/generate_docs.py

docs-site: tools ## build the documentation site into build/site; broken links and anchors fail
	@PYTHONPATH=src $(PY) scripts/docs_site.py

bench: tools setup ## measure the speed
	@$(PY) -m bench

bench-pipeline: tools setup ## measure the pipeline on Spark for SIZES="1 10" million events
	@$(PY) -m bench.pipeline $(SIZES)

bench-spark: tools setup ## measure Spark with a running node (ARGS=--quick for a short run)
	@$(PY) -m bench.spark $(ARGS)

instructions: tools setup ## count the instructions per command, and compare them with the recorded ones (UPDATE=1 records)
	@env -u PYTHONPATH $(PY) -m bench.instructions $(if $(UPDATE),--update) $(if $(FILE),--file $(FILE))

wheel: $(VENV)/base ## build a wheel into dist/
	@scripts/setup.sh wheel

clean: ## remove everything that make created
	@rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The packages that build and run penstock. Updated when pyproject.toml changes.
$(VENV)/base: pyproject.toml scripts/setup.sh
	@scripts/setup.sh base
	@touch $@

# Spark is large, so it is installed while the wheel is built.
$(VENV)/spark: $(VENV)/base
	@scripts/setup.sh spark
	@touch $@

# The test dependencies. If they are installed, the simulator is compiled as well.
$(VENV)/tools: $(VENV)/spark
	@scripts/setup.sh tools
	@touch $@

$(VENV)/wheel: $(VENV)/base $(wildcard $(VENV)/tools) $(VENV)/sources setup.py $(SOURCES)
	@scripts/setup.sh wheel
	@touch $@

# The installed package. The file contains whether the core is compiled.
$(VENV)/core: $(VENV)/spark $(VENV)/wheel
	@scripts/setup.sh package

# The list of files is a prerequisite, so that a deleted source file also triggers a build.
$(VENV)/sources: $(VENV)/base FORCE
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@
