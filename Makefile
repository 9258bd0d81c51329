# `make quickstart` and `make test` work on a fresh machine. `make help` lists all targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := data_stack plugins tests benchmarks getting_started tools
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
TYPED := data_stack $(PLUGINS) tests tools
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Each test file runs in one process, so that its tests share the servers they start. With more processes than cores, some wait
# while others compute.
PYTEST := $(BIN)/python -m pytest -q --numprocesses 4 --dist loadfile

# The tests start hundreds of interpreters, which would compile the package each time.
unexport PYTHONDONTWRITEBYTECODE

# Granular 0.21 writes sequences, which later versions do not; the tests need it beside the current version.
GRANULAR_021 = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/granular-0.21 granular==0.21.2

# Tests of TensorFlow and JAX, which only the environment of `make test-all` has.
FRAMEWORK_TESTS := tests/loader/test_loader_tensorflow.py tests/loader/test_loader_jax.py \
	tests/petastorm/test_petastorm_tensorflow.py
SPARK_FRAMEWORK_TESTS := tests/spark/test_spark_tensorflow.py

# TensorFlow without GPU kernels is half as large.
TENSORFLOW ?= tensorflow-cpu

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "data_stack needs Python 3.10 or newer: make PYTHON=python3.11")'

.PHONY: help quickstart test test-full test-all lint types unit bench docs notebooks api count clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: .venv-quickstart/.installed  ## load a dataset by name, print its report, write quickstart.png
	.venv-quickstart/bin/python getting_started/quickstart.py

test: lint types unit  ## ruff, mypy --strict and pytest: in minutes, before each commit

test-full: lint types $(VENV)/.installed  ## test with crashes, power cuts, full disks and a million damaged files: about two hours
	DATA_STACK_TESTS=full $(PYTEST)

lint: $(VENV)/.installed  ## ruff check and ruff format
	$(BIN)/ruff check $(CODE) setup.py
	$(BIN)/ruff format --check $(CODE) setup.py

types: $(VENV)/.installed  ## mypy --strict on package, plugins, tests and tools
	$(BIN)/mypy $(TYPED)

unit: $(VENV)/.installed  ## pytest only
	$(PYTEST)

test-all: test .venv-all/.installed  ## test, and the tests of TensorFlow and JAX in an environment of their own (2 GB)
	.venv-all/bin/python -m pytest -q --noconftest $(FRAMEWORK_TESTS)
	.venv-all/bin/python -m pytest -q --confcutdir=tests/spark $(SPARK_FRAMEWORK_TESTS)

bench: $(VENV)/.installed  ## run all benchmarks; benchmarks/README.md has figures and commands
	@for script in $(filter-out benchmarks/harness.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.installed  ## build the site with pages, notebooks and API reference in docs/_build/html
	$(BIN)/python tools/build_docs.py

notebooks: $(VENV)/.installed  ## run the notebooks and keep their output in them
	$(BIN)/python tools/run_notebooks.py

api: $(VENV)/.installed  ## write tests/public_api.txt, the public names; docs/stability.md says what a change of it means
	$(BIN)/python tools/public_api.py

count:  ## count lines of code per folder, without docstrings and comments; list long files and functions
	@$(PYTHON) tools/count_code.py data_stack plugins
	@$(PYTHON) tools/count_code.py --large data_stack plugins || true

clean:  ## remove the environments and all generated files
	rm -rf $(VENV) .venv-all .venv-quickstart .quickstart quickstart.png docs/_build build dist *.egg-info plugins/*/*.egg-info plugins/*/build \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is rebuilt when a version or requirement changes.
$(VENV)/.installed: Makefile constraints.txt setup.py pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(INSTALL) -e '.[dev]' $(addprefix -e ,$(PLUGINS))
	$(GRANULAR_021)
	touch $@

.venv-quickstart/.installed: Makefile constraints.txt setup.py pyproject.toml plugins/digits/pyproject.toml
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-quickstart
	.venv-quickstart/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[images]' -e 'plugins/digits[sklearn]'
	touch $@

# Without constraints.txt, because TensorFlow needs an older h5py.
.venv-all/.installed: Makefile setup.py pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-all
	.venv-all/bin/python -m pip install --quiet --disable-pip-version-check -e '.[images,jax,parquet]' -e plugins/petastorm -e plugins/spark \
		$(TENSORFLOW) 'pytest>=8.0' 'pytest-timeout>=2.3'
	touch $@
