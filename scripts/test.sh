#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets the machine up, builds and runs the tests: first ballast_core's pure tests under the sanitizers, then the whole
# release suite without the label slow. The last lines are ctest's summary of the release suite.
#
#   scripts/test.sh              all of it
#   scripts/test.sh --quick      the release suite only
#   scripts/test.sh -L LABEL     only tests with this label (regular expression), e.g. -L pure, -L 'slow|mpi'
set -euo pipefail
cd "$(dirname "$0")/.."

quick='' label=''
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=1 ;;
    -L) label=${2:?-L needs a label}; shift ;;
    *) sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

scripts/setup.sh
jobs=$(nproc)

build() {  # build <preset>
  cmake --preset "$1" >"build/$1.log" 2>&1 || { cat "build/$1.log" >&2; return 1; }
  cmake --build --preset "$1" -j "$jobs"
}
mkdir -p build

# A failure of the first suite is remembered, so that the second still runs and closes the output.
status=0
if [ -z "$quick" ]; then
  build asan
  ctest --preset asan -j "$jobs" ${label:+-L "$label"} || { status=1; echo "test.sh: the asan suite failed" >&2; }
fi
build release
if [ -n "$label" ]; then
  # Not by preset: it leaves slow tests out even when they are asked for.
  ctest --test-dir build/release --output-on-failure --no-tests=error -j "$jobs" -L "$label" || status=1
else
  ctest --preset release -j "$jobs" || status=1
fi
exit "$status"
