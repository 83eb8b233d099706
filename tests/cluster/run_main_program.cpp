// SPDX-License-Identifier: Apache-2.0
// Ends in the way its first argument says; run_main_test.py starts it and looks at what comes out.
#include "ballast/base/error.hpp"
#include "ballast/cluster/environment.hpp"
#include "ballast/comm/collective.hpp"

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace ballast;

/// Stands for work that does not look at the failure channel.
void work(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int end(Environment& environment, std::string const& how) {
  auto& world = environment.world();
  int const rank = environment.rank();
  int const last = environment.size() - 1;

  if (how == "well") {
    world.barrier();
    return 0;
  }
  if (how == "code") return 75;
  if (how == "alike") {
    collectively(world, [] { throw InvalidArgument("run.toml:3: steps: expected an integer"); });
  }
  if (how == "alike-late") {  // rank 0 leaves the collective long before the last one looks at its outcome
    try {
      collectively(world, [] { throw DataError("damaged everywhere"); });
    } catch (Error const&) {
      if (rank == last) work(0.8);
      throw;
    }
  }
  if (how == "one") {  // of those in a collective
    if (rank == last) throw DataError("damaged here");
    world.barrier();
  }
  if (how == "one-in-agreement")
    collectively(world, [&] {
      if (rank == last) throw DataError("damaged here");
    });
  if (how == "one-of-receivers") {
    if (rank == last) throw IoError("disk full");
    std::vector<float> data(8);
    world.recv(std::span(data), last, 1).wait();
  }
  if (how == "one-after-all") {
    world.barrier();
    if (rank == last) throw InfeasiblePlan("nothing fits");
    return 0;
  }
  if (how == "first-of-busy") {  // the others never look
    if (rank == 0) throw DataError("damaged here");
    work(60);
  }
  if (how == "last-of-busy") {
    if (rank == last) throw DataError("damaged here");
    work(60);
  }
  if (how == "different") {  // all fail at once, each for its own reason
    throw DataError("reason of rank " + std::to_string(rank));
  }
  if (how == "two") {  // two fail at once, the others wait
    if (rank >= 1 && rank <= 2) throw IoError("reason of rank " + std::to_string(rank));
    world.barrier();
  }
  if (how == "group") {  // a group agrees on its error, the others wait for it
    auto const half = world.split(rank <= 1 ? 0 : 1, rank);
    if (rank <= 1) collectively(*half, [] { throw DeviceError("no memory left"); });
    world.barrier();
  }
  if (how == "std") {
    if (rank == last) throw std::runtime_error("from another library");
    world.barrier();
  }
  if (how == "int") throw 42;
  if (how == "memory") throw std::bad_alloc();
  if (how == "topology") {
    auto const& topology = environment.topology();
    if (rank == 0) {
      std::printf("nodes %zu ranks %d simulated %d dilation %g memory %lld here %s\n", topology.nodes.size(),
                  topology.num_ranks(), topology.simulated ? 1 : 0, topology.dilation,
                  static_cast<long long>(topology.devices.back().memory_bytes), environment.device().kind.c_str());
    }
    return 0;
  }
  if (how == "mismatch") {  // only a checked world notices
    std::vector<float> data(static_cast<std::size_t>(8 + rank));
    world.all_reduce(std::span(data)).wait();
  }
  if (how == "late-cluster") environment.use_cluster("cluster.toml");
  throw InvalidArgument("how to end: found \"" + how + "\"");
}

}  // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, [](Environment& environment) {
    auto const& arguments = environment.arguments();
    if (arguments.size() >= 2) environment.use_cluster(arguments[1]);
    return end(environment, arguments.empty() ? "well" : arguments[0]);
  });
}
