#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Strong scaling: trains the same run on 1, 2, 4, ... ranks and prints step time, speed-up and efficiency. Each run plans
# for itself. The reports stay in the output folder.
#
#   jobscripts/scaling.sh run.toml                     this machine, 1 2 4 ranks
#   RANKS="1 2 4 8" STEPS=50 OUTPUT=scaling jobscripts/scaling.sh run.toml
set -uo pipefail

ballast=${BALLAST:-ballast}     # path of the program
ranks=${RANKS:-1 2 4}           # numbers of ranks to try
steps=${STEPS:-20}              # updates per run; the first is not counted
output=${OUTPUT:-scaling}       # folder of the reports
launch=${LAUNCH:-mpirun --bind-to none -n}  # followed by the number of ranks; under Slurm: "srun --mpi=pmix -n"
run=${1:?usage: scaling.sh RUN.toml}

# A run on one rank more or less is another run: each has its own folder, and starts from nothing.
mkdir -p "$output" || exit 1
failed=0
for n in $ranks; do
  rm -rf "$output/checkpoints-$n"
  # shellcheck disable=SC2086  # LAUNCH is several words
  if ! $launch "$n" "$ballast" train "$run" --steps "$steps" --set "checkpoint.directory=$output/checkpoints-$n" \
      --set train.evaluate_batches=0 -o "$output/ranks-$n.json" >"$output/ranks-$n.txt" 2>"$output/ranks-$n.log"; then
    echo "scaling.sh: $n ranks failed, see $output/ranks-$n.log" >&2
    rm -f "$output/ranks-$n.json"
    failed=1
  fi
done

printf '%6s %12s %10s %11s\n' ranks step_s speed-up efficiency
for n in $ranks; do
  [ -e "$output/ranks-$n.json" ] || continue
  echo "$n $(sed -n 's/.*"measured_step_s": \([0-9.e+-]*\).*/\1/p' "$output/ranks-$n.json")"
done | awk 'NR == 1 { first = $1 * $2 } { printf "%6d %12.4g %10.2f %10.0f%%\n", $1, $2, first / $2, 100 * first / $2 / $1 }'
exit "$failed"
