# Every target works from a fresh clone with nothing but Python 3.11+ and make.
# The system's own Python before another one on the PATH: distributions optimize theirs, pyenv does not unless it
# is told to. With three replicas a small synchronous record took a third more CPU on pyenv's than on Debian's.
PYTHON ?= $(shell for each in /usr/bin/python3 python3; do \
	"$$each" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; done; echo "$$each")
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEED ?=
FUZZ_RUNS ?= 10000000
SOAK_ENV := TIDELOG_SOAK=1
TEST_PROCESSES ?= 3  # for two cores: one of them waits for most of the time

.PHONY: setup demo run test soak check bench sim fuzz clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tidelog needs Python 3.11 or newer; try: make PYTHON=python3.12 setup"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,spark]'
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -c 'from tidelog.spark.java import find_java; find_java()'
	@touch $(STAMP)

demo: setup
	$(BIN)/tidelog demo

run: setup
	$(BIN)/tidelog serve

test: setup
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

soak: setup
	$(SOAK_ENV) $(BIN)/python -m pytest -m soak

check: setup
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m bench

sim: setup
	TIDELOG_SEED=$(SEED) $(BIN)/python -m pytest tests/sim

fuzz: setup
	$(BIN)/python -m tests.fuzz --runs $(FUZZ_RUNS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
