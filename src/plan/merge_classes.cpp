// SPDX-License-Identifier: Apache-2.0
#include "merge_classes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ballast::detail {
namespace {

constexpr double kMaxStates = 20'000;

double num_states(std::vector<CutClass> const& classes) {
  double product = 1;
  for (auto const& unit_class : classes) product *= unit_class.count + 1;
  return product;
}

double total_seconds(CutClass const& unit_class) {
  auto const& seconds = unit_class.seconds;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

/// How much is lost when the two are taken for one: the ratios of their times and memories.
double difference(CutClass const& a, CutClass const& b) {
  auto const ratio = [](double x, double y) { return std::abs(std::log((x + 1e-12) / (y + 1e-12))); };
  return ratio(total_seconds(a), total_seconds(b)) +
         ratio(static_cast<double>(a.memory_bytes), static_cast<double>(b.memory_bytes));
}

template <class Value>
void take(std::vector<Value>& into, std::vector<Value> const& from, bool least) {
  for (std::size_t layer = 0; layer < into.size(); ++layer) {
    into[layer] = least ? std::min(into[layer], from[layer]) : std::max(into[layer], from[layer]);
  }
}

void merge(CutClass& into, CutClass const& from, bool optimistic) {
  into.count += from.count;
  into.memory_bytes =
      optimistic ? std::max(into.memory_bytes, from.memory_bytes) : std::min(into.memory_bytes, from.memory_bytes);
  take(into.seconds, from.seconds, optimistic);
  take(into.fixed_bytes, from.fixed_bytes, optimistic);
  take(into.in_flight_bytes, from.in_flight_bytes, optimistic);
  take(into.transient_bytes, from.transient_bytes, optimistic);
  take(into.input_bytes, from.input_bytes, optimistic);
  take(into.begin_bytes, from.begin_bytes, optimistic);
  take(into.least_in_flight_bytes, from.least_in_flight_bytes, optimistic);
  take(into.least_transient_bytes, from.least_transient_bytes, optimistic);
  into.seconds_per_byte = optimistic ? std::min(into.seconds_per_byte, from.seconds_per_byte)
                                     : std::max(into.seconds_per_byte, from.seconds_per_byte);
}

}  // namespace

void merge_classes(GroupingCut& cut, bool optimistic) {
  auto& classes = cut.problem.classes;
  while (classes.size() > 1 && num_states(classes) > kMaxStates) {
    std::size_t first = 0;
    std::size_t second = 1;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < classes.size(); ++a) {
      for (std::size_t b = a + 1; b < classes.size(); ++b) {
        double const now = difference(classes[a], classes[b]);
        if (now < least) {
          least = now;
          first = a;
          second = b;
        }
      }
    }
    merge(classes[first], classes[second], optimistic);
    cut.members[first].insert(cut.members[first].end(), cut.members[second].begin(), cut.members[second].end());
    classes.erase(classes.begin() + static_cast<std::ptrdiff_t>(second));
    cut.members.erase(cut.members.begin() + static_cast<std::ptrdiff_t>(second));
  }
}

}  // namespace ballast::detail
