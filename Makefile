# Everything runs in .venv, which is made on demand. Extra pip options go into PIP_ARGS, for instance PyTorch's own
# CPU index:  make test PIP_ARGS="--extra-index-url <index>"
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_ARGS ?=
EXTRAS := serve,kernels,gpu,ncu,bench,report,dev

.PHONY: demo test lint bench install clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

# The main job on the embedded server (random weights, CPU): the fallback kernels' plateau, its cure, and the verdict.
demo: install
	$(BIN)/dsv4bench campaign scenarios/embedded-cpu.yaml --out results/.demo --findings results/.demo/PROFILE_FINDINGS.md

# What only computes runs on all cores; what waits for servers and profilers of its own, four files at a time; what
# measures with clocks and sockets, or sends signals to itself, alone. All three always run.
COMPUTE := tests/kernels tests/attribution tests/compare tests/records tests/report tests/scenario tests/trace \
	$(wildcard tests/engine/test_cuda_*.py) tests/cli/test_cli_kernels.py
ALONE := tests/load tests/host $(wildcard tests/test_*.py) tests/engine/test_profile_without_folder.py \
	tests/runs/test_live_profile_folders.py tests/runs/test_live_profile_repeated.py tests/runs/test_told_to_stop.py
WAITING := tests/runs tests/capture tests/cli tests/engine tests/server tests/store

test: install
	$(BIN)/python -m pytest --numprocesses=auto --dist=loadfile $(COMPUTE); compute=$$?; \
	$(BIN)/python -m pytest --numprocesses=4 --dist=loadfile --timeout=150 $(WAITING) \
		$(COMPUTE:%=--ignore=%) $(ALONE:%=--ignore=%); waiting=$$?; \
	$(BIN)/python -m pytest --timeout=300 $(ALONE) && exit $$((compute + waiting))

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/load_client.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist build
