# uv is the machine's where it has one that works here, else one in a virtual environment of its
# own: system pip may refuse to install (PEP 668), and the shims of a Python version manager may be
# dead in this folder, which is why that environment is made from outside of it.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(CURDIR)/.uv/bin/uv)
PYTHON := .venv/bin/python

.PHONY: apex r2d2 ars test check environment

apex: environment  ## Trains Ape-X on Catch until it is solved; ARGS adds flags.
	@exec $(PYTHON) launch.py --agent apex --mode local_mp $(ARGS)

r2d2: environment  ## Trains R2D2 on a memory of 40 steps until it is solved; ARGS adds flags.
	@exec $(PYTHON) launch.py --agent r2d2 --mode local_mp --env memory:40 $(ARGS)

ars: environment  ## Solves CartPole with ARS; ARGS adds flags.
	@exec $(PYTHON) launch.py --agent ars --mode local_mp --env gym:CartPole-v1 $(ARGS)

test: check  ## Runs the linters, the type checker and all tests.
	$(PYTHON) -m pytest

check: environment
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict

environment: $(if $(filter uv,$(UV)),,$(UV))
	@$(UV) sync --frozen --all-extras --compile-bytecode --quiet

$(CURDIR)/.uv/bin/uv:
	(cd / && python3 -m venv $(CURDIR)/.uv)
	$(CURDIR)/.uv/bin/python -m pip install --quiet uv
