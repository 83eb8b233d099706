// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/discover.hpp"

#include "ballast/base/units.hpp"
#include "ballast/report/text_table.hpp"
#include "job.hpp"
#include "verb.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace ballast {
namespace {

std::string to_text(Topology const& topology) {
  TextTable nodes({"node", "host", "sockets", "numa", "cores", "memory", "gpus"}, 2);
  for (std::size_t index = 0; index < topology.nodes.size(); ++index) {
    auto const& node = topology.nodes[index];
    nodes.add({std::to_string(index), node.host, std::to_string(node.sockets), std::to_string(node.numa_nodes),
               std::to_string(node.cores), format_bytes(node.memory_bytes), std::to_string(node.gpus.size())});
  }
  TextTable devices({"rank", "device", "node", "memory", "speed"}, 2);
  for (int rank = 0; rank < topology.num_ranks(); ++rank) {
    auto const& device = topology.devices[rank];
    devices.add({std::to_string(rank), device.kind, std::to_string(device.node), format_bytes(device.memory_bytes),
                 fmt::format("{:g}", device.speed)});
  }
  auto result = nodes.text() + "\n" + devices.text();
  if (topology.simulated) result += fmt::format("\nsimulated cluster, dilation {:g}\n", topology.dilation);
  return result;
}

class Discover final : public Verb {
 public:
  explicit Discover(CLI::App& parent) : Verb(parent, "discover", "Ask the machine: nodes, devices, memory, speed") {
    app().add_option("--cluster", cluster_, "Behave as the cluster that this file describes")->type_name("FILE");
  }

  int run(Environment& environment) override {
    use_cluster(environment, cluster_);
    auto const& topology = environment.topology();
    print(environment, to_json(topology), to_text(topology));
    return 0;
  }

 private:
  std::filesystem::path cluster_;
};

}  // namespace

std::unique_ptr<Verb> make_discover(CLI::App& parent) { return std::make_unique<Discover>(parent); }

}  // namespace ballast
