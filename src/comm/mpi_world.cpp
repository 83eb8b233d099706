// SPDX-License-Identifier: Apache-2.0
#include "mpi_world.hpp"

#include "ballast/base/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <sched.h>

namespace ballast::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// Waiting. An idle poll takes well below a microsecond; one that took longer has moved data, and more may come.
constexpr auto kWorkingPoll = microseconds(5);
constexpr auto kYieldFor = microseconds(150);
constexpr auto kShortestSleep = microseconds(20);
constexpr auto kLongestSleep = microseconds(200);
constexpr int kPollsPerFailureCheck = 256;

// A report must travel eagerly: its sender may never call MPI again. 4 KiB is the smallest eager limit in use (Open
// MPI's shared memory), headers included.
constexpr std::size_t kLongestReport = 3072;
constexpr int kReportTag = 0;
constexpr auto kFlushReportFor = std::chrono::milliseconds(20);

struct Report {
  std::int32_t kind;
  std::int32_t rank;
  std::array<char, kLongestReport> text;
};
constexpr std::size_t kReportHeader = offsetof(Report, text);

// Like MPI's own state a fact of the process, not of an object: the session, which finalizes MPI, has no communicator.
std::atomic<bool> failed{false};

}  // namespace

bool job_has_failed() noexcept { return failed.load(); }

void check_mpi(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string_view const function(call, std::strcspn(call, "("));
  throw CommunicationError(fmt::format("{} failed on rank {}: {}", function, rank, text));
}

MpiOperation::~MpiOperation() {
  if (complete_ || error_ || job_has_failed() || std::uncaught_exceptions() > 0) return;
  try {
    log(LogLevel::error,
        "a request was destroyed before it was waited for; its buffers may still be written to (a bug)");
  } catch (...) {  // a destructor has nobody to tell
  }
}

void MpiOperation::wait() { world_->wait_for(*this); }

void MpiOperation::progress() noexcept {
  if (complete_ || error_) return;
  try {
    complete_ = advance();
  } catch (...) {
    error_ = std::current_exception();
  }
}

bool MpiOperation::is_complete() const {
  if (error_) std::rethrow_exception(error_);
  return complete_;
}

/// Owns what a report's messages are sent from; MPI reads it until the end of the job.
struct MpiWorld::SentReport {
  Report report;
  std::vector<MPI_Request> requests;
};

MpiWorld::MpiWorld(std::int64_t max_count) : max_count_(std::clamp<std::int64_t>(max_count, 1, 2147483647)) {
  BALLAST_CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &failures_));
  BALLAST_CHECK_MPI(MPI_Comm_set_errhandler(failures_, MPI_ERRORS_RETURN));
}

MpiWorld::~MpiWorld() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (job_has_failed()) {
    static_cast<void>(sent_report_.release());  // still read by MPI
  } else if (finalized == 0) {
    MPI_Comm_free(&failures_);
  }
}

void MpiWorld::wait_for(MpiOperation& operation) {
  auto idle_since = Clock::now();
  auto sleep = kShortestSleep;
  for (int poll = 1;; ++poll) {
    auto const before = Clock::now();
    operation.progress();
    if (operation.is_complete()) return;
    throw_known_failure();
    for (auto* other : phased_) {
      if (other != &operation) other->progress();
    }
    auto const after = Clock::now();
    if (after - before > kWorkingPoll) {
      idle_since = after;
      sleep = kShortestSleep;
    }
    if (after - idle_since < kYieldFor) {
      if (poll % kPollsPerFailureCheck == 0) check_failure();
      sched_yield();
    } else {
      check_failure();
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 3 / 2, kLongestSleep);
    }
  }
}

void MpiWorld::report_failure(ErrorKind kind, std::string const& message) noexcept {
  if (failure_) return;  // the first report counts; every rank has it or gets it from the one who made it
  failed = true;
  try {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(failures_, &rank);
    MPI_Comm_size(failures_, &size);
    failure_ = Failure{kind, fmt::format("rank {}: {}", rank, message)};
    sent_report_ = std::make_unique<SentReport>();
    auto& report = sent_report_->report;
    report.kind = static_cast<std::int32_t>(kind);
    report.rank = rank;
    auto const length = message.copy(report.text.data(), report.text.size());
    auto& requests = sent_report_->requests;
    for (int destination = 0; destination < size; ++destination) {
      if (destination == rank) continue;
      requests.push_back(MPI_REQUEST_NULL);
      MPI_Isend(&report, static_cast<int>(kReportHeader + length), MPI_BYTE, destination, kReportTag, failures_,
                &requests.back());
    }
    // The messages leave in MPI_Isend or soon after; give MPI a moment, because nobody may call it again.
    auto const deadline = Clock::now() + kFlushReportFor;
    for (int done = 0; done == 0 && Clock::now() < deadline;) {
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    }
  } catch (...) {  // out of memory: the launcher ends the job when this process ends
  }
}

void MpiWorld::check_failure() {
  throw_known_failure();
  int arrived = 0;
  MPI_Status status;
  BALLAST_CHECK_MPI(MPI_Iprobe(MPI_ANY_SOURCE, kReportTag, failures_, &arrived, &status));
  if (arrived == 0) return;
  failed = true;
  Report report;
  int length = 0;
  BALLAST_CHECK_MPI(MPI_Get_count(&status, MPI_BYTE, &length));
  BALLAST_CHECK_MPI(
      MPI_Recv(&report, sizeof(report), MPI_BYTE, status.MPI_SOURCE, kReportTag, failures_, MPI_STATUS_IGNORE));
  std::string_view const text(report.text.data(), static_cast<std::size_t>(length) - kReportHeader);
  failure_ = Failure{static_cast<ErrorKind>(report.kind), fmt::format("rank {}: {}", report.rank, text)};
  throw_known_failure();
}

void MpiWorld::throw_known_failure() const {
  if (failure_) throw_error(failure_->kind, failure_->message);
}

std::vector<std::byte> MpiWorld::take_buffer(std::size_t bytes) {
  if (buffers_.empty()) return std::vector<std::byte>(bytes);
  // The largest: if even that is too small it grows, so that small ones do not pile up.
  std::swap(*std::max_element(buffers_.begin(), buffers_.end(),
                              [](auto const& a, auto const& b) { return a.size() < b.size(); }),
            buffers_.back());
  auto buffer = std::move(buffers_.back());
  buffers_.pop_back();
  if (buffer.size() < bytes) buffer.resize(bytes);
  return buffer;
}

}  // namespace ballast::detail
