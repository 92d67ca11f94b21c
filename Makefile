# Two commands: `make demo` and `make test`. Each builds .venv from the pinned constraints if it is not there.
# `make docs` builds the site, and `make dist` the package, which it tries in an environment of its own.
# `make bench` and `make bench-quality` compare with other libraries, in an environment of their own; `make bench-scale`
# measures tables larger than memory.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo demo-record test test-oldest lint format docs pictures dist bench bench-scale bench-quality
.DEFAULT_GOAL := test

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch .venv/ready

demo: .venv/ready
	$(BIN)/python -m overtone.app.demo

# The committed record, which README.md shows.
demo-record: .venv/ready
	$(BIN)/python -m overtone.app.demo results/demo

test: .venv/ready lint
	$(BIN)/python -m pytest

# The lower bounds of pyproject.toml are true: the same tests with the oldest versions that they allow.
.venv-oldest/ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable . --group dev
	touch .venv-oldest/ready

test-oldest: .venv-oldest/ready
	.venv-oldest/bin/python -m pytest

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv-docs/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	.venv-docs/bin/python -m pip install --quiet --constraint constraints.txt --group docs
	touch .venv-docs/ready

# The site is site/index.html. Building it needs no network, and neither does reading it.
docs: .venv-docs/ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

# The pictures that the pages of docs show, made by their own code with their own settings.
# Those of reports need chromium and pdftoppm and, for two of five, the data that OVERTONE_DATA names.
pictures: .venv/ready
	$(BIN)/python -m tests.pages docs/explanation/*.md docs/gallery/*.md
	$(BIN)/python -m tests.reports docs/report

# Source archive and wheel; the wheel is installed in a clean environment and tried there, away from the sources.
dist: .venv/ready
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	.venv-wheel/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	.venv-wheel/bin/python -I tests/smoke.py

.venv-bench/ready: benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --requirement benchmarks/requirements.txt
	touch .venv-bench/ready

bench: .venv/ready .venv-bench/ready
	for part in machine residuals steps startup memory prediction budgets page; do $(BIN)/python -m benchmarks.$$part || exit 1; done

bench-scale: .venv/ready
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.flights

bench-quality: .venv/ready .venv-bench/ready
	for part in quality multi_step output_layers random_tables quality_page; do $(BIN)/python -m benchmarks.$$part || exit 1; done
