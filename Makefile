# `make quickstart` and `make test` work on a fresh machine. `make help` lists all targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := data_stack plugins tests benchmarks getting_started tools conftest.py
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
TYPED := data_stack $(PLUGINS) tests tools conftest.py
# To mypy, each of these is the module tests.conftest, so it gets one at a time.
PLUGIN_FIXTURES := $(wildcard plugins/*/tests/conftest.py)
CONSTRAINTS := constraints.txt
TORCH = torch==$$(sed -n 's/^torch==//p' constraints.txt)
PIP := python -m pip install --quiet --disable-pip-version-check
INSTALL := $(BIN)/$(PIP) $(addprefix -c ,$(CONSTRAINTS))

# Each process runs tests of neighbouring files, so that they share the servers they start; one that has done its own takes over
# half of those that another has left. With more processes than cores, some wait while others compute.
WORKERS ?= 4
PARALLEL = --numprocesses $(WORKERS) --dist worksteal
PYTEST = $(BIN)/python -m pytest -q $(PYTEST_OPTIONS)

# The tests start hundreds of interpreters, which would compile the package each time.
unexport PYTHONDONTWRITEBYTECODE

# Granular 0.21 writes sequences, which later versions do not; the tests need it beside the current version.
GRANULAR_021 = $(BIN)/$(PIP) --no-deps --upgrade --target $(VENV)/granular-0.21 granular==0.21.2

# Tests of TensorFlow and JAX, which only the environment of `make test-all` has.
FRAMEWORK_TESTS := tests/exchange/test_to_tensorflow.py tests/loader/test_loader_tensorflow.py \
	tests/loader/test_loader_jax.py plugins/petastorm/tests/test_petastorm_tensorflow.py
SPARK_FRAMEWORK_TESTS := plugins/spark/tests/test_spark_tensorflow.py

# Each in one process: it starts a Java machine, or the daemons of a Ray.
ENGINES := plugins/spark/tests plugins/ray/tests

# Programs that train with the loader, which only the environment of `make clients` can run.
CLIENTS := jax==0.10.2 keras==3.15.1 transformers==5.24.0
CLIENT_TESTS := tests/clients tests/loader/test_loader_trainers.py tests/loader/test_loader_accelerate.py

# TensorFlow without GPU kernels is half as large.
TENSORFLOW ?= tensorflow-cpu

# The second command: metadata of the former name would be found beside those of the new one.
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "data_stack needs Python 3.10 or newer: make PYTHON=python3.11")' && \
	rm -rf datastack.egg-info plugins/*/datastack_*.egg-info

.PHONY: help quickstart test test-full soak test-all clients test-lowest test-newest test-pythons lint types unit engines $(ENGINES) bench dist dist-check version constraints docs notebooks api mutants clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: .venv-quickstart/.installed  ## load a dataset by name, print its report, write quickstart.png
	.venv-quickstart/bin/python getting_started/quickstart.py

test:  ## ruff, mypy --strict and pytest, without Spark and Ray: in minutes, before each commit
	@$(MAKE) --no-print-directory --jobs 3 lint types unit

# A part that was green on the same commit is not run again, so that an interrupted run goes on; `make -k` goes on after a failure.
# PART chooses the parts that begin so. A failure is repeated by SEED, which the run prints.
# EXAMPLES is the number of examples of each differential test, for hours where wanted.
PARTS := faults-preparation faults-servers faults-disks fuzz differential formats io loader petastorm engines rest
part-faults-preparation := tests/faults/test_preparation_faults.py
part-faults-servers := $(patsubst %,tests/faults/test_%.py,server_crashes network_faults secrets_stay_secret)
part-faults-disks := $(filter-out $(part-faults-preparation) $(part-faults-servers),$(wildcard tests/faults/test_*.py))
part-fuzz := tests/fuzz
part-differential := tests/differential
part-formats := tests/formats tests/codecs
part-io := tests/io tests/stores tests/stored tests/factories
part-loader := tests/loader tests/processes tests/engines
part-petastorm := plugins/petastorm/tests
part-engines := $(ENGINES)
part-rest := $(filter-out tests/faults $(foreach part,$(PARTS),$(part-$(part))),$(patsubst %/,%,$(wildcard tests/*/)) \
	$(wildcard tests/test_*.py plugins/*/tests))
SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
GREEN := .test-full/$(shell git rev-parse HEAD 2>/dev/null)-$(shell git diff HEAD 2>/dev/null | git hash-object --stdin | cut -c1-12)
ifneq ($(AGAIN)$(EXAMPLES),)
.PHONY: $(PARTS:%=$(GREEN)/%)
endif

test-full: lint types $(patsubst %,$(GREEN)/%,$(filter $(PART)%,$(PARTS)))  ## test with crashes, power cuts, full disks and many damaged files, in parts: PART=faults; AGAIN=1; SEED=7; EXAMPLES=100000
	@test -n "$(filter $(PART)%,$(PARTS))" || { echo "no part begins with $(PART): $(PARTS)"; exit 2; }

$(GREEN)/engines: PARALLEL :=
$(GREEN)/%: $(VENV)/.installed
	DATA_STACK_TESTS=full DATA_STACK_SEED=$(SEED) DATA_STACK_EXAMPLES=$(EXAMPLES) $(PYTEST) $(PARALLEL) --hypothesis-seed=$(SEED) $(part-$*)
	@mkdir -p $(@D) && touch $@

soak: $(VENV)/.installed  ## use stores from many processes under random kills and faults, for MINUTES=60; SEED=7
	$(BIN)/python tools/soak.py --minutes $(or $(MINUTES),60) --seed $(SEED)

lint: $(VENV)/.installed  ## ruff check and ruff format
	$(BIN)/ruff check $(CODE) setup.py
	$(BIN)/ruff format --check $(CODE) setup.py

types: $(VENV)/.installed  ## mypy --strict on package, plugins, tests and tools
	$(BIN)/mypy $(TYPED)
	for file in $(PLUGIN_FIXTURES); do $(BIN)/mypy $$file || exit 1; done

unit: $(VENV)/.installed  ## pytest only, in WORKERS=4 processes
	$(PYTEST) $(PARALLEL) $(ENGINES:%=--ignore=%)

engines: $(VENV)/.installed  ## pytest of Spark and Ray, whose Java machine and daemons take half a minute
	@$(MAKE) --no-print-directory --jobs 2 $(ENGINES)

$(ENGINES):
	$(PYTEST) $@

test-all: test clients .venv-all/.installed  ## test, clients, and the tests of TensorFlow and JAX in an environment of their own (2 GB)
	.venv-all/bin/python -m pytest -q --noconftest $(FRAMEWORK_TESTS)
	.venv-all/bin/python -m pytest -q --confcutdir=plugins/spark/tests $(SPARK_FRAMEWORK_TESTS)

clients: .venv-clients/.installed  ## pytest of Lightning, accelerate, the Trainer of Hugging Face, Keras and torchrun, in an environment of its own (2 GB); needs Python 3.11
	KERAS_BACKEND=jax .venv-clients/bin/python -m pytest -q --noconftest $(CLIENT_TESTS)
	KERAS_BACKEND=torch .venv-clients/bin/python -m pytest -q --noconftest tests/clients/test_keras_batches.py

# Old packages warn that others are newer.
test-lowest:  ## pytest with the lowest versions that the packages admit; needs Python 3.11
	$(MAKE) unit engines VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt PYTEST_OPTIONS="-W default"

test-newest:  ## pytest with the newest versions that there are
	rm -rf .venv-newest
	$(MAKE) unit engines VENV=.venv-newest CONSTRAINTS=

# The quick suite is that of `make unit`. Each Python gets the versions of constraints.txt, or others where it has no wheels of
# those, and no torch, whose wheels bring gigabytes of CUDA; what was left out, and how many tests were skipped for it, is printed at the end.
test-pythons: .venv-dist/.installed  ## pytest on each Python that is found, 3.10 to 3.14 and free-threaded: PYTHONS="python3.12 /opt/python3.13t/bin/python3"
	.venv-dist/bin/python tools/test_pythons.py --pythons "$(PYTHONS)" -- $(patsubst $(BIN)/python,,$(PYTEST)) $(PARALLEL) $(ENGINES:%=--ignore=%)

bench: $(VENV)/.installed  ## run all benchmarks; benchmarks/README.md has figures and commands
	@for script in $(filter-out benchmarks/harness.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

dist: .venv-dist/.installed  ## build the packages of a release into dist/, and check their contents
	.venv-dist/bin/python tools/build_packages.py --only-build

dist-check: .venv-dist/.installed  ## dist, and try each extra and plugin in a fresh environment
	.venv-dist/bin/python tools/build_packages.py

version:  ## write a version, V=0.3.0, into all packages
	$(PYTHON) tools/package_version.py $(V)

constraints: .venv-dist/.installed  ## write constraints-lowest.txt, after a change of lower bounds
	.venv-dist/bin/python tools/lowest_versions.py

docs: $(VENV)/.installed  ## build the site with pages, notebooks and API reference in docs/_build/html, beside those of other versions
	$(BIN)/python tools/build_docs.py

notebooks: $(VENV)/.installed  ## run the notebooks and keep their output in them
	$(BIN)/python tools/run_notebooks.py

api: $(VENV)/.installed  ## write tests/public_api.txt, the public names; docs/stability.md says what a change of it means
	$(BIN)/python tools/public_api.py

MINUTES ?= 60
SAMPLE ?= 40
mutants: $(VENV)/.installed  ## change the code that protects data in small ways and list what no test notices; ONLY=io/integrity MINUTES=10 SAMPLE=0
	$(BIN)/python tools/mutants.py --minutes $(MINUTES) --sample $(SAMPLE) --only "$(ONLY)"

clean:  ## remove the environments and all generated files
	rm -rf $(VENV) .venv-all .venv-clients .venv-dist .venv-lowest .venv-newest .venv-pythons .venv-quickstart .quickstart quickstart.png docs/_build build dist *.egg-info plugins/*/*.egg-info plugins/*/build \
		.pytest_cache .test-full .mypy_cache .ruff_cache .hypothesis .mutants.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is rebuilt when a version or requirement changes.
$(VENV)/.installed: Makefile $(CONSTRAINTS) setup.py pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) $(TORCH)
	$(INSTALL) -e '.[dev]' $(addprefix -e ,$(PLUGINS))
	$(GRANULAR_021)
	touch $@

.venv-quickstart/.installed: Makefile constraints.txt setup.py pyproject.toml plugins/digits/pyproject.toml
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-quickstart
	.venv-quickstart/bin/$(PIP) -c constraints.txt -e '.[images]' -e 'plugins/digits[sklearn]'
	touch $@

.venv-dist/.installed: Makefile
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-dist
	.venv-dist/bin/$(PIP) build==1.6.1 check-wheel-contents==0.6.3 setuptools==84.2.1 twine==7.0.0 uv==0.13.9
	touch $@

# Without constraints.txt, because TensorFlow needs an older h5py.
.venv-all/.installed: Makefile setup.py pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-all
	.venv-all/bin/$(PIP) -e '.[images,jax,parquet]' -e plugins/petastorm -e plugins/spark \
		$(TENSORFLOW) 'pytest>=8.0' 'pytest-timeout>=2.3'
	touch $@

# Of torch, the CPU build where one is found, as in the environment of the tests.
.venv-clients/.installed: Makefile $(CONSTRAINTS) setup.py pyproject.toml plugins/digits/pyproject.toml
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv --clear .venv-clients
	.venv-clients/bin/$(PIP) $(addprefix -c ,$(CONSTRAINTS)) $(TORCH)
	.venv-clients/bin/$(PIP) $(addprefix -c ,$(CONSTRAINTS)) -e '.[accelerate,jax,keras,lightning]' \
		-e 'plugins/digits[sklearn]' $(CLIENTS) 'pytest>=8.0' 'pytest-timeout>=2.3'
	touch $@
