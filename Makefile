# Everything runs in a virtual environment that make sets up by itself, once, and again when
# pyproject.toml or constraints.txt change. `make PYTHON=/path/to/python` chooses the interpreter.

BIN := .venv/bin
OLDEST := build/venv-oldest
NEWEST := build/venv-newest

PYTHON ?= python3 python3.13 python3.12 python3.11 python3.14 python $(wildcard $(HOME)/.pyenv/versions/*/bin/python3)
PROBE := import ensurepip, sys, venv; print(100 * sys.version_info[0] + sys.version_info[1])

.PHONY: help test test-fast demo docs lint format bench test-oldest test-newest clean

help:
	@echo 'make demo         train DCG-MAP-Elites on a walking robot, in a few minutes, and draw it'
	@echo 'make test         ruff, pyright and all tests'
	@echo 'make docs         build the documentation in build/site, without a network'
	@echo 'make test-fast    the tests without the files that take longest, in about a minute'
	@echo 'make lint         ruff and pyright alone'
	@echo 'make format       let ruff rewrite the files'
	@echo 'make bench        speed of the physics; options in ARGS="--repeat 5"'
	@echo 'make test-oldest  the tests with the oldest supported JAX'
	@echo 'make test-newest  the tests with the newest JAX and the newest Python found'
	@echo 'make clean        remove environments, caches and the demo (never runs/)'

test: lint
	$(BIN)/pytest
	@$(pyright_starts) || $(left_out)

test-fast: .venv/installed
	$(BIN)/pytest --fast

demo: .venv/installed
	@$(BIN)/elites demo

docs: .venv/installed
	$(BIN)/python docs/site/commands.py
	$(BIN)/python docs/site/hours.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'open build/site/index.html; for the search, serve it: $(BIN)/python -m http.server -d build/site'

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if $(pyright_starts); then echo '$(BIN)/pyright'; $(BIN)/pyright; else $(left_out); fi

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed
	$(BIN)/python benchmarks/physics.py $(ARGS)

test-oldest: $(OLDEST)/installed
	$(OLDEST)/bin/pytest

test-newest: $(NEWEST)/installed
	$(NEWEST)/bin/pytest

clean:
	rm -rf .venv build demo .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------- environments

.venv/installed: pyproject.toml constraints.txt
	$(call environment,.venv,first,-c constraints.txt)

$(OLDEST)/installed: pyproject.toml constraints.txt
	@mkdir -p build && grep -v '^jax' constraints.txt > build/constraints-oldest.txt
	$(call environment,$(OLDEST),first,jax==0.10.0 jaxlib==0.10.0 -c build/constraints-oldest.txt)

$(NEWEST)/installed: pyproject.toml
	$(call environment,$(NEWEST),newest,--upgrade --upgrade-strategy eager)

# $(call environment,DIRECTORY,first or newest suitable Python,ARGUMENTS FOR PIP)
define environment
	@best=; best_version=310; \
	for python in $(PYTHON); do \
		version=$$("$$python" -c '$(PROBE)' 2>/dev/null) || continue; \
		if [ "$$version" -gt "$$best_version" ]; then \
			best=$$python; best_version=$$version; \
			if [ $(2) = first ]; then break; fi; \
		fi; \
	done; \
	if [ -z "$$best" ]; then \
		echo 'make: no suitable Python found. Needed: Python 3.11 or newer with its venv module' >&2; \
		echo '      (a separate package, python3-venv, on Debian and Ubuntu). If it is not on the' >&2; \
		echo '      PATH, name it: make PYTHON=/path/to/python3' >&2; \
		exit 1; \
	fi; \
	if ! $(1)/bin/python -m pip --version >/dev/null 2>&1; then \
		rm -rf $(1) && "$$best" -m venv $(1) || exit 1; \
	fi; \
	echo "installing into $(1) ($$($(1)/bin/python --version)); this takes a minute or two, once"; \
	$(1)/bin/python -m pip install -qq -e '.[dev]' $(3) && touch $@
endef

# ---------------------------------------------------------------------------- pyright and node

# pyright is a program for Node.js. Without one on the PATH it would try to download it.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
pyright_starts = { node --version && $(BIN)/pyright --version; } >/dev/null 2>&1
left_out = { \
	echo '**************************************************************************'; \
	echo '** LEFT OUT: the type check. pyright needs Node.js, and no working node  **'; \
	echo '** is on the PATH. All other checks are made; install Node.js for this.  **'; \
	echo '**************************************************************************'; \
	} >&2
