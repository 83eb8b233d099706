#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains with Ballast under Open MPI's mpirun, without a scheduler.
#
#   jobscripts/mpirun.sh run.toml                      4 ranks on this machine
#   RANKS=8 HOSTS=node0:4,node1:4 jobscripts/mpirun.sh run.toml
#
# To stop early with a checkpoint:  kill -USR1 <process id of mpirun>   (exit code 75; start again to go on).
# TERM would leave the ranks two seconds only.
set -uo pipefail

ballast=${BALLAST:-ballast}   # path of the program, the same on all hosts
ranks=${RANKS:-4}             # one per device
hosts=${HOSTS:-}              # host:slots,host:slots; empty: this machine
run=${1:?usage: mpirun.sh RUN.toml [flags of ballast train]}
shift

options=(-n "$ranks" --bind-to none)
if [ -n "$hosts" ]; then
  # Without keepalive a host that vanishes is noticed after minutes; so, after ten seconds.
  options+=(--host "$hosts" --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3)
fi
# Variables go to other hosts only if they are named.
for variable in $(compgen -e | grep '^BALLAST_'); do options+=(-x "$variable"); done

# More ranks than cores (tests, laptops): let waiting ranks give way.
if [ "$ranks" -gt "$(nproc)" ] && [ -z "$hosts" ]; then options+=(--oversubscribe --mca mpi_yield_when_idle 1); fi

exec mpirun "${options[@]}" "$ballast" train "$run" "$@"
