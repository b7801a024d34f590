#!/bin/sh
# Runs every fuzz target with clang's libFuzzer under the address and undefined-behaviour sanitizers.
#
# usage: tools/fuzz.sh [SECONDS]        (per target; 60 when not given)
# Corpora lie in build/corpus and grow from run to run. A finding ends the run and is kept beside them.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
mkdir -p build
cmake --preset fuzz -Wno-dev >build/fuzz.configure.log 2>&1 || { cat build/fuzz.configure.log; exit 1; }
targets=$(ninja -C build/fuzz -t targets all | sed -n 's|^\([a-z_]*_fuzz\): phony$|\1|p' | grep -v '^cmake_' | sort -u)
# shellcheck disable=SC2086 # one word per target
ninja -C build/fuzz $targets
for target in $targets; do
  program=$(find build/fuzz/src -type f -name "$target")
  mkdir -p "build/corpus/$target"
  echo "== $target for $seconds s"
  "$program" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="build/corpus/finding-$target-" \
    "build/corpus/$target" 2>"build/corpus/$target.log" || { tail -n 40 "build/corpus/$target.log"; exit 1; }
  grep -E 'number_of_executed_units|new_units_added' "build/corpus/$target.log"
done
