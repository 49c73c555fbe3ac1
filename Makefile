# `make` lists the targets. Everything runs from a checkout; nothing but Python 3.11+, make and apt has to be there.
VENV ?= .venv
PYTHON ?= python3
FLAVOUR ?= mysql
# How many database suites `make test` runs at a time: with more than cores, short leases get scarce time.
JOBS ?= 2
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
UNIT := $(wildcard tests/unit tests/architecture sdk/tests)
CODE := $(wildcard orbit sdk/orbit_sdk sdk/tests tests bench examples migrations bin/*)
TYPED := $(sort $(dir $(wildcard orbit/*.py sdk/orbit_sdk/*.py bench/*.py tests/support/*.py tests/architecture/*.py tests/localdb/*.py)))
# Scenarios that wait for leases shrink with this; `make soak` runs them at full length.
export ORBIT_LEASE_MS ?= 3000
export PYTHONPATH := $(CURDIR):$(CURDIR)/sdk

.DEFAULT_GOAL := help
.PHONY: help setup demo up format vet unit integration test soak build bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with the pinned dependencies (quick when nothing changed)
	@if [ "$(VENV)" = .venv ]; then $(PYTHON) bin/setup; fi

demo: setup ## set up and run the main job: database, processes, keyed-concurrency example, verdict
	@$(BIN)/orbit demo

up: setup ## run everything on this machine until Ctrl-C
	@$(BIN)/orbit up

format: setup ## format the code and apply safe lint fixes
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

vet: setup ## check format, lint, types and layers
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/python -m mypy $(TYPED)
	@mkdir -p build
	@$(BIN)/lint-imports >build/imports.txt 2>&1 || { cat build/imports.txt; exit 1; }

unit: setup ## unit and architecture tests, no database
	$(PYTEST) $(UNIT)

integration: setup ## tests on one private database (FLAVOUR=mysql or mariadb)
	@$(BIN)/python -m orbit.localdb fetch --flavour $(FLAVOUR)
	@$(MAKE) --no-print-directory $(addprefix $(FLAVOUR)-,integration faults system)

test: setup ## everything: unit, then the database suites on MySQL and on MariaDB
	@$(BIN)/python -m orbit.localdb fetch
	$(PYTEST) $(UNIT)
	@$(MAKE) --no-print-directory -j$(JOBS) $(foreach flavour,mysql mariadb,$(addprefix $(flavour)-,integration faults system))

# The database suites wait for leases and processes more than they compute, so that they run side by side, each on a
# server of its own; every line says whose it is.
define suite
@bash -c 'set -o pipefail; ORBIT_TEST_FLAVOUR=$(1) $(PYTEST) -q -m "not soak" $(2) 2>&1 | sed -u "s/^/$@ | /"'
endef

%-integration:
	$(call suite,$*,tests/integration)

%-faults:
	$(call suite,$*,tests/faults)

%-system:
	$(call suite,$*,tests/e2e tests/localdb)

soak: setup ## long scenarios at full length, with a report in build/soak
	@mkdir -p build/soak
	ORBIT_SOAK=1 ORBIT_TEST_FLAVOUR=$(FLAVOUR) $(PYTEST) --junitxml=build/soak/$(FLAVOUR).xml --timeout=7200 $(wildcard tests/faults tests/e2e)
	ORBIT_SOAK=1 ORBIT_TEST_FLAVOUR=$(FLAVOUR) $(PYTEST) -m soak --junitxml=build/soak/$(FLAVOUR)-storm.xml --timeout=7200 $(wildcard tests/integration)

build: setup ## wheels and source archives of orbit and orbit-sdk in dist/
	@$(BIN)/python -m hatchling build -d $(CURDIR)/dist
	@cd sdk && $(abspath $(BIN))/python -m hatchling build -d $(CURDIR)/dist

bench: setup ## measure; tables on screen, JSON in bench/results
	@$(BIN)/python -m bench $(ARGS)

lock: setup ## resolve the dependencies anew into requirements.lock (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  pyproject.toml sdk/pyproject.toml requirements.in -o requirements.lock

clean: ## remove what setup and the tests made, except databases under .orbit
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
