// SPDX-License-Identifier: Apache-2.0
/// One node as JSON: part of a topology, and what the hosts of a job tell each other at discovery.
#pragma once

#include "ballast/base/json.hpp"
#include "ballast/cluster/topology.hpp"

#include <nlohmann/json.hpp>

namespace ballast::detail {

nlohmann::ordered_json node_json(Node const& node);
/// @throws DataError.
Node read_node(JsonReader& reader);

}  // namespace ballast::detail
