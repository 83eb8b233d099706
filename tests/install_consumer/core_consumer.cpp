// SPDX-License-Identifier: Apache-2.0
/// Uses MPI, JSON and text of an installed ballast::core.
#include <cstdio>

#include "ballast/base/units.hpp"
#include "ballast/cluster/environment.hpp"

int main(int argc, char** argv) {
  return ballast::run_main(argc, argv, [](ballast::Environment& environment) {
    auto const copy = ballast::topology_from_json(ballast::to_json(environment.topology()), "copy");
    bool const equal = copy == environment.topology();
    std::printf("rank %d of %d, %s, topology copy %s\n", environment.rank(), environment.size(),
                ballast::format_bytes(1536).c_str(), equal ? "equal" : "differs");
    return equal && environment.size() == 2 ? 0 : 1;
  });
}
