// SPDX-License-Identifier: Apache-2.0
/// Who of a group takes how many samples.
#pragma once

#include "ballast/cluster/topology.hpp"
#include "ballast/plan/plan.hpp"
#include "cost_table.hpp"

#include <cstdint>
#include <vector>

namespace ballast::detail {

/// Returns the samples that each device of a group takes of a micro-batch of the layers `range`, so that the slowest is
/// as fast as can be found: by speed or equal, improved by moving single samples.
std::vector<std::int64_t> shares_by_speed(std::vector<Device> const& devices, LayerRange range,
                                          std::int64_t micro_batch, LayerTable& layers);

}  // namespace ballast::detail
