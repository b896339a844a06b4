# Everything starts from a fresh clone: the first target that you call makes .venv and installs into it.

VENV := .venv
WORKERS ?= 3
AZURITE := $(VENV)/azurite
BENCH := build/bench
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

# The tests start hundreds of Pythons, each of which would compile all of zskip.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint fuzz torture bench docs clean

help:  ## what there is to make
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1|/' | column -t -s '|'

$(READY): pyproject.toml
	@python=""; \
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		if "$$candidate" -c '$(SUPPORTED)' 2>/dev/null; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "zskip needs Python 3.11 to 3.13; name one with PYTHON=…" >&2; exit 1; fi; \
	echo "Setting up $(VENV) with $$("$$python" --version), once"; \
	"$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $@

# The tests of az:// ask a server of Azure's protocol, which comes from npm. Without it they are skipped, and say so.
$(AZURITE): $(READY)
	@mkdir -p $@
	@if command -v npm >/dev/null; then \
		npm install --silent --no-save --omit=optional --ignore-scripts --prefix $@ azurite@3.35.0 \
			|| echo "Azurite cannot be installed: the tests of az:// are skipped" >&2; \
	else echo "There is no npm: the tests of az:// are skipped" >&2; fi

demo: $(READY)  ## build a table from real network logs and look things up in it
	$(BIN)/zskip demo

# One worker runs what needs Spark, in one Java machine; the others run everything else beside it. Many tests wait for a
# server or a clock, so that three workers keep two cores busy.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations 25 --doctest-modules zskip tests

test: $(READY) $(AZURITE)  ## what guards every promise: units, properties, code blocks of the docs, Spark; some 7 minutes
	$(PYTEST) -m "not slow"

test-all: $(READY) $(AZURITE)  ## all tests: the long forms, the notebooks and the torture as well; about an hour
	$(PYTEST)
	$(MAKE) torture

lint: $(READY)  ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fuzz: $(READY)  ## a million random predicates and 20,000 random statements against DuckDB; hours
	$(BIN)/python -m tests.pruning.fuzz --cases 1000000
	$(BIN)/python -m tests.statements.fuzz --cases 20000

torture: $(READY) $(AZURITE)  ## writers killed and starved at every call that they make to the system, and raced; half an hour
	$(BIN)/python -m tests.torture

bench: $(READY)  ## the figures of docs/performance.md, against peers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[bench]'
	$(BIN)/python benchmarks/layouts.py $(BENCH)/layouts --peers
	$(BIN)/python benchmarks/layout_speed.py $(BENCH)/layouts
	$(BIN)/python benchmarks/planning.py $(BENCH)/planning --peers
	$(BIN)/python benchmarks/lookup.py $(BENCH)/lookup --s3
	$(BIN)/python benchmarks/sketches.py $(BENCH)/sketches
	$(BIN)/python benchmarks/write.py $(BENCH)/write --peers
	$(BIN)/python benchmarks/indexing.py $(BENCH)/indexing
	$(BIN)/python benchmarks/living.py $(BENCH)/layouts
	$(BIN)/python benchmarks/growing.py
	$(BIN)/python benchmarks/memory.py $(BENCH)/memory
	$(BIN)/python benchmarks/spark.py --folder $(BENCH)/spark
	$(BIN)/python benchmarks/tightness.py
	$(BIN)/python benchmarks/conditions.py

docs: $(READY)  ## the site, in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:  ## remove what make made
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
