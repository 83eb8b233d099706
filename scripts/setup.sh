#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes this machine ready to build and test Ballast: installs what is missing with apt (needs root or sudo without a
# password) and unpacks LibTorch into .deps/. Run again, it does nothing. Never asks.
#
#   scripts/setup.sh           install what is missing
#   scripts/setup.sh --check   only say what is missing; exit 1 if anything is
#
# What is there already is used: an MPI in PATH or MPI_HOME, HDF5 in PATH or HDF5_ROOT, libraries below
# CMAKE_PREFIX_PATH, LibTorch in Torch_DIR, LibTorch_ROOT or CMAKE_PREFIX_PATH. pip obeys PIP_* and pip.conf.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
# What libtorch_cpu.so loads besides; the versions are those its wheel asks for.
torch_libraries=(nvidia-cuda-cupti==13.0.85 nvidia-cuda-runtime==13.0.96)

check_only=""
case "$*" in
  "") ;;
  --check) check_only=1 ;;
  *) sed -n '3,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
say() { echo "setup: $*"; }

# ---- What is missing?
prefixes=(/usr/local /usr)
IFS=':;' read -ra given <<<"${CMAKE_PREFIX_PATH:-}"
prefixes=(${given[@]+"${given[@]}"} "${prefixes[@]}")
have_file() {  # have_file <path below a prefix>...: one of them is there
  local prefix path
  for prefix in "${prefixes[@]}"; do
    for path in "$@"; do [ ! -e "$prefix/$path" ] || return 0; done
  done
  return 1
}
have_command() { command -v "$1"; }
have_cmake() { printf '3.25\n%s\n' "$(cmake --version | sed -n '1s/[^0-9]*//p')" | sort -CV; }
have_mpi() { [ -n "${MPI_HOME:-}" ] || command -v mpicc; }
have_mpirun() { [ -n "${MPI_HOME:-}" ] || command -v mpiexec; }
have_hdf5() { [ -n "${HDF5_ROOT:-}" ] || command -v h5cc || have_file include/hdf5.h include/hdf5/serial/hdf5.h; }
have_h5py() { python3 -c 'import h5py' || /usr/bin/python3 -c 'import h5py'; }
have_pip() { have_torch || python3 -m pip --version; }
have_torch() {
  { [ -n "${Torch_DIR:-}" ] && [ -e "$Torch_DIR/../../../lib/libtorch_cpu.so" ]; } ||
    { [ -n "${LibTorch_ROOT:-}" ] && [ -e "$LibTorch_ROOT/lib/libtorch_cpu.so" ]; } ||
    have_file lib/libtorch_cpu.so ../../lib/libtorch_cpu.so || have_own_torch
}
have_own_torch() {
  grep -q "'$torch_version" .deps/torch/version.py && [ -e .deps/nvidia/cu13/lib/libcudart.so.13 ]
}

packages=()
reasons=()
want() {  # want <Debian package> <what it is for> <command that succeeds if it is there>...
  "${@:3}" >/dev/null 2>&1 && return
  packages+=("$1")
  reasons+=("$2")
}
want ca-certificates      "HTTPS"                                  test -e /etc/ssl/certs/ca-certificates.crt
want g++                  "C++20 compiler"                         have_command c++
want cmake                "build, >= 3.25"                         have_cmake
want ninja-build          "build"                                  have_command ninja
want pkg-config           "build: finds libraries"                 have_command pkg-config
want libopenmpi-dev       "MPI, headers and libraries"             have_mpi
want openmpi-bin          "MPI, starting programs"                 have_mpirun
want libhdf5-dev          "checkpoints"                            have_hdf5
want libhwloc-dev         "discovery of the machine"               have_file include/hwloc.h
want nlohmann-json3-dev   "plans and profiles as JSON"             have_file include/nlohmann/json.hpp
want libtomlplusplus-dev  "configuration files"                    have_file include/toml++/toml.h
want libcli11-dev         "command line"                           have_file include/CLI/CLI.hpp
want libfmt-dev           "text"                                   have_file include/fmt/format.h
want libspdlog-dev        "log"                                    have_file include/spdlog/spdlog.h
want libxxhash-dev        "fingerprints and hashes of files"       have_file include/xxhash.h
want libgtest-dev         "tests"                                  have_file include/gtest/gtest.h
want libbenchmark-dev     "benchmarks"                             have_file include/benchmark/benchmark.h
want python3              "tests; unpacks LibTorch"                have_command python3
want python3-h5py         "tests: reads our files with other code" have_h5py
want python3-pip          "downloads LibTorch"                     have_pip
want fortunes             "English text that the examples learn"   test -e /usr/share/games/fortunes/cookie
torch_missing=""
have_torch >/dev/null 2>&1 || torch_missing=1

