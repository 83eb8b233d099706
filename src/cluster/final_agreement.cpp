// SPDX-License-Identifier: Apache-2.0
#include "final_agreement.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/seed.hpp"

#include <algorithm>
#include <limits>
#include <thread>

namespace ballast::detail {
namespace {

constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
constexpr int kCodes = 256;  // exit codes of a process

void check(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommunicationError(std::string(call) + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
}

#define BALLAST_CHECK_MPI(call) check(call, #call)

}  // namespace

FinalAgreement::FinalAgreement() {
  BALLAST_CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
  BALLAST_CHECK_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
}

void FinalAgreement::start(Values const& values) {
  mine_ = values;
  int const code = MPI_Iallreduce(mine_.data(), least_.data(), static_cast<int>(mine_.size()), MPI_INT64_T, MPI_MIN,
                                  comm_, &request_);
  started_ = code == MPI_SUCCESS;
}

bool FinalAgreement::wait(double timeout_s) {
  using Clock = std::chrono::steady_clock;
  auto const start = Clock::now();
  auto pause = std::chrono::microseconds(20);
  while (started_) {
    int done = 0;
    if (MPI_Test(&request_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (std::chrono::duration<double>(Clock::now() - start).count() >= timeout_s) return false;
    // Waits for the slowest rank, perhaps for minutes: leave the cores to it.
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2000));
  }
  return false;
}

void FinalAgreement::post(Outcome const& outcome) {
  int rank = 0;
  MPI_Comm_rank(comm_, &rank);
  auto const hash = static_cast<std::int64_t>(derive_seed(0, outcome.message));
  std::int64_t const speaks = static_cast<std::int64_t>(rank) * kCodes + outcome.code % kCodes;
  bool const own = outcome.failed && outcome.own;
  start({outcome.failed ? 0 : 1, own ? 1 : 0, hash, ~hash, own ? speaks : kNever, outcome.failed ? speaks : kNever});
}

std::optional<Verdict> FinalAgreement::verdict(double timeout_s) {
  if (!wait(timeout_s)) return {};
  auto const [least_failed, least_own, hash, inverted_hash, own_speaks, failed_speaks] = least_;
  Verdict verdict;
  verdict.any_failed = least_failed == 0;
  if (!verdict.any_failed) return verdict;
  verdict.alike = least_own == 1 && hash == ~inverted_hash;  // least and greatest hash are the same
  auto const speaks = own_speaks != kNever ? own_speaks : failed_speaks;
  verdict.speaker = static_cast<int>(speaks / kCodes);
  verdict.code = static_cast<int>(speaks % kCodes);
  return verdict;
}

std::optional<bool> FinalAgreement::any(bool here, double timeout_s) {
  start({here ? 0 : 1, 0, 0, 0, 0, 0});
  if (!wait(timeout_s)) return {};
  return least_[0] == 0;
}

}  // namespace ballast::detail
