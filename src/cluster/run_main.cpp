// SPDX-License-Identifier: Apache-2.0
// One way for a program to end, whatever happened on which rank.
//
// After an error a rank cannot know whether the others failed alike (all of them left the same `agree`) or still wait for
// it. So every rank, also one that finished, posts its outcome to a non-blocking reduction and looks at it for a while:
//   all arrived soon                     the verdict is known; nothing was interrupted, MPI ends normally
//   some are missing                     this rank reports its failure, which wakes those that wait; then as above, but
//                                        interrupted collectives may keep MPI_Finalize waiting: the job is aborted
//   some are still missing after kAllIn  they compute or hang outside of the library: the job is aborted
#include "ballast/cluster/environment.hpp"
#include "ballast/comm/mpi.hpp"
#include "final_agreement.hpp"

#include <charconv>
#include <cstdio>
#include <iostream>
#include <limits>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

constexpr double kAlikeWithin_s = 0.25;  ///< skew of ranks that throw the same error after a collective
constexpr double kAllIn_s = 2.0;         ///< from a report to the last rank's arrival
constexpr double kSpeaker_s = 1.0;       ///< for the speaker's line to get out before others abort
constexpr double kNoLimit_s = std::numeric_limits<double>::infinity();

void print_error(std::string const& message) {
  std::cout.flush();
  std::fflush(stdout);
  auto const line = fmt::format("ballast: error: {}\n", message);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call: lines of several ranks must not mix
  std::fflush(stderr);
}

/// What another rank reported, empty if nobody did.
std::string reported_message(Communicator& world) {
  try {
    world.check_failure();
  } catch (std::exception const& error) {
    return error.what();
  }
  return {};
}

/// As `report_failure` words it on the other ranks.
std::string with_rank(int rank, std::string const& message) { return fmt::format("rank {}: {}", rank, message); }

/// The rank that stands before a reported message; -1 if there is none.
int rank_in(std::string const& message) {
  constexpr std::string_view prefix = "rank ";
  int rank = -1;
  if (message.starts_with(prefix))
    std::from_chars(message.data() + prefix.size(), message.data() + message.size(), rank);
  return rank;
}

Outcome outcome_of(std::exception_ptr const& error, Communicator& world) {
  Outcome outcome;
  outcome.failed = true;
  outcome.message = message_of(error);
  outcome.own = outcome.message != reported_message(world);
  outcome.code = exit_code(kind_of(error));
  return outcome;
}

/// Not all ranks came: the lowest one that is known to have failed prints, then the job is ended.
[[noreturn]] void abort_incomplete(MpiSession& session, FinalAgreement& agreement, Communicator& world,
                                   Outcome const& outcome) {
  int const reporter = rank_in(reported_message(world));
  bool const speaks = outcome.own && (reporter < 0 || reporter >= world.rank());
  if (speaks) {
    print_error(with_rank(world.rank(), outcome.message));
  } else if (!agreement.verdict(kSpeaker_s)) {
    print_error(outcome.message);  // the speaker would have ended the job by now: it is gone or hangs, so say it here
  }
  session.abort(outcome.code);
}

int end_alone(std::exception_ptr const& error, int code) {
  if (!error) return code;
  print_error(message_of(error));
  return exit_code(kind_of(error));
}

/// Brings all ranks to one end; returns the exit code of this process.
int end_together(MpiSession& session, FinalAgreement& agreement, Communicator& world, std::exception_ptr const& error,
                 int code) {
  Outcome const outcome = error ? outcome_of(error, world) : Outcome{};
  agreement.post(outcome);
  auto verdict = agreement.verdict(outcome.failed ? kAlikeWithin_s : kNoLimit_s);
  bool interrupted = outcome.failed && !outcome.own;
  if (!verdict) {
    if (outcome.own) world.report_failure(kind_of(error), outcome.message);
    interrupted = true;
    verdict = agreement.verdict(kAllIn_s);
  }
  if (!verdict) abort_incomplete(session, agreement, world, outcome);
  if (!verdict->any_failed) return code;

  if (verdict->speaker == world.rank()) {
    // What was reported names its rank already, also when every rank throws it in those words.
    bool const complete = verdict->alike || !outcome.own;
    print_error(complete ? outcome.message : with_rank(world.rank(), outcome.message));
  }
  // After this the line is out. A rank that was interrupted may have left others' operations without their partner.
  if (agreement.any(interrupted, kSpeaker_s).value_or(true)) session.abort(verdict->code);
  return verdict->code;
}

}  // namespace

int run_main(int argc, char** argv, std::function<int(Environment&)> const& program) {
  std::unique_ptr<Environment> environment;
  std::unique_ptr<FinalAgreement> agreement;
  try {
    environment = std::make_unique<Environment>(argc, argv);
    agreement = std::make_unique<FinalAgreement>();
  } catch (std::exception const&) {
    return end_alone(std::current_exception(), 1);  // without MPI nobody can be asked
  }
  std::exception_ptr error;
  int code = 0;
  try {
    code = program(*environment);
  } catch (...) {
    error = std::current_exception();
  }
  if (environment->size() == 1) return end_alone(error, code);
  return end_together(*environment->session_, *agreement, *environment->world_, error, code);
}

}  // namespace ballast::detail