list_missing() {
  local place
  for place in "${!packages[@]}"; do printf '  %-20s %s\n' "${packages[place]}" "${reasons[place]}"; done
  [ -z "$torch_missing" ] ||
    echo "  LibTorch             PyPI's wheel torch==$torch_version (with ${torch_libraries[*]}); or set Torch_DIR"
}
if [ ${#packages[@]} = 0 ] && [ -z "$torch_missing" ]; then
  say "everything is there"
  exit 0
fi
if [ -n "$check_only" ]; then
  say "missing, by Debian package:"
  list_missing
  exit 1
fi

# ---- Debian packages.
give_up() {
  say "$1. Missing, by Debian package:" >&2
  list_missing >&2
  exit 1
}
if [ ${#packages[@]} != 0 ]; then
  command -v apt-get >/dev/null || give_up "cannot install: no apt-get here"
  root=()
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || give_up "cannot install: neither root nor sudo without a password"
    root=(sudo -n)
  fi
  say "installing ${packages[*]}"
  log=$(mktemp)
  apt() {
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$log" 2>&1
  }
  if ! { apt update && apt install -y --no-install-recommends "${packages[@]}"; }; then
    tail -n 20 "$log" >&2
    give_up "apt-get failed (whole log: $log)"
  fi
  rm -f "$log"
  say "packages installed after $SECONDS s"
fi

# ---- LibTorch: a wheel holds the C++ headers and libraries. Its CPU part is enough; 0.5 GB instead of 1.1 GB.
if [ -n "$torch_missing" ]; then
  say "downloading LibTorch $torch_version (0.5 GB)"
  rm -rf .deps/part.*  # of a run that was killed
  work=.deps/part.$$
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work"
  arch=$(uname -m)
  # The tags are said so that any Python can download; headers and libraries are the same for all.
  python3 -m pip download -q --no-cache-dir --no-deps --dest "$work" --only-binary=:all: --python-version 3.11 \
    --platform "manylinux_2_28_$arch" --platform "manylinux_2_25_$arch" --platform "manylinux_2_17_$arch" \
    --platform "manylinux2014_$arch" "torch==$torch_version" "${torch_libraries[@]}" </dev/null ||
    { packages=(); give_up "pip could not download LibTorch"; }
  python3 - "$work" <<'PYTHON'
import pathlib, re, sys, zipfile
wanted = re.compile(r"torch/(include/.*|version\.py|lib/(libtorch_cpu|libc10|libgomp)\b.*)"
                    r"|nvidia/cu13/lib/(libcupti|libcudart)\.so.*")
work = pathlib.Path(sys.argv[1])
for wheel in work.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work, [name for name in archive.namelist() if wanted.fullmatch(name)])
    wheel.unlink()
PYTHON
  # As in site-packages: libtorch_cpu.so looks for ../../nvidia/cu13/lib. Renaming makes the result whole or absent.
  rm -rf .deps/torch .deps/nvidia
  mv "$work/nvidia" .deps/nvidia
  mv "$work/torch" .deps/torch
  say "LibTorch $torch_version is in .deps/torch"
fi
say "done after $SECONDS s"
