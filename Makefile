# Set-up is a virtual environment in ./.venv; it is repeated only when pyproject.toml changed.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
# What pip is asked for as torch; a pin such as TORCH=torch==2.13.0 makes a set-up repeatable.
TORCH ?= torch
PYTEST_ARGS ?=
STUDIO_ARGS ?=
# On few cores, OpenMP threads that spin while waiting take the time of those that work.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help studio demo test coverage slow lint pocket-long comfyui-pack comfyui-test screenshots clean
.DEFAULT_GOAL := help

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

studio: $(VENV)/.ready-studio ## set up, then run the studio: web app, worker, broker and database of this machine
	$(BIN)/flash-grpo studio $(STUDIO_ARGS)

demo: $(VENV)/.ready-rewards ## set up, then align the built-in pocket model and show before and after
	$(BIN)/flash-grpo train --preset pocket

pocket-long: $(VENV)/.ready-rewards ## set up, then about an hour of training for prompt following
	$(BIN)/flash-grpo train --preset pocket-long

test: $(VENV)/.ready-dev ## set up, then run all tests but the slow ones
	$(BIN)/python -m pytest $(PYTEST_ARGS)

coverage: $(VENV)/.ready-dev ## as `test`, and tell which lines no test reached
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

slow: $(VENV)/.ready-dev ## set up, then run the tests that train for minutes
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

comfyui-pack: $(VENV)/.ready-dev ## renew the copies of this project's code in the ComfyUI node pack
	$(BIN)/python custom_nodes/generate.py

comfyui-test: $(VENV)/.ready-dev ## run the node pack's tests in the ComfyUI of COMFYUI_DIR with the Python of COMFYUI_PYTHON
	$(BIN)/python -m pytest -m comfyui $(PYTEST_ARGS)

screenshots: before-after ## set up, then take a picture of every page, light and dark, desktop and phone
	$(BIN)/python -m tests.app.pages.screenshots docs/screenshots

before-after: $(VENV)/.ready-dev ## set up, then compose the moving picture of the README
	$(BIN)/python -m tests.app.pages.before_after docs/screenshots/before-after.webp

lint: $(VENV)/.ready-dev ## style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

clean: ## remove the environment and the caches, keep runs
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .coverage *.egg-info

$(VENV)/.ready-rewards: pyproject.toml
	@VENV='$(VENV)' TORCH='$(TORCH)' bash .ci/setup.sh rewards
	@touch $@

$(VENV)/.ready-studio: pyproject.toml
	@VENV='$(VENV)' TORCH='$(TORCH)' bash .ci/setup.sh rewards,studio
	@touch $@ $(VENV)/.ready-rewards

$(VENV)/.ready-dev: pyproject.toml
	@VENV='$(VENV)' TORCH='$(TORCH)' bash .ci/setup.sh rewards,studio,dev
	@touch $@ $(VENV)/.ready-rewards $(VENV)/.ready-studio
