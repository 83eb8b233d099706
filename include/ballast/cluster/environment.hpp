// SPDX-License-Identifier: Apache-2.0
/// What a program needs from the start: MPI, the world, the simulated cluster if one is described, and one way to fail.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ballast/cluster/description.hpp"
#include "ballast/cluster/topology.hpp"
#include "ballast/comm/communicator.hpp"

namespace ballast {

class Environment;
class MpiSession;

namespace detail {
int run_main(int argc, char** argv, std::function<int(Environment&)> const& program);
}

/// Owns MPI and the communicator over all ranks. The first local in `main` (`run_main` makes it).
///
/// `BALLAST_CLUSTER=cluster.toml` makes the job behave as the described cluster: the world is decorated with its link
/// delays and `topology()` has its devices. `BALLAST_CHECKED=1` compares every collective over the ranks.
class Environment {
 public:
  Environment(int& argc, char**& argv);
  ~Environment();
  Environment(Environment const&) = delete;
  Environment& operator=(Environment const&) = delete;

  /// Program arguments, without the program's name.
  std::vector<std::string> const& arguments() const noexcept { return arguments_; }
  int rank() const noexcept;
  int size() const noexcept;
  Communicator& world();

  /// Replaces what BALLAST_CLUSTER said; before the first use of `world()` or `topology()`.
  /// Collective over the job. @throws InvalidArgument as `read_cluster_file`, on all ranks.
  void use_cluster(std::filesystem::path const& path);

  /// Returns the discovered (or described) topology; discovers at the first call. Collective over the job then.
  Topology const& topology();
  /// Returns the device of this rank. Collective at the first call, as `topology`.
  Device const& device();

 private:
  friend int detail::run_main(int argc, char** argv, std::function<int(Environment&)> const& program);
  void start();

  std::vector<std::string> arguments_;
  std::unique_ptr<MpiSession> session_;
  std::unique_ptr<Communicator> world_;
  std::optional<ClusterDescription> description_;
  std::optional<Topology> topology_;
  bool started_ = false;
};

/// Runs `program` in an Environment and returns the process exit code: its result (0 when it returns nothing), or that of
/// the error it threw (`exit_code`). An error thrown by all ranks alike is printed once, by rank 0. One that only some
/// ranks threw is reported to the others, printed once by the lowest failing rank, and ends the whole job; nobody waits
/// for ever.
template <class Program>
int run_main(int argc, char** argv, Program&& program) {
  return detail::run_main(argc, argv, [&program](Environment& environment) -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<Program&, Environment&>>) {
      program(environment);
      return 0;
    } else {
      return program(environment);
    }
  });
}

}  // namespace ballast
