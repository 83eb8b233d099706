#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains with Ballast under Slurm for as long as it takes: before the time limit the run commits a checkpoint and goes back
# into the queue; after a node failure Slurm requeues it; each start continues where the last checkpoint is, on whatever
# nodes it gets (the plan is made anew when they differ).
#
#   sbatch jobscripts/slurm.sh
#
# Change the lines below to your nodes and times, and the three variables.
#SBATCH --job-name=ballast
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=ballast-%j.log
# USR1 to this script 300 s before the limit. Slurm may send it 60 s early; a step and a checkpoint must fit into the rest.
#SBATCH --signal=B:USR1@300
set -uo pipefail

ballast=${BALLAST:-ballast}      # path of the program
run=${1:-run.toml}               # what to train; [checkpoint] directory must be on storage that all nodes see
report=ballast-$SLURM_JOB_ID.json

# The report is written at the very end. After the loss of a node srun may end with code 0: then it is not there.
rm -f "$report"
# With another MPI than the one Slurm was built for: mpirun instead of srun --mpi=pmix.
srun --mpi=pmix "$ballast" train "$run" -o "$report" &
step=$!
trap 'kill -USR1 "$step"' USR1

# A trapped signal ends `wait` while srun still runs.
wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do
  wait "$step"
  code=$?
done

# 75: stopped early with a committed checkpoint, start me again.
if [ "$code" = 75 ] || { [ "$code" = 0 ] && [ ! -e "$report" ]; }; then
  echo "slurm.sh: code $code, restart ${SLURM_RESTART_COUNT:-0}: back into the queue"
  scontrol requeue "$SLURM_JOB_ID"
  exit 0
fi
echo "slurm.sh: ended with code $code"
exit "$code"
