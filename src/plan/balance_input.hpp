// SPDX-License-Identifier: Apache-2.0
/// Refuses input of the balancer that makes no sense, before it makes no sense somewhere deep inside.
#pragma once

#include "ballast/plan/balance.hpp"

namespace ballast::detail {

/// @throws InvalidArgument naming the value, with its number.
void check_balance_input(ModelProfile const& profile, Topology const& topology, CollectiveProfile const& collectives,
                         BalanceOptions const& options);

}  // namespace ballast::detail
