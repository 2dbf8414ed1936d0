# SPDX-License-Identifier: MIT
# The thin front of CMake. `make run` and `make test` are all that a newcomer needs.
BUILD ?= build/release
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
DESTDIR ?=
SHELL := /bin/bash
.PHONY: help setup configure build everything run test check verify bench bench-models bench-sim answer gpu-bundle docs deb install uninstall format lint clean
.DEFAULT_GOAL := help

help:
	@echo 'make run      set up, build, prove the split right on two ranks and time it (bsrun)'
	@echo 'make test     build and run the tests (under 5 minutes), but for those that CI and make verify have time for (label long)'
	@echo "make check    build and run the tests that a regular expression names: make check T='test_op_.*'"
	@echo 'make verify   the same checks with the big counts; writes docs/verify/'
	@echo 'make bench    benchmarks against the peers, about an hour; prints Markdown tables (docs/performance.md)'
	@echo '              ISA=avx2 or all, CHOICE=measured, SKIP=grid,build, ONLY=matmul, QUICK=1, BS_PEERS_DIR=folder'
	@echo 'make bench-models   language models and MiniLM beside llama.cpp, ONNX Runtime and OpenVINO (BS_PEERS_DIR=folder, which'
	@echo '              scripts/peers fills); writes docs/data/DATE-models.jsonl and the table of docs/dev/benchmarks.md'
	@echo 'make bench-sim   messages a second and memory of the simulator, beside other simulators'
	@echo 'make answer   docs/answer.md and its chart: blockshock beside the other methods and dense, measured here in minutes'
	@echo 'make gpu-bundle   build/gpu-bundle: what tests the cuda plugin on a machine with a GPU (docs/gpu/README.md)'
	@echo 'make docs     the documentation as HTML with a search: $(BUILD)/share/doc/blockshock/html/index.html'
	@echo 'make deb      a Debian package, build/deb/blockshock_VERSION_ARCH.deb; scripts/deb --check tries it in a clean root'
	@echo 'BS_CUDA=on    before any of these: build the cuda plugin also where no GPU is; make run BS_CUDA=on'
	@echo 'make install | make uninstall  PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make format | make lint | make clean'

setup:
	@BS_SETUP_CUDA=$(or $(BS_CUDA),$(BS_SETUP_CUDA),auto) scripts/setup

# A folder is configured once, and again where BS_CUDA is given.
configure: setup
	@if [ ! -f $(BUILD)/build.ninja ] || [ -n '$(BS_CUDA)' ]; then cmake --preset release -B $(BUILD) $(if $(BS_CUDA),-DBS_CUDA=$(BS_CUDA)); fi

# What is installed; `everything` has the tests and benchmarks too.
build: configure
	@cmake --build $(BUILD) -j $(JOBS)

everything: configure
	@cmake --build $(BUILD) -j $(JOBS) --target all bs_tests bs_benches

LAYER := encoder.layer.0.intermediate.dense.weight
run: configure
	@cmake --build $(BUILD) -j $(JOBS) --target bs_run
	@if file=$$(scripts/fetch-trained-layer .deps/minilm); then \
	  set -- $(BUILD)/bin/bsrun -o table -q --phase 0 --workload file --set "workload.weights=$$file#$(LAYER)" --set workload.bias=auto; \
	  printf 'a trained layer: %s\n' "$$*"; "$$@" && echo; \
	else \
	  echo 'make run: the trained layer could not be fetched (scripts/fetch-trained-layer needs a network and pip);' \
	    'the run below is on generated data'; \
	fi
	$(BUILD)/bin/bsrun

# Two more than cores: tests wait for ranks, deadlines and the disk a quarter of their time.
test: everything
	@ctest --test-dir $(BUILD) --output-on-failure --no-label-summary -LE '^long$$' -j "$$(($$(nproc) + 2))"
	@scripts/test-budget $(BUILD) 20 --quiet

# One test or a few, with what they need: make check T='test_op_(ask|run)'
check: configure
	@[ -n '$(T)' ] || { echo "make check: name tests by a regular expression: make check T='test_op_.*'" >&2; exit 2; }
	@scripts/check-tests $(BUILD) -R '^($(T))$$'

verify: everything
	@scripts/verify $(BUILD)

bench: everything
	@bench/run $(BUILD) $(if $(QUICK),--quick) $(if $(ISA),--isa $(ISA)) $(if $(CHOICE),--choice $(CHOICE)) $(if $(ONLY),--only $(ONLY)) $(if $(SKIP),--skip $(SKIP))

BS_PEERS_DIR ?= $(CURDIR)/.deps/peers
TODAY := $(shell date -u +%Y-%m-%d)
bench-models: everything
	@scripts/peers $(BS_PEERS_DIR)
	@set -o pipefail; BS_PEERS_DIR=$(BS_PEERS_DIR) bench/run $(BUILD) --only models $(if $(QUICK),--quick) | tee $(BUILD)/bench-models.md
	@$(if $(QUICK),,scripts/perf-tables --read $(BUILD)/bench-models.md $(TODAY) > $(BUILD)/bench-models.jsonl && mv $(BUILD)/bench-models.jsonl docs/data/$(TODAY)-models.jsonl && scripts/perf-tables --write)

bench-sim: everything
	@$(BUILD)/bench/bench_sim
	@$(BUILD)/bench/bench_sim_inside

answer: build
	@scripts/answer $(BUILD)

gpu-bundle:
	@BS_SETUP_CUDA=on scripts/setup
	@scripts/gpu-bundle

docs: configure
	@scripts/setup --docs
	@cmake --build $(BUILD) --target bs_reference
	@scripts/docs-site $(BUILD)

deb:
	@scripts/setup --deb
	@scripts/deb

install: build
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

uninstall:
	@DESTDIR=$(DESTDIR) scripts/uninstall $(BUILD) $(PREFIX)

format:
	@git ls-files '*.c' '*.h' '*.cu' | grep -v abi_ledger.h | xargs clang-format -i

lint: everything
	@scripts/lint $(BUILD)

clean:
	rm -rf build
