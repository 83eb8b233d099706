# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Settings for Open MPI on one machine: source this before mpirun. Other MPIs ignore them. CMake reads the
# lines, too. Root may start ranks (containers); more ranks than cores are fine, and give way to each other while they
# wait; ranks are not bound to cores, as several jobs would share the first ones; shared memory works without the ptrace
# right, which containers lack.
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
