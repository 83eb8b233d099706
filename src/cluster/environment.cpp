// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/environment.hpp"

#include "ballast/base/file.hpp"
#include "ballast/base/log.hpp"
#include "ballast/cluster/discover.hpp"
#include "ballast/comm/checked.hpp"
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "ballast/comm/simulated.hpp"

#include <cstdlib>

#include <fmt/format.h>

namespace ballast {
namespace {

/// Returns rank 0's environment variable on all ranks: launchers do not pass all variables on to other hosts.
std::string variable(Communicator& comm, char const* name) {
  char const* value = std::getenv(name);
  return broadcast_text(comm, value != nullptr ? value : "", 0);
}

bool flag_variable(Communicator& comm, char const* name) {
  auto const value = variable(comm, name);
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  throw InvalidArgument(fmt::format("{}: expected 0 or 1, found \"{}\"", name, value));
}

/// Rank 0 reads, all parse: the file may lie on one host only. Collective over `comm`.
ClusterDescription read_together(Communicator& comm, std::filesystem::path const& path) {
  std::string text;
  collectively(comm, [&] {
    if (comm.rank() == 0) text = read_file(path);
  });
  text = broadcast_text(comm, std::move(text), 0);
  auto description = parse_cluster(text, broadcast_text(comm, path.string(), 0));
  // Throws here rather than at the first use of the world if the number of ranks is wrong.
  described_topology(description, comm.size(), 1);
  return description;
}

}  // namespace

Environment::Environment(int& argc, char**& argv)
    : session_(std::make_unique<MpiSession>(argc, argv)), world_(make_mpi_world()) {
  arguments_.assign(argv + std::min(argc, 1), argv + argc);
  configure_log(LogLevel::info, rank() == 0 ? -1 : rank());  // lines of other ranks say whose they are
}

Environment::~Environment() = default;

int Environment::rank() const noexcept { return world_->rank(); }

int Environment::size() const noexcept { return world_->size(); }

Communicator& Environment::world() {
  start();
  return *world_;
}

void Environment::use_cluster(std::filesystem::path const& path) {
  if (started_) throw InvalidArgument("use_cluster comes too late: the world is already in use");
  description_ = read_together(*world_, path);
}

Topology const& Environment::topology() {
  start();
  if (!topology_) topology_ = discover(*world_, description_);
  return *topology_;
}

Device const& Environment::device() { return topology().devices[rank()]; }

void Environment::start() {
  if (started_) return;
  if (!description_) {
    if (auto const path = variable(*world_, "BALLAST_CLUSTER"); !path.empty()) {
      description_ = read_together(*world_, path);
    }
  }
  // Checked is inside: its comparisons are no messages of the described cluster, so they take no simulated time.
  if (flag_variable(*world_, "BALLAST_CHECKED")) world_ = make_checked(std::move(world_));
  if (description_) {
    topology_ = discover(*world_, description_);
    world_ = make_simulated(std::move(world_), link_delays(*description_, *topology_));
  }
  started_ = true;
}

}  // namespace ballast
