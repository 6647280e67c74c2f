# All targets share one virtual environment, made by the first of them.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# The runs whose tables are made: every committed one.
RUN ?= $(patsubst %/,%,$(dir $(wildcard results/reference/*/run.json)))
SAMPLED := $(patsubst %/,%,$(dir $(wildcard results/reference/samples-*/run.json)))
LIMIT ?= 15
METHODS ?= llada,llada/2,threshold,fef-2,fef-two-stream
# What the gate holds the decoders to, and the revision it measures speed against: the one that made these records.
GOLDEN := results/golden/nano
GATE_METHODS := llada,llada/2,ssd,dcd,entropy,fef-2,fef-fast,fef-two-stream
BASE ?= $(shell git rev-list -1 HEAD -- $(GOLDEN))
# How much it does: items a suite that are decoded, of the golden records' 15; items a suite that are timed, and methods.
FIRST ?= 15
ITEMS ?= 2
TIMED ?= $(GATE_METHODS)

GPU ?= results/runs/gpu.json
# At night, where it can be had.
DOCKER := $(if $(shell docker info >/dev/null 2>&1 && echo yes),docker,no-docker)
SLURM := $(if $(and $(filter root,$(shell whoami)),$(wildcard /etc/debian_version)),test-slurm,no-slurm)
# The site, whose packages come from PyPI; DOCS= leaves it out.
DOCS ?= docs

# The versions in constraints.txt were tried with these Pythons; with another one pip chooses. Compiling all modules of
# all packages takes as long as the rest; Python compiles those that are imported.
TRIED := 3.11 3.12
INSTALL = $(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in "$(TRIED)".split())' \
    && constraint="--constraint constraints.txt"; \
    $(BIN)/python -m pip install --quiet --no-compile $$constraint --editable
# One process a core; threads that wait must not spin, or they take the other processes' time.
PYTEST := OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -q

.PHONY: run test test-all test-slurm parity audit nightly no-slurm docker no-docker docs check tables gpu clean \
    gate gate-batch gate-blocks gate-run blocks-run golden golden-blocks
.NOTPARALLEL: # each target takes all cores, and the gate measures speed

run: $(VENV)/.installed
	$(BIN)/python harness/run.py --suite gsm8k,math,humaneval,mbpp --methods $(METHODS) --limit $(LIMIT) --trace \
	    $(if $(THREADS),--threads $(THREADS))

# The tests of every change: those that take seconds.
test: $(VENV)/.installed
	$(PYTEST) -n logical --dist loadfile --no-loadscope-reorder -m "not slow and not long"

# Every test but the longest, with ten times the examples; those that measure speed or start nodes run by themselves.
test-all: $(VENV)/.installed
	$(PYTEST) -n logical --dist worksteal -m "not alone and not long" --durations=10 --hypothesis-profile=nightly
	$(PYTEST) -m alone --durations=10

# The batch script, and OpenCompass's Slurm runner, on a Slurm of two nodes on this machine; needs root and Debian.
test-slurm: $(VENV)/.installed
	$(PYTEST) -m "long" tests/cluster/slurm

# Our decoders against all tokens that official code wrote on nano (docs/parity.md); make test has some.
parity: $(VENV)/.installed
	$(PYTEST) -n logical tests/official

# The decoders' exact output laws.
audit: $(VENV)/.installed
	$(BIN)/python -m harness.audit --sections law,lemma,chains

# What .ci/run has no time for: run it on a machine that does nothing else. With --keep-going one failure hides no other.
nightly: test-all audit parity gate gate-batch gate-blocks $(SLURM) $(DOCKER) $(DOCS)

no-slurm:
	@echo "test-slurm is skipped: it needs root and Debian"

# The image of docs/install.md, without CUDA, and one problem in it.
docker:
	docker build --tag fef-dllm --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu .
	docker run --rm fef-dllm run --suite humaneval --methods llada --limit 1

no-docker:
	@echo "docker is skipped: it does not run here"

# The pages as a site with search and the API; any warning is an error. The theme is maintained until May 2027, and says
# at each build that Zensical succeeds it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the site is in site/; for its search: $(PYTHON) -m http.server --directory site"

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# Runs of several samples, one for each temperature, have one figure. A goal of the claims is not shown, which ends
# their command with 1.
tables: $(VENV)/.installed
	$(BIN)/python tables/render.py $(RUN) --paper --measures --pdf
	$(if $(SAMPLED),$(BIN)/python tables/figures.py --out $(firstword $(SAMPLED))/figures --pass-at-k $(SAMPLED))
	$(BIN)/python tables/claims.py results/reference/claims.toml || test $$? = 1

gate: gate-run
	$(BIN)/python harness/gate.py results/runs/gate --against $(GOLDEN) --first $(FIRST) \
	    --against-rev $(BASE) --items $(ITEMS) --methods $(TIMED)

# The same records from eight responses at once.
gate-batch: $(VENV)/.installed
	rm -rf results/runs/gate-batch
	$(BIN)/python harness/run.py --methods $(GATE_METHODS) --limit $(FIRST) --threads 2 --batch 8 \
	    --out results/runs/gate-batch
	$(BIN)/python harness/gate.py results/runs/gate-batch --against $(GOLDEN) --first $(FIRST)

# A block model, prompts of several hundred tokens, and an order that is drawn.
gate-blocks: blocks-run
	$(BIN)/python harness/gate.py results/runs/gate-blocks --against results/golden/blocks

blocks-run: $(VENV)/.installed
	rm -rf results/runs/gate-blocks
	$(BIN)/python harness/run.py --model nano-block --suite gsm8k-4shot,lists --limit 2 --threads 2 --untimed \
	    --methods "llada; llada(remasking=random); threshold; block; s2d2; fef-2; fef-two-stream" \
	    --out results/runs/gate-blocks

# New golden records; git diff says what changed.
golden-blocks: blocks-run
	cp results/runs/gate-blocks/run.json results/runs/gate-blocks/items.jsonl results/golden/blocks

golden: gate-run
	cp results/runs/gate/run.json results/runs/gate/items.jsonl $(GOLDEN)

# Tokens, costs and verdicts are compared, and no seconds: warming up would take as long as the responses.
gate-run: $(VENV)/.installed
	rm -rf results/runs/gate
	$(BIN)/python harness/run.py --methods $(GATE_METHODS) --limit $(FIRST) --threads 2 --untimed \
	    --out results/runs/gate

# What a machine with one GPU measures, without OpenCompass: with the environment here, or else with $(PYTHON) as it is.
# Not installed there, the packages are found from here.
gpu: ANY := PYTHONPATH=. $(or $(wildcard $(BIN)/python),$(PYTHON))
gpu:
	mkdir -p $(dir $(GPU))
	$(ANY) -m harness.bench --gpu --out $(GPU)

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "installing into $(VENV): 2.3 GB, some 3 minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(INSTALL) ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	@echo "installing what the site is made with into $(VENV): 110 MB"
	$(INSTALL) ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) site .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
