# Everything on a fresh machine: `make quickstart` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := data_stack plugins tests benchmarks getting_started tools
TYPED := data_stack plugins/digits plugins/iris plugins/petastorm plugins/spark tests tools
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# A file of tests stays in one process, as do the servers that it starts.
PYTEST := $(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile

# The version of Granular that has sequences, for the tests, beside the one in the environment.
GRANULAR_021 = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/granular-0.21 granular==0.21.2

# Tests that are skipped without the package that they are about, which is in no other environment.
FRAMEWORK_TESTS := tests/loader/test_loader_tensorflow.py tests/loader/test_loader_jax.py \
	tests/petastorm/test_petastorm_tensorflow.py
SPARK_FRAMEWORK_TESTS := tests/spark/test_spark_tensorflow.py

# TensorFlow without the kernels for GPUs, where there is such a package: half as large.
TENSORFLOW ?= tensorflow-cpu

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "data_stack needs Python 3.10 or newer: make PYTHON=python3.11")'

.PHONY: help quickstart test test-full test-all lint types unit bench count clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: .venv-quickstart/.installed  ## load real data by name, print its report, write quickstart.png
	.venv-quickstart/bin/python getting_started/quickstart.py

test: lint types unit  ## ruff, mypy --strict, and the behaviour of everything: in minutes, before each commit

test-full: lint types $(VENV)/.installed  ## test, at all points of failure: kills, power cuts, full disks, a million damaged files; two hours
	DATA_STACK_TESTS=full $(PYTEST)

lint: $(VENV)/.installed  ## ruff check and ruff format
	$(BIN)/ruff check $(CODE) setup.py
	$(BIN)/ruff format --check $(CODE) setup.py

types: $(VENV)/.installed  ## mypy --strict over package, plugins and tests
	$(BIN)/mypy $(TYPED)

unit: $(VENV)/.installed  ## pytest alone
	$(PYTEST)

test-all: test .venv-all/.installed  ## test, and what needs TensorFlow and JAX, in an environment of its own (2 GB)
	.venv-all/bin/python -m pytest -q --noconftest $(FRAMEWORK_TESTS)
	.venv-all/bin/python -m pytest -q --confcutdir=tests/spark $(SPARK_FRAMEWORK_TESTS)

bench: $(VENV)/.installed  ## all benchmarks; figures and their commands: benchmarks/README.md
	@for script in $(filter-out benchmarks/harness.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

count:  ## lines of code by folder, without docstrings and comments; then what is too long
	@$(PYTHON) tools/count_code.py data_stack plugins
	@$(PYTHON) tools/count_code.py --large data_stack plugins || true

clean:  ## remove the environments and everything made by the targets
	rm -rf $(VENV) .venv-all .venv-quickstart .quickstart quickstart.png build dist *.egg-info plugins/*/*.egg-info plugins/*/build \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environments are made anew whenever a version or a requirement changes.
$(VENV)/.installed: Makefile constraints.txt setup.py pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(INSTALL) -e '.[dev]' -e 'plugins/digits[sklearn]' -e 'plugins/iris[sklearn]' -e plugins/petastorm -e plugins/spark
	$(GRANULAR_021)
	touch $@

.venv-quickstart/.installed: Makefile constraints.txt setup.py pyproject.toml plugins/digits/pyproject.toml
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-quickstart
	.venv-quickstart/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[images]' -e 'plugins/digits[sklearn]'
	touch $@

# Without constraints.txt: TensorFlow wants an older h5py than the other environments have.
.venv-all/.installed: Makefile setup.py pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-all
	.venv-all/bin/python -m pip install --quiet --disable-pip-version-check -e '.[images,jax,parquet]' -e plugins/petastorm -e plugins/spark \
		$(TENSORFLOW) 'pytest>=8.0' 'pytest-timeout>=2.3'
	touch $@
