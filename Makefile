# Perdure: `make help` lists the commands.
# Needs only python3 (3.11 or later), pip and make; everything else goes into .venv.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
PIP     := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check --quiet
PYTEST  ?=
BENCH   ?=
PART    ?=
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
           --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
BUILD   := $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')"

RUNTIME := $(VENV)/.runtime
DEV     := $(VENV)/.dev

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test check soak bench mutants lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(RUNTIME) ## run Perdure
	@$(BIN)/perdure serve

test: $(DEV) check ## run every gate and every test
	@echo "-- pytest"
	@$(BIN)/python -m pytest --numprocesses auto $(PYTEST)

check: $(DEV) ## lint, format, types, import direction
	@echo "-- ruff check";  $(BIN)/ruff check --quiet .
	@echo "-- ruff format"; $(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --diff .; exit 1; }
	@echo "-- mypy";        $(BIN)/mypy
	@echo "-- imports";     $(BIN)/lint-imports --no-logo

soak: $(DEV) ## run the long versions of the tests; PART=crash, fuzz, server or simulation runs some
	@$(BIN)/python -m tools.soak $(PART) $(if $(PYTEST),--pytest="$(PYTEST)")

bench: $(DEV) ## measure, with baselines in the same run
	@$(BIN)/python -m tools.bench $(BENCH)

mutants: $(DEV) ## change the rules a little, many times; tests must notice
	@$(BIN)/python -m tools.mutants

lock: $(DEV) ## refresh both lock files to the newest allowed versions, for every supported Python
	@echo "-- requirements.lock";     $(BUILD) | $(COMPILE) -o requirements.lock pyproject.toml -
	@echo "-- requirements-dev.lock"; $(COMPILE) -o requirements-dev.lock requirements-dev.in

clean: ## remove .venv, caches and build products (never .perdure, your data)
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks .coverage .mutants
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# The environments. A stamp is newer than the lock it was made from; a changed lock builds anew.
# pip runs from outside the environment, so this works where ensurepip is not installed.

$(RUNTIME): requirements.lock pyproject.toml
	@echo "-- creating $(VENV)"
	@$(PYTHON) -m venv --clear --without-pip $(VENV)
	@echo "-- installing pinned dependencies"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	@echo "-- installing pinned development dependencies"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@
