# Everything starts here, also in CI. The environment is made on first use and again when pyproject.toml or requirements-dev.txt changes.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS ?= tests
# Of the brokers that the tests start; by default the newest that is supported.
KAFKA ?=
ON := $(if $(KAFKA),--kafka-version $(KAFKA))
# The PySpark that the tests use; by default the one of requirements-dev.txt.
SPARK ?=
PYSPARK = $(if $(SPARK),build/spark-$(SPARK))
WITH = $(if $(SPARK),PYTHONPATH=$(CURDIR)/$(PYSPARK))
# The last releases of the older ones that are supported, for test-releases; each with a release of Kafka.
RELEASES := 3.5.9 4.0.5 4.1.4 4.2.1
KAFKA_3.5.9 := 3.3.2
KAFKA_4.0.5 := 3.9.1
KAFKA_4.1.4 := 4.3.1
KAFKA_4.2.1 := 4.4.0
# And the newest PySpark on the newer releases of Python, where they are installed, for test-pythons.
PYTHONS := 3.12 3.13
# Each has its own brokers and Spark, about 4 GB. A file's tests stay together: they share topics' brokers and sessions.
# Three on two cores: many tests wait for a timeout or a process, and two leave up to half of the time unused.
JOBS ?= 3

# Where it is set (as in many images), each of the tests' thousands of Python processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

INSTALL := python -m pip install --disable-pip-version-check --quiet
TOOL = $(BIN)/python -m venv
# What test-lowest runs: without brokers, then a batch's way through the protocol, the command line, and Spark.
CORE := tests/unit tests/broker/test_staged_write.py tests/broker/test_cli.py tests/spark/test_source_batch.py

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) ## Show exactly-once under crashes, on a broker of its own (FAST=1: the short one; CLUSTER=1: executors die too; TABLE=1: with a table)
	$(BIN)/kafka-eos demo $(if $(FAST),--fast) $(if $(CLUSTER),--cluster) $(if $(TABLE),--with-table)

.PHONY: test
test: $(READY) $(PYSPARK) ## Run every test (starts brokers and Spark); TESTS=path runs a part, JOBS=n at a time, KAFKA=3.9.1 and SPARK=4.1.4 on those releases
	$(WITH) $(BIN)/python -m tests.jvm
	$(WITH) $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --junitxml=build/tests.xml $(ON) $(TESTS)

.PHONY: archives
archives: $(READY)
	$(BIN)/python -m tests.jvm

.PHONY: test-slow
test-slow: $(READY) $(if $(if $(PART),$(filter kerberos,$(PART)),all),build/gssapi) $(if $(if $(PART),$(filter mutants-%,$(PART)),all),build/mutation) ## Run what is left out of the tests for its length, and record it: every part that has not passed on this code, or PART="tables soak"
	$(BIN)/python -m tests.jvm
	PYTHONPATH=$(CURDIR)/build/gssapi:$(CURDIR)/build/mutation $(BIN)/python .ci/slow_run.py run $(ON) $(PART)

# Only the slow tests use Kerberos: gssapi has no wheel for Linux, and takes a compiler and the system's library.
build/gssapi: | $(READY)
	@command -v krb5-config >/dev/null || { echo 'error: gssapi needs krb5-config (Debian: apt install gcc libkrb5-dev)' >&2; exit 1; }
	$(BIN)/$(INSTALL) --target $@.partial gssapi==1.12.0 && mv $@.partial $@

# Only the mutants' rooms use it: it makes the changes of the code, and nothing else of this project needs it.
build/mutation: | $(READY)
	$(BIN)/$(INSTALL) --target $@.partial --no-deps cosmic-ray==8.7.0 stevedore==5.10.0 parso==0.8.7 && mv $@.partial $@

.PHONY: test-unit
test-unit: $(READY) ## Run the tests that need neither broker nor Spark, in seconds
	$(BIN)/pytest tests/unit

.PHONY: lab
lab: $(READY) ## List the laboratory's commands: simulation, soak, fuzzing, …; RUN="soak --minutes 5" runs one
	$(BIN)/python -m lab $(or $(RUN),--help)

.PHONY: bench
bench: $(READY) ## Measure every target beside Spark's own connector, for up to an hour; goes on if run again
	$(BIN)/python -m lab bench all --sweeps --minutes 50 --output docs/performance --into PERFORMANCE.md --into docs/scaling.md \
	  --into docs/performance-exactly-once.md --into docs/performance-limits.md \
	  --into docs/performance-scale.md --into docs/performance-targets.md --into docs/real-time.md

.PHONY: check
check: types lint prose docs ## Check format, lint, types, the layers' import contracts, spelling and the site's links

.PHONY: types
types: $(READY)
	$(BIN)/mypy

.PHONY: lint
lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

.PHONY: prose
prose: spelling ## Check spelling and wording: pages, messages, comments
	$(BIN)/pytest -q tests/unit/documentation

.PHONY: spelling
spelling: $(READY)
	$(BIN)/codespell

.PHONY: docs
docs: $(READY) ## Build the documentation site in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

.PHONY: format
format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

$(READY): requirements-dev.txt pyproject.toml .ci/prerequisites.sh
	python=$$(.ci/prerequisites.sh) && "$$python" -m venv $(VENV)
	$(BIN)/python .ci/install.py requirements-dev.txt
	$(BIN)/$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# The rest is not part of a normal run: these resolve or download what a registry has today.
