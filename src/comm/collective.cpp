// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/collective.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr std::size_t kLongestMessage = 16 * 1024;

template <class T>
std::vector<T> all_gather_number(Communicator& comm, T value) {
  std::vector<T> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span<T const>(&value, 1), std::span<T>(all)).synchronize();
  return all;
}

template <class T>
T all_reduce_number(Communicator& comm, T value, ReduceOperation operation) {
  comm.all_reduce(std::span<T>(&value, 1), operation).synchronize();
  return value;
}

}  // namespace

void agree(Communicator& comm, std::exception_ptr const& error) {
  // One number when all is well; texts travel only after a failure.
  std::int32_t const kind = error ? static_cast<std::int32_t>(kind_of(error)) : -1;
  auto const kinds = all_gather_number(comm, kind);
  auto const failed = [](std::int32_t candidate) { return candidate >= 0; };
  auto const first = std::find_if(kinds.begin(), kinds.end(), failed);
  if (first == kinds.end()) return;

  auto const messages = all_gather_text(comm, error ? message_of(error).substr(0, kLongestMessage) : std::string());
  auto const first_rank = static_cast<std::size_t>(first - kinds.begin());
  auto message = messages[first_rank];
  std::vector<std::size_t> failing;
  bool differ = false;
  for (std::size_t rank = 0; rank < kinds.size(); ++rank) {
    if (!failed(kinds[rank])) continue;
    failing.push_back(rank);
    differ = differ || messages[rank] != message;
  }
  if (!differ && failing.size() == kinds.size()) {
    // All failed alike: the own error says more than its kind, such as InfeasiblePlan's missing bytes.
    try {
      std::rethrow_exception(error);
    } catch (Error const&) {
      throw;
    } catch (...) {  // a foreign error: the same for all, below
    }
  }
  if (differ) {
    message += fmt::format(" (rank {}; failed with different errors: ranks {})", first_rank, fmt::join(failing, ", "));
  } else if (failing.size() < kinds.size()) {
    message += fmt::format(" (rank{} {})", failing.size() > 1 ? "s" : "", fmt::join(failing, ", "));
  }
  throw_error(static_cast<ErrorKind>(*first), message);
}

void collectively(Communicator& comm, std::function<void()> const& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  agree(comm, error);
}

std::string broadcast_text(Communicator& comm, std::string text, int root) {
  std::int64_t size = std::ssize(text);
  comm.broadcast(std::span(&size, 1), root).synchronize();
  text.resize(static_cast<std::size_t>(size));
  comm.broadcast(std::span<char>(text), root).synchronize();
  return text;
}

std::vector<std::string> all_gather_text(Communicator& comm, std::string const& text) {
  auto const sizes = all_gather_number<std::int64_t>(comm, std::ssize(text));
  std::string joined(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})), '\0');
  comm.all_gather_v(text.data(), joined.data(), sizes, DataType::uint8).synchronize();
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (auto size : sizes) {
    texts.push_back(joined.substr(begin, static_cast<std::size_t>(size)));
    begin += static_cast<std::size_t>(size);
  }
  return texts;
}

std::vector<double> all_gather_value(Communicator& comm, double value) { return all_gather_number(comm, value); }
std::vector<std::int64_t> all_gather_value(Communicator& comm, std::int64_t value) {
  return all_gather_number(comm, value);
}
double all_reduce_value(Communicator& comm, double value, ReduceOperation operation) {
  return all_reduce_number(comm, value, operation);
}
std::int64_t all_reduce_value(Communicator& comm, std::int64_t value, ReduceOperation operation) {
  return all_reduce_number(comm, value, operation);
}

}  // namespace ballast
