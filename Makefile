# Two commands: `make demo` and `make test`. Each builds .venv from the pinned constraints if it is not there.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format
.DEFAULT_GOAL := test

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch .venv/ready

demo: .venv/ready
	$(BIN)/python -m overtone.demo results/demo

test: .venv/ready lint
	$(BIN)/python -m pytest

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
