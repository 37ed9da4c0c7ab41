# `make run` and `make test` do everything from a fresh clone: environment, installation, work.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: run test slow lint docs bench wheel sanitize clean
.DEFAULT_GOAL := run

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml setup.py constraints.txt $(wildcard kreiss/recurrence/csrc/*)
	$(PIP) --editable .
	touch $@

# One stamp per extra, so that each command installs what it needs and nothing else.
$(VENV)/.test $(VENV)/.lint $(VENV)/.docs $(VENV)/.plots $(VENV)/.wheel: $(VENV)/.%: $(VENV)/.core
	$(PIP) --editable '.[$*]'
	touch $@

run: $(VENV)/.plots  ## train four networks on the copy task and compare them, with a table and a picture
	$(BIN)/kreiss demo

test: $(VENV)/.test  ## run the whole test suite
	$(BIN)/python -m pytest -n auto

slow: $(VENV)/.test  ## the long forms of tests, which the suite runs in a short form
	$(BIN)/python -m pytest -n auto -m slow

lint: $(VENV)/.lint  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## build the documentation into docs/_build
	$(BIN)/sphinx-build -W -q docs docs/_build

bench: $(VENV)/.core  ## speed on this machine, against torch's own layers
	$(BIN)/kreiss bench

wheel: $(VENV)/.wheel  ## a wheel with the kernel for this platform in dist/, as manylinux where auditwheel allows it
	rm -rf build/wheel && mkdir -p dist
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl || cp build/wheel/*.whl dist/

sanitize: $(VENV)/.test  ## the kernel's tests under the address and undefined-behaviour sanitizers
	KREISS_SANITIZE=1 $(BIN)/python setup.py --quiet build_ext --build-lib build/sanitized --build-temp build/objects
	KREISS_KERNEL=build/sanitized/kreiss/recurrence/_kernel.so ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	$(BIN)/python -m pytest tests/test_kernel.py tests/test_kernel_input.py tests/test_hostile_kernel.py \
	tests/test_gated_kernel.py tests/test_memory_kernel.py tests/test_stream.py tests/test_optim.py \
	tests/test_whole_pass.py tests/test_cross_entropy.py tests/test_basepoint.py tests/test_products.py

clean:
	rm -rf $(VENV) build docs/_build *.egg-info
