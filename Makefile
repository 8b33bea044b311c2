# A stamp in the environment records that it was made, so that this happens once; `make VENV=folder`
# puts it elsewhere, `make PYTHON=python3.12` makes it with another Python.

VENV ?= .venv
PYTHON ?= python3
# One more than two cores have room for: many tests wait for other processes, and for the disk.
PYTEST_WORKERS ?= 3
# One thread a worker: workers with all threads each would fight over the same cores.
PYTEST_THREADS ?= 1

BIN := $(VENV)/bin
# Python compiles a module when it is first imported; most of what is installed never is.
PIP_INSTALL = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
PYTEST = OMP_NUM_THREADS=$(PYTEST_THREADS) $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal
PYTHON_CHECK = import sys; sys.exit(None if sys.version_info >= (3, 10) else \
	"vgraph needs Python 3.10 or newer; $(PYTHON) is Python %d.%d\n" % sys.version_info[:2] + \
	"  cure: name a newer one, as in: make PYTHON=python3.12")

unexport PYTHONDONTWRITEBYTECODE  # hundreds of processes would compile the same modules, which takes most of an import

.DEFAULT_GOAL := help
ifndef IS_MADE  # what makes the environment runs alone; what only reads it need not
.NOTPARALLEL:
endif
.PHONY: help demo demo-distributed docs test lint types fast thorough campaign check-capture sanitize golden format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.made-for-demo  ## train a Tree-LSTM on the trees of Python's own standard library
	$(BIN)/vgraph train tree-lstm

# Where the data lies: yandex-research/heterophilous-graphs has the file.
TOLOKERS ?= ../shared/data/heterophilous/tolokers.npz

demo-distributed: $(VENV)/.made-for-demo  ## train a GCN on Tolokers, divided between two processes
	@test -f $(TOLOKERS) || { echo "there is no $(TOLOKERS)"; \
	echo "  cure: download tolokers.npz of yandex-research/heterophilous-graphs, make demo-distributed TOLOKERS=file"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 2 examples/gcn_distributed.py $(TOLOKERS) --epochs 60

test: $(VENV)/.made-for-test  ## the check of a change: lint, types, documentation, tests, examples, README, benchmarks
	$(MAKE) --jobs 2 IS_MADE=1 lint types docs fast

lint: $(VENV)/.made-for-test  ## style and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.made-for-test  ## strict types of vgraph/
	$(BIN)/basedpyright --pythonpath $(BIN)/python

fast: $(VENV)/.made-for-test  ## pytest alone, doctests included
	$(PYTEST) -m 'not thorough'

thorough: $(VENV)/.made-for-test  ## the tests that make test leaves out: all of each table of cases (nightly)
	$(PYTEST) -m thorough

docs: $(VENV)/.made-for-docs  ## build the documentation into docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --jobs 2 --builder html --doctree-dir docs/_build/doctrees docs docs/_build/html

campaign: $(VENV)/.made-for-test  ## every fuzzer in full, which takes hours; MINUTES=30 bounds it
	OMP_NUM_THREADS=$(PYTEST_THREADS) $(BIN)/python -m tests.campaign $(if $(MINUTES),--minutes $(MINUTES))

check-capture: $(VENV)/.made-for-test  ## the suite with every captured call recorded again and compared (nightly)
	VGRAPH_CAPTURE=check $(PYTEST)
	VGRAPH_CAPTURE=lookup $(PYTEST) tests/api tests/capture tests/graphs tests/nn

# Leaks are Python's own; compilers and their cache are tested without.
sanitize: $(VENV)/.made-for-test  ## tests of kernels that check their own memory and arithmetic (needs g++; nightly)
	CXX=g++ VGRAPH_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	$(PYTEST) --capture=sys tests/kernels tests/fusion tests/runtime tests/memory tests/scheduler tests/sampling \
	tests/api/test_vertex*.py --ignore=tests/fusion/test_build.py --ignore=tests/fusion/test_compilers.py

golden: $(VENV)/.made-for-test  ## rewrite tests/golden/ from what is printed now; read the diff
	$(PYTEST) --update-golden

format: $(VENV)/.made-for-test  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix --exit-zero --silent .
	$(BIN)/ruff format .

clean:  ## remove caches and build products; environments stay
	rm -rf build dist *.egg-info .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find vgraph kernels examples benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c '$(PYTHON_CHECK)'
	$(PYTHON) -m venv $(VENV)

# Order-only: the interpreter's own date says nothing about what is installed beside it.
$(VENV)/.made-for-demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[plot,metis]'
	@touch $@

$(VENV)/.made-for-test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[test]'
	@touch $(VENV)/.made-for-demo $(VENV)/.made-for-docs $@

$(VENV)/.made-for-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@
