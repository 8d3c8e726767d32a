# Everything a contributor runs. `make help` lists it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  ?= 2.15.0
# Most tests wait for processes: twice as many as there are processors keep these busy.
PYTEST := $(BIN)/pytest -n $(shell echo $$(( $$(nproc) * 2 ))) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-long test-native test-sanitized check drop zoo chaos fuzz soak restarts matrix aarch64 logs bench gpu-kit dist native-package docs test-torch torch-suite clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# The stamp changes with pyproject.toml, so that a pull installs what is new.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

venv: $(VENV)/.installed  ## make .venv and install everything into it

demo: venv  ## a real job that hangs, and frtop on it
	$(BIN)/frtop demo

test: venv  ## all tests, several files at a time
	$(PYTEST)

test-long: venv  ## the tests that take long, and property tests with 1,000 examples each
	$(PYTEST) -m long
	$(PYTEST) -m hypothesis --hypothesis-profile=thorough --timeout=3600

test-native: venv  ## the recorder's tests on the native kernels, which it builds
	$(BIN)/python -m frtop_probe.recorder.native.build
	FRTOP_NATIVE=1 $(PYTEST) tests/recorder tests/ring tests/features

# Sanitizers find what no test sees. Another cache, because the name of a build has no options.
test-sanitized: venv  ## a stress of the native kernels under two sanitizers: make test-sanitized COUNT=100000
	for one in address thread; do tests/recorder/sanitized.sh $$one $(BIN)/python $(or $(COUNT),20000) || exit 1; done

check: venv  ## formatting, lint, types, layering
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

drop: venv  ## delete each feature in a copy of the tree: the rest must go on: make drop DROP='watch --all'
	$(BIN)/python tests/drop.py $(DROP)

zoo: venv  ## every way to hang, and what is said of it: make zoo ZOO='--only dead', ZOO=--table
	cd tests && ../$(BIN)/python -m zoo $(ZOO)

chaos: venv  ## real jobs and frtop beside them, hurt at random: make chaos ROUNDS=200 CHAOS='--seed 7'
	cd tests && ../$(BIN)/python -m chaos --rounds $(or $(ROUNDS),20) $(CHAOS)

fuzz: venv  ## hostile input to all that reads what others write: make fuzz SECONDS=600 FUZZ='--target rings'
	cd tests && ../$(BIN)/python -m fuzz --seconds $(or $(SECONDS),60) $(FUZZ)

soak: venv  ## jobs and frtop for an hour, nothing may grow: make soak MINUTES=60
	cd tests && ../$(BIN)/python -m soak --minutes $(or $(MINUTES),60)

restarts: venv  ## ranks that come and go under one agent: make restarts COUNT=10000
	cd tests && ../$(BIN)/python -W ignore -m soak.restarts --count $(or $(COUNT),10000)

matrix: venv  ## several torches by several Pythons: make matrix MATRIX='--torch 2.15.0 --folder DIR'
	cd tests && ../$(BIN)/python -m compat $(MATRIX)

aarch64: venv  ## tests without torch on an emulated aarch64; needs root: make aarch64 AARCH64='tests/ring'
	$(BIN)/python tests/aarch64.py $(AARCH64)

logs: venv  ## logs of faults made on purpose, on which the reader of logs is tested: make logs OUT=/tmp/logs
	cd tests && ../$(BIN)/python -m files.logs.making $(OUT) $(LOGS)

bench: venv  ## what frtop costs and how fast it is, measured here and now
	$(BIN)/python -W ignore::FutureWarning -m bench

gpu-kit: venv  ## dist/gpu-kit: the checks for a machine with one GPU and no network (docs/nccl.md)
	$(BIN)/python -m gpu_kit.pack dist/gpu-kit

dist: venv  ## dist/: wheels, sdist and frtop.pyz from the last commit, the same bytes each time
	$(BIN)/python -m release.dist dist

native-package:  ## dist/frtop_native-*.whl: the native kernels for one Python and all torches: FOR=python3.12
	PYTHONPATH=probe $(or $(FOR),$(PYTHON)) -m release.native dist

docs: venv  ## dist/docs: keys, fields of formats, the JSON schema, the manual page; and the pictures of docs/
	$(BIN)/python -m docs.pictures
	$(BIN)/python -m docs.keys
	$(BIN)/python -m docs.formats
	$(BIN)/python -m docs.manual

# Another torch needs another environment: torch is the one thing that differs.
test-torch:  ## recorder and end-to-end tests on another torch: make test-torch TORCH=2.15.0
	$(MAKE) venv-torch VENV=.venv-torch-$(TORCH)
	.venv-torch-$(TORCH)/bin/pytest -n logical --dist loadfile --no-loadscope-reorder -m 'torch or job'

# With another torch: SUITE='--python .venv-torch-2.15.0/bin/python'; expecttest has to be there.
torch-suite: venv  ## torch's own distributed tests without and with frtop: make torch-suite SUITE='rpc --filter Jit'
	PYTHONPATH=tests $(BIN)/python -m torch_suite $(SUITE)

.PHONY: venv-torch
venv-torch: $(VENV)/.installed-torch
$(VENV)/.installed-torch: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet 'torch==$(TORCH)' numpy
	$(BIN)/pip install --quiet --editable '.[metrics]' $$($(BIN)/python -c "import tomllib; print(*[d for d in tomllib.load(open('pyproject.toml','rb'))['project']['optional-dependencies']['dev'] if not d.startswith('frtop')])")
	touch $@

clean:  ## remove environments and caches
	rm -rf .venv .venv-torch-* .torch-suite .bench-cache .mypy_cache .ruff_cache .pytest_cache
