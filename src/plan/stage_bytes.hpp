// SPDX-License-Identifier: Apache-2.0
/// The bytes of any stage, by the formula at `CutClass`, in constant time.
#pragma once

#include "ballast/plan/cut.hpp"

#include <cstdint>
#include <vector>

namespace ballast::detail {

class StageBytes {
 public:
  /// `least`: with the least bytes of the class. `unit_class` outlives the object.
  StageBytes(CutClass const& unit_class, bool least);

  std::int64_t bytes(int begin, int end, std::int64_t in_flight) const {
    return without_peak(begin, end, in_flight) + highest(begin, end) - in_flight_[static_cast<std::size_t>(begin)];
  }

  /// Returns whether a stage never needs less when it begins further left, with so many micro-batches in flight.
  bool grow(std::int64_t in_flight) const;

  /// Returns, for each end, the smallest begin with which a stage is within `memory_bytes`. @pre `grow(in_flight)`
  std::vector<int> smallest_begins(std::int64_t memory_bytes, std::int64_t in_flight) const;

 private:
  /// All but the last term of the formula.
  std::int64_t without_peak(int begin, int end, std::int64_t in_flight) const {
    auto const b = static_cast<std::size_t>(begin);
    auto const e = static_cast<std::size_t>(end);
    return fixed_[e] - fixed_[b] + (in_flight - 1) * (in_flight_[e] - in_flight_[b]) +
           in_flight * unit_class_->input_bytes[b] + unit_class_->begin_bytes[b];
  }

  /// The largest height of the layers [begin, end).
  std::int64_t highest(int begin, int end) const;

  CutClass const* unit_class_;
  std::vector<std::int64_t> fixed_;      ///< prefix sums
  std::vector<std::int64_t> in_flight_;  ///< prefix sums
  std::vector<std::vector<std::int64_t>>
      heights_;  ///< [p][l]: largest in_flight_[m + 1] + transient[m], m in [l, l + 2^p)
};

}  // namespace ballast::detail
