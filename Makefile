# All targets share one virtual environment, made by the first of them.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# The runs whose tables are made: every committed one.
RUN ?= $(patsubst %/,%,$(dir $(wildcard results/reference/*/run.json results/reference/*/kit.json)))
LIMIT ?= 25
METHODS ?= llada,llada/2,fef-2,fef-4
# What the gate holds the decoders to, and the revision it measures speed against: the one that made these records.
GOLDEN := results/golden/nano
GATE_METHODS := llada,llada/2,ssd,dcd,entropy,fef-2,fef-fast,fef-two-stream
BASE ?= $(shell git rev-list -1 HEAD -- $(GOLDEN))

GPU ?= results/runs/gpu

# The versions in constraints.txt were tried with this Python; with another one pip chooses.
TRIED := 3.11
# One process a core; threads that wait must not spin, or they take the other processes' time.
PYTEST := OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -q

.PHONY: run test test-all test-slurm parity check tables gate gate-run golden gpu clean

run: $(VENV)/.installed
	$(BIN)/python harness/run.py --suite gsm8k,math,humaneval,mbpp --methods $(METHODS) --limit $(LIMIT) --trace

# The tests that take seconds.
test: $(VENV)/.installed
	$(PYTEST) -n logical -m "not slow and not long"

# Every test; those that measure speed have the machine to themselves.
test-all: $(VENV)/.installed
	$(PYTEST) -n logical -m "not alone and not long" --durations=10
	$(PYTEST) -m alone --durations=10

# The batch script, and OpenCompass's Slurm runner, on a Slurm of two nodes on this machine; needs root and Debian.
test-slurm: $(VENV)/.installed
	$(PYTEST) -m "long" tests/cluster/slurm

# Our decoders against all tokens that official code wrote on nano (docs/parity.md); test-all has 3 of 40 problems.
parity: $(VENV)/.installed
	$(PYTEST) -n logical -m "long" tests/official

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

tables: $(VENV)/.installed
	$(BIN)/python tables/render.py $(RUN) --paper --pdf

gate: gate-run
	$(BIN)/python harness/gate.py results/runs/gate --against $(GOLDEN) --against-rev $(BASE) --items 2

golden: gate-run
	$(BIN)/python harness/gate.py results/runs/gate --against $(GOLDEN) --update

gate-run: $(VENV)/.installed
	rm -rf results/runs/gate
	$(BIN)/python harness/run.py --methods $(GATE_METHODS) --limit 15 --threads 2 --out results/runs/gate

# What a machine with one GPU measures, without OpenCompass: with the environment here, or else with $(PYTHON) as it is.
# Not installed there, the packages are found from here.
gpu: ANY := PYTHONPATH=. $(or $(wildcard $(BIN)/python),$(PYTHON))
gpu:
	$(ANY) harness/gpu.py --out $(GPU)
	$(ANY) tables/render.py $(GPU)

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(TRIED)")' \
	    && constraint="--constraint constraints.txt"; \
	    $(BIN)/python -m pip install --quiet $$constraint --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
