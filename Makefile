# `make` prints the targets. PRESET picks another build (dev release asan tsan), SETUP=no leaves the system alone.
PRESET ?= release
SETUP ?= yes
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)

.DEFAULT_GOAL := help
.PHONY: help setup build train test tidy bench fuzz lint format clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## install the Debian packages that are missing
ifeq ($(SETUP),yes)
	@tools/setup.sh build
endif

build: setup  ## build everything into build/release
	@mkdir -p build
	@cmake --preset $(PRESET) -Wno-dev >$(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS)

train: build  ## make click logs with a known truth in build/ctr and train examples/ctr on them
	@test -e build/ctr/best_auc || $(BUILD)/src/bin/starling generate ctr --out build/ctr --samples 1000000 --keys 200000
	@$(BUILD)/src/bin/starling train examples/ctr/job.yaml --run build/ctr/run --fresh

test: build  ## build, run every test and tidy; ends with one line of counts
	@python3 tools/test.py $(BUILD)

tidy:  ## check the door plates, includes, lengths and paths (part of test)
	@python3 tools/tidy.py

bench: build  ## run every benchmark scenario against its rivals
	@python3 bench/run.py --all --build $(BUILD)

fuzz:  ## clang's libFuzzer on every decoder, SECONDS each (60)
ifeq ($(SETUP),yes)
	@tools/setup.sh build lint
endif
	@tools/fuzz.sh $(SECONDS)

lint:  ## clang's thread-safety analysis, clang-tidy and clang-format, as errors
ifeq ($(SETUP),yes)
	@tools/setup.sh build lint
endif
	@python3 tools/lint.py

format:  ## clang-format every C++ file
ifeq ($(SETUP),yes)
	@tools/setup.sh lint
endif
	@python3 tools/lint.py --format

clean:  ## delete build/
	rm -rf build
