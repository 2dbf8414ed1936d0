# SPDX-License-Identifier: MIT
# The thin front of CMake. `make run` and `make test` are all that a newcomer needs.
BUILD ?= build/release
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
DESTDIR ?=
SHELL := /bin/bash
.PHONY: help setup build run test verify bench bench-sim answer gpu-bundle docs install format lint clean
.DEFAULT_GOAL := help

help:
	@echo 'make run      set up, build, prove the split right on two ranks and time it (bsrun)'
	@echo 'make test     build and run the tests (under 6 minutes), but for those that CI and make verify have time for (label long)'
	@echo 'make verify   the same checks with the big counts; writes docs/verify/'
	@echo 'make bench    benchmarks against the peers, about an hour; prints Markdown tables (docs/performance.md)'
	@echo '              ISA=avx2 or all, CHOICE=measured, SKIP=grid,build, ONLY=matmul, QUICK=1, BS_PEERS_DIR=folder'
	@echo 'make bench-sim   messages a second and memory of the simulator, beside other simulators'
	@echo 'make answer   docs/answer.md and its chart: blockshock beside the other methods and dense, measured here in minutes'
	@echo 'make gpu-bundle   build/gpu-bundle: what tests the cuda plugin on a machine with a GPU (docs/gpu/README.md)'
	@echo 'make docs     the reference of the public headers: $(BUILD)/share/doc/blockshock/reference.md'
	@echo 'make install  PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make format | make lint | make clean'

setup:
	@scripts/setup

$(BUILD)/build.ninja: | setup
	@cmake --preset release -B $(BUILD)

build: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS)

LAYER := encoder.layer.0.intermediate.dense.weight
run: build
	@if file=$$(scripts/fetch-trained-layer .deps/minilm); then \
	  set -- $(BUILD)/bin/bsrun -o table -q --phase 0 --workload file --set "workload.weights=$$file#$(LAYER)" --set workload.bias=auto; \
	  printf 'a trained layer: %s\n' "$$*"; "$$@" && echo; \
	else \
	  echo 'make run: the trained layer could not be fetched (scripts/fetch-trained-layer needs a network and pip);' \
	    'the run below is on generated data'; \
	fi
	$(BUILD)/bin/bsrun

# One more than cores: tests of ranks that wait for one another leave a core idle.
test: build
	@ctest --test-dir $(BUILD) --output-on-failure --no-label-summary -LE '^long$$' -j "$$(($$(nproc) + 1))"
	@scripts/test-budget $(BUILD) 20 --quiet

verify: build
	@scripts/verify $(BUILD)

bench: build
	@bench/run $(BUILD) $(if $(QUICK),--quick) $(if $(ISA),--isa $(ISA)) $(if $(CHOICE),--choice $(CHOICE)) $(if $(ONLY),--only $(ONLY)) $(if $(SKIP),--skip $(SKIP))

bench-sim: build
	@$(BUILD)/bench/bench_sim

answer: build
	@scripts/answer $(BUILD)

gpu-bundle: setup
	@scripts/gpu-bundle

docs: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target bs_reference
	@echo $(BUILD)/share/doc/blockshock/reference.md

install: build
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@git ls-files '*.c' '*.h' '*.cu' | grep -v abi_ledger.h | xargs clang-format -i

lint: build
	@scripts/lint $(BUILD)

clean:
	rm -rf build
