#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to a balanced, sharded, checkpointed training run: sets up, builds, and trains a byte-level GPT on
# a simulated cluster of two unequal nodes with two devices each; stops half-way, resumes, and reports.
#
#   scripts/quickstart.sh [TEXT...]     TEXT: files or folders of your own text, 1 MB or more (default: a Debian package's)
#
# Plan, profiles, checkpoints and metrics are in runs/quickstart afterwards; the folder is emptied first.
set -euo pipefail
case "${1:-}" in -*) sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
texts=()
for text in "$@"; do texts+=("\"$(realpath -e -- "$text")\""); done
cd "$(dirname "$0")/.."
example=apps/examples/quickstart
run=runs/quickstart
ballast=build/release/apps/ballast/ballast
title() { printf '\n== %s (after %s s)\n' "$*" "$SECONDS"; }

title "Set-up"
scripts/setup.sh

title "Build"
mkdir -p build
{ cmake --preset release && cmake --build --preset release --target ballast_cli -j "$(nproc)"; } >build/quickstart.log 2>&1 ||
  { tail -n 40 build/quickstart.log >&2; echo "quickstart: the build failed; see build/quickstart.log" >&2; exit 1; }

source scripts/env.sh
rm -rf "$run"
mpi=(timeout -k 5 600 mpirun -n 4)
flags=(--set "train.steps=${BALLAST_TRAIN_STEPS:-$(sed -n 's/^steps = //p' $example/run.toml)}")
[ ${#texts[@]} = 0 ] || flags+=(--set "data.paths=[$(IFS=,; echo "${texts[*]}")]")
steps=${flags[1]#*=}

title "What the job runs on"
"${mpi[@]}" "$ballast" discover --cluster $example/cluster.toml

title "Train: profile, balance, first half"
# Exit code 75: stopped early with a committed checkpoint.
status=0
"${mpi[@]}" "$ballast" train $example/run.toml "${flags[@]}" --stop-at $((steps / 2)) || status=$?
[ $status = 75 ] || { echo "quickstart: expected exit code 75 after the early stop, found $status" >&2; exit 1; }

title "Train: resume, second half"
"${mpi[@]}" "$ballast" train $example/run.toml "${flags[@]}" -o $run/report.json

title "What is on disk"
"$ballast" checkpoint inspect $run
title "Done"
