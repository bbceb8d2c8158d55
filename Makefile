# Everything starts here, also in CI. The environment is made on first use and again when pyproject.toml changes.
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
# Each has its own brokers and Spark, about 4 GB. A file's tests stay together: they share topics' brokers and sessions.
JOBS ?= 2

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) ## Show exactly-once under crashes, on a broker of its own (FAST=1: the short one; CLUSTER=1: executors die too)
	$(BIN)/kafka-eos demo $(if $(FAST),--fast) $(if $(CLUSTER),--cluster)

.PHONY: test
test: $(READY) ## Run every test (starts brokers and Spark); TESTS=path runs a part, JOBS=n at a time, KAFKA=3.9.1 on that release
	@mkdir -p build
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --junitxml=build/tests.xml $(ON) $(TESTS)

.PHONY: test-slow
test-slow: $(READY) ## Run what is left out of the tests for its length: every cell of the fault matrix, more seeds, a soak
	@mkdir -p build
	$(BIN)/pytest -m slow --junitxml=build/slow-tests.xml $(ON) $(TESTS)
	$(if $(filter tests,$(TESTS)),$(if $(KAFKA),,$(BIN)/python .ci/slow_run.py write build/slow-tests.xml))

.PHONY: test-unit
test-unit: $(READY) ## Run the tests that need neither broker nor Spark, in seconds
	$(BIN)/pytest tests/unit

.PHONY: bench
bench: $(READY) ## Measure every row of PERFORMANCE.md beside Spark's own connector: most of an hour
	$(BIN)/kafka-eos bench all --output docs/performance --into PERFORMANCE.md

.PHONY: check
check: $(READY) prose docs ## Check format, lint, types, the layers' import contracts, spelling and the site's links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: prose
prose: $(READY) ## Check spelling and wording: pages, messages, comments
	$(BIN)/codespell
	$(BIN)/pytest -q tests/unit/documentation

.PHONY: docs
docs: $(READY) ## Build the documentation site in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

.PHONY: format
format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

$(READY): pyproject.toml .ci/prerequisites.sh
	python=$$(.ci/prerequisites.sh) && "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[dev]'
	@touch $@

.PHONY: clean
clean: ## Remove the environment and what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
