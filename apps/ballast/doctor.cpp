// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"
#include "ballast/base/units.hpp"
#include "ballast/cluster/discover.hpp"
#include "ballast/comm/mpi.hpp"
#include "ballast/comm/nccl.hpp"
#include "verb.hpp"

#include <array>
#include <cstdlib>
#include <functional>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <mpi.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>

namespace ballast {
namespace {

/// One line of the report.
struct Finding {
  std::string what;
  std::string value;
  bool is_good = true;
};

/// What `look` returns, or its error as a finding that is not good.
Finding look_at(std::string what, std::function<std::string()> const& look) {
  try {
    return {std::move(what), look(), true};
  } catch (std::exception const& error) {
    return {std::move(what), error.what(), false};
  }
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  std::string const version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

std::string machine() {
  auto const node = discover_node();
  return fmt::format("{} cores, {} sockets, {} NUMA nodes, {}, {} GPUs", node.cores, node.sockets, node.numa_nodes,
                     format_bytes(node.memory_bytes), node.gpus.size());
}

std::string cluster(std::filesystem::path const& path) {
  if (path.empty()) return "none: the machine as it is";
  auto const description = read_cluster_file(path);
  return fmt::format("{}: {} nodes, {} devices (start with mpirun -n {})", path.string(), description.nodes.size(),
                     description.num_ranks(), description.num_ranks());
}

class Doctor final : public Verb {
 public:
  explicit Doctor(CLI::App& parent) : Verb(parent, "doctor", "Say what this build and this machine have") {
    app().add_option("--cluster", cluster_, "Cluster file to check (default: BALLAST_CLUSTER)")->type_name("FILE");
  }

  int run(Environment& environment) override {
    if (environment.rank() != 0) return 0;
    if (char const* variable = std::getenv("BALLAST_CLUSTER"); cluster_.empty() && variable != nullptr)
      cluster_ = variable;
    std::vector<Finding> const findings = {
        {"ballast", BALLAST_VERSION},
        {"MPI", mpi_library()},
        {"ranks", fmt::format("{}{}", environment.size(), launched_by_mpi() ? "" : ", not started by an MPI launcher")},
        {"NCCL", nccl_compiled() ? "compiled in" : "not compiled in"},
        {"LibTorch", fmt::format("{}.{}.{}, {} threads (training uses 1 per rank)", TORCH_VERSION_MAJOR,
                                 TORCH_VERSION_MINOR, TORCH_VERSION_PATCH, at::get_num_threads())},
        look_at("machine", machine),
        look_at("cluster file", [&] { return cluster(cluster_); }),
    };
    nlohmann::ordered_json json = {{"schema", "ballast.doctor/1"}, {"findings", nlohmann::ordered_json::array()}};
    std::string text;
    int code = 0;
    for (auto const& [what, value, is_good] : findings) {
      json["findings"].push_back({{"what", what}, {"value", value}, {"good", is_good}});
      text += fmt::format("{:<5} {:<13} {}\n", is_good ? "ok" : "FAIL", what, value);
      if (!is_good) code = 1;
    }
    print(environment, json.dump(2) + "\n", text);
    return code;
  }

 private:
  std::filesystem::path cluster_;
};

}  // namespace

std::unique_ptr<Verb> make_doctor(CLI::App& parent) { return std::make_unique<Doctor>(parent); }

}  // namespace ballast
