#!/usr/bin/env bash
# Builds every fuzz target and runs each for a few seconds, from its seeds.
# usage: smoke.sh [SECONDS]
#
# It needs neither cargo-fuzz nor a nightly compiler: the flags below are those that `cargo fuzz run -s none` passes.
set -euo pipefail
cd "$(dirname "$0")"
seconds="${1:-10}"
host="$(rustc -vV | sed -n 's/^host: //p')"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
# With --target, build scripts and procedural macros are built without them.
cargo build --release --target "$host"

targets=0
for source in fuzz_targets/*.rs; do
  target="$(basename "$source" .rs)"
  corpus="corpus/$target"
  artifacts="artifacts/$target"
  mkdir -p "$corpus" "$artifacts"
  echo "== $target, $seconds s"
  if ! "$CARGO_TARGET_DIR/$host/release/$target" -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=2048 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$artifacts/" "$corpus" "seeds/$target" >"$artifacts/log" 2>&1; then
    tail -40 "$artifacts/log"
    echo "$target failed; the input is in fuzz/$artifacts/" >&2
    exit 1
  fi
  # A target that stood still would find nothing either.
  runs="$(sed -n 's/^stat::number_of_executed_units: *//p' "$artifacts/log")"
  [ "${runs:-0}" -gt 0 ] || { echo "$target did not run; see fuzz/$artifacts/log" >&2; exit 1; }
  echo "   $runs runs"
  targets=$((targets + 1))
done
echo "$targets targets, none failed"
