# Thin: the work is in CMakePresets.json, scripts/ and CMake. `make help` lists the targets.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TEST_JOBS ?= $(JOBS)
TEST_SECONDS ?= 1500# bound on the whole of a ctest run
PREFIX ?= /usr/local
BENCH_ARGS ?= all_reduce -n 2 --bytes 4,1K,64K,1M,25M

# Objects are found again in another clone.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.DEFAULT_GOAL := build
.PHONY: build python examples test lint format tidy bench bench-peers bench-overlap bench-pytorch pytorch2 demo install asan tsan clang clean help setup

build: setup  ## the library, build/gradsync and build/python (preset release)
	@said=$$(cmake --preset release -Wno-dev) || { echo "$$said"; exit 1; }; echo "$$said" | grep 'left out' || true
	@cmake --build --preset release -j $(JOBS)

setup:
	@scripts/setup build test

examples: setup build  ## the programs of examples/
	@cmake --build --preset release -j $(JOBS) --target examples

test: setup-all build  ## install what is missing, build, run every test
	@cmake --build --preset release -j $(JOBS) --target tests
	@timeout -k 10 $(TEST_SECONDS) ctest --preset release -j $(TEST_JOBS) --timeout 600

.PHONY: setup-all
setup-all:
	@scripts/setup

lint:  ## rows and house rules, layout of the code
	@scripts/lint

format:  ## lay the code out with clang-format
	@scripts/format

tidy: setup-all build  ## clang-tidy over all sources (minutes)
	@scripts/tidy

bench: build  ## time all-reduce over shm and tcp; BENCH_ARGS changes what
	@build/gradsync bench $(BENCH_ARGS) --transport shm
	@build/gradsync bench $(BENCH_ARGS) --transport tcp

demo:  ## train a network on every core and on one, compare, and write out/demo/report.html (5 minutes)
	@scripts/demo

bench-peers: setup-all  ## all-reduce beside Open MPI, MPICH, Gloo, PyTorch and the machine's limits (root); PEERS_ARGS="--quick"
	@cmake --preset release -Wno-dev >/dev/null
	@cmake --build --preset release -j $(JOBS) --target gradsync peers
	@bench/peers/run $(PEERS_ARGS)

bench-overlap: setup-all build  ## communication hidden under backward, beside PyTorch's DDP, at 1 Gbit/s and on one host (root)
	@cmake --build --preset release -j $(JOBS) --target overlap_rank
	@bench/overlap/run $(OVERLAP_ARGS)

python: setup  ## the Python package in build/python, for PYTHONPATH (part of the default build)
	@cmake --preset release -Wno-dev >/dev/null
	@cmake --build --preset release -j $(JOBS) --target python

pytorch2:  ## build and test the PyTorch backend with the PyTorch 2 of Debian 13, in a tree of that system (root, 3 GB)
	@scripts/pytorch2

bench-pytorch: setup-all build  ## collectives of torch.distributed over gradsync beside Gloo; PYTORCH_ARGS goes to bench/pytorch/run
	@PYTHONPATH=build/python /usr/bin/python3 bench/pytorch/run $(PYTORCH_ARGS)

install: build  ## install to PREFIX (default /usr/local)
	@cmake --install build --prefix $(PREFIX)

asan: setup-all  ## build and run the core tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/sanitize asan $(JOBS)

tsan: setup-all  ## build and run the core tests under ThreadSanitizer
	@scripts/sanitize tsan $(JOBS)

clang: setup-all  ## compile everything with Clang, warnings as errors
	@cmake --preset clang -Wno-dev >/dev/null
	@cmake --build --preset clang -j $(JOBS)

clean:  ## remove every build folder of the presets
	@rm -rf build build-dev build-asan build-tsan build-clang build-wheel

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile
