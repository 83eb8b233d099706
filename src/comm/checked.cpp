// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/checked.hpp"

#include "ballast/base/seed.hpp"

#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ballast {
namespace {

enum class Operation : std::int64_t {
  broadcast,
  all_reduce,
  all_gather_v,
  reduce_scatter_v,
  barrier,
  split,
  split_by_node
};

/// What a rank says about the collective it is about to start. Travels as int64s.
struct Call {
  Operation operation = Operation::barrier;
  std::int64_t sequence = 0;  ///< number of collectives started on this communicator before
  std::int64_t type = -1;
  std::int64_t count = 0;        ///< elements in all
  std::int64_t counts_hash = 0;  ///< of the counts per rank, in order
  std::int64_t root = -1;
  std::int64_t reduction = -1;
  friend auto operator<=>(Call const&, Call const&) = default;
};
constexpr std::size_t kCallLength = sizeof(Call) / sizeof(std::int64_t);
static_assert(sizeof(Call) == kCallLength * sizeof(std::int64_t));

std::string describe(Call const& call) {
  constexpr char const* names[] = {"broadcast", "all_reduce", "all_gather(_v)", "reduce_scatter_v",
                                   "barrier",   "split",      "split_by_node"};
  constexpr char const* reductions[] = {"sum", "max", "min"};
  std::string text = names[static_cast<std::size_t>(call.operation)];
  if (call.reduction >= 0) text += fmt::format(" ({})", reductions[call.reduction]);
  if (call.type >= 0) text += fmt::format(" of {} {}", call.count, to_string(static_cast<DataType>(call.type)));
  if (call.counts_hash != 0) text += fmt::format(" [counts {:08x}]", static_cast<std::uint32_t>(call.counts_hash));
  if (call.root >= 0) text += fmt::format(" from root {}", call.root);
  return text + fmt::format(", its collective {}", call.sequence);
}

class CheckedCommunicator final : public Communicator {
 public:
  explicit CheckedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    compare({.operation = Operation::split});
    return checked(inner_->split(color, key));
  }
  std::unique_ptr<Communicator> split_by_node() override {
    compare({.operation = Operation::split_by_node});
    return checked(inner_->split_by_node());
  }

  void report_failure(ErrorKind kind, std::string const& message) noexcept override {
    inner_->report_failure(kind, message);
  }
  void check_failure() override { inner_->check_failure(); }

 protected:
  Request do_broadcast(void* data, std::int64_t count, DataType type, int root) override {
    compare({.operation = Operation::broadcast, .type = static_cast<std::int64_t>(type), .count = count, .root = root});
    return inner_->broadcast(data, count, type, root);
  }
  Request do_all_reduce(void* data, std::int64_t count, DataType type, ReduceOperation operation) override {
    compare({.operation = Operation::all_reduce,
             .type = static_cast<std::int64_t>(type),
             .count = count,
             .reduction = static_cast<std::int64_t>(operation)});
    return inner_->all_reduce(data, count, type, operation);
  }
  Request do_all_gather_v(void const* mine, void* all, std::span<std::int64_t const> counts, DataType type) override {
    compare(with_counts(Operation::all_gather_v, counts, type));
    return inner_->all_gather_v(mine, all, counts, type);
  }
  Request do_reduce_scatter_v(void const* all, void* mine, std::span<std::int64_t const> counts,
                              DataType type) override {
    compare(with_counts(Operation::reduce_scatter_v, counts, type));
    return inner_->reduce_scatter_v(all, mine, counts, type);
  }
  Request do_send(void const* data, std::int64_t count, DataType type, int destination, int tag) override {
    return inner_->send(data, count, type, destination, tag);
  }
  Request do_recv(void* data, std::int64_t count, DataType type, int source, int tag) override {
    return inner_->recv(data, count, type, source, tag);
  }
  void do_barrier() override {
    compare({.operation = Operation::barrier});
    inner_->barrier();
  }

 private:
  static std::unique_ptr<Communicator> checked(std::unique_ptr<Communicator> part) {
    return part ? make_checked(std::move(part)) : nullptr;
  }

  static Call with_counts(Operation operation, std::span<std::int64_t const> counts, DataType type) {
    std::string_view const bytes(reinterpret_cast<char const*>(counts.data()), counts.size_bytes());
    return {.operation = operation,
            .type = static_cast<std::int64_t>(type),
            .count = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
            .counts_hash = static_cast<std::int64_t>(derive_seed(0, bytes))};
  }

  /// Waits until all ranks said what they are about to do; throws on all of them when it is not the same.
  void compare(Call call) {
    call.sequence = sequence_++;
    std::vector<Call> calls(static_cast<std::size_t>(size()));
    inner_->all_gather(&call, calls.data(), kCallLength, DataType::int64).synchronize();

    std::map<Call, std::vector<int>> ranks_of_call;
    for (int rank = 0; rank < size(); ++rank) ranks_of_call[calls[static_cast<std::size_t>(rank)]].push_back(rank);
    if (ranks_of_call.size() == 1) return;
    std::vector<std::string> parts;
    for (auto const& [what, ranks] : ranks_of_call) {
      parts.push_back(
          fmt::format("rank{} {}: {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "), describe(what)));
    }
    throw CommunicationError(fmt::format("the ranks called different collectives: {}", fmt::join(parts, "; ")));
  }

  std::unique_ptr<Communicator> inner_;
  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner) {
  return std::make_unique<CheckedCommunicator>(std::move(inner));
}

}  // namespace ballast