.PHONY: lock
lock: $(READY) ## Renew requirements-dev.txt, and the image's: the newest versions that pyproject.toml allows, with their hashes
	$(TOOL) build/uv && build/uv/bin/$(INSTALL) uv
	build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade \
	  --custom-compile-command 'make lock' --extra dev --output-file requirements-dev.txt pyproject.toml
	build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command 'make lock' --constraint requirements-dev.txt \
	  --output-file conf/kubernetes/requirements.txt pyproject.toml

.PHONY: test-lowest
test-lowest: $(READY) ## Run the unit tests and a core of the others on the lowest versions that pyproject.toml allows
	$(TOOL) build/uv && build/uv/bin/$(INSTALL) uv
	build/uv/bin/uv pip compile --quiet --python $(BIN)/python --resolution lowest-direct --extra test \
	  --output-file build/lowest.txt pyproject.toml
	$(TOOL) --clear build/lowest && build/lowest/bin/$(INSTALL) --requirement build/lowest.txt
	build/lowest/bin/$(INSTALL) --no-deps --editable .
	build/lowest/bin/pytest -W ignore::DeprecationWarning --ignore tests/unit/ci --ignore tests/unit/documentation $(CORE)

.PHONY: test-releases
test-releases: $(RELEASES:%=test-release-%) ## Run what is promised for every release of Spark on the older ones: RELEASES; ALL=yes kills more

# Two at a time: make -j 2 test-releases
test-release-%: build/spark-%
	PYTHONPATH=$(CURDIR)/build/spark-$* $(BIN)/pytest $(if $(ALL),-m "slow or not slow") --junitxml=build/spark-$*.xml \
	  --kafka-version $(KAFKA_$*) tests/spark/test_releases.py

# As a step of a chain of rules, it would be removed at the end.
.PRECIOUS: build/spark-%
build/spark-%: | $(READY)
	@mkdir -p build
	$(BIN)/$(INSTALL) --no-compile --target $@.partial pyspark==$* && mv $@.partial $@

.PHONY: test-pythons
test-pythons: $(PYTHONS:%=test-python-%) ## Run the unit tests, and what is promised for every release of Spark, on newer releases of Python: PYTHONS

test-python-%:
	$(MAKE) VENV=build/python-$* PYTHON=python$* build/python-$*/.ready
	build/python-$*/bin/pytest --junitxml=build/python-$*.xml tests/unit tests/spark/test_releases.py

.PHONY: newest
newest: $(READY) ## Run the same on the newest release of everything, also those that pyproject.toml does not allow, and print what is new
	$(TOOL) build/uv && build/uv/bin/$(INSTALL) uv
	$(BIN)/python .ci/newest.py overrides pyproject.toml > build/newest.overrides
	build/uv/bin/uv pip compile --quiet --upgrade --no-annotate --python $(BIN)/python --override build/newest.overrides \
	  --extra test --output-file build/newest.txt pyproject.toml
	$(BIN)/python .ci/newest.py show pyproject.toml requirements-dev.txt build/newest.txt
	$(TOOL) --clear build/newest && build/newest/bin/$(INSTALL) --requirement build/newest.txt
	build/newest/bin/$(INSTALL) --no-deps --editable .
	build/newest/bin/pytest -W "default:PySpark does not yet fully support pandas:FutureWarning" \
	  --ignore tests/unit/ci --ignore tests/unit/documentation tests/unit tests/spark/test_releases.py

.PHONY: tested
tested: ## Write docs/tested.md from the reports of test, test-releases and test-pythons in build/
	$(BIN)/python .ci/tested.py write build/*.xml

.PHONY: release
release: $(READY) ## Build wheel and sdist in dist/, check them, run commands, a job and the demo with each, and list what the wheel pulls in (SBOM)
	rm -rf dist && $(TOOL) build/packaging && build/packaging/bin/$(INSTALL) build check-wheel-contents cyclonedx-bom twine
	build/packaging/bin/python -m build --outdir dist .
	build/packaging/bin/twine check --strict dist/*
	build/packaging/bin/check-wheel-contents --toplevel spark_kafka_eos,pyspark_kafka_eos,kafka_eos_python dist/*.whl
	set -e; for built in $(CURDIR)/dist/*; do $(MAKE) test-installed BUILT=$$built; done
	$(TOOL) --clear build/bill && build/bill/bin/$(INSTALL) --require-hashes --requirement conf/kubernetes/requirements.txt
	build/bill/bin/$(INSTALL) --no-deps dist/*.whl && build/bill/bin/python -m pip uninstall --quiet --yes pip setuptools
	build/packaging/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/spark_kafka_eos.cdx.json build/bill

.PHONY: test-installed
test-installed: # of BUILT, a wheel or sdist
	$(TOOL) --clear build/installed && build/installed/bin/$(INSTALL) "$(BUILT)"
	cd build/installed && bin/python -P ../../.ci/installed_commands.py
	build/installed/bin/$(INSTALL) "$(BUILT)[demo]"
	cd build/installed && bin/python -P ../../.ci/installed_job.py && bin/kafka-eos demo --fast

.PHONY: audit
audit: $(READY) ## Look up known vulnerabilities of requirements-dev.txt, in a stored copy if no service answers; OLDEST=days is its limit
	$(TOOL) build/audit && build/audit/bin/$(INSTALL) pip-audit
	build/audit/bin/python .ci/audit.py look $(if $(OLDEST),--oldest $(OLDEST)) requirements-dev.txt

.PHONY: advisories
advisories: $(READY) ## Renew the stored copy of advisories from a clone of the Python Packaging Advisory Database: FROM=path
	$(BIN)/python .ci/audit.py store $(FROM) requirements-dev.txt

.PHONY: clean
clean: ## Remove the environment and what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
