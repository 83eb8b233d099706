// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/topology.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/json.hpp"
#include "ballast/base/seed.hpp"
#include "topology_json.hpp"

#include <limits>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr char const* kSchema = "ballast.topology/1";
constexpr std::int64_t kMaxCount = std::numeric_limits<int>::max();

double positive_number(JsonReader& reader, std::string const& key) {
  double const value = reader.number(key);
  if (value <= 0) reader.fail(key, "a finite number above 0");
  return value;
}

Device read_device(JsonReader& reader, std::int64_t num_nodes) {
  Device device;
  device.node = static_cast<int>(reader.integer("node", 0, num_nodes - 1));
  device.kind = reader.text("kind");
  device.memory_bytes = reader.integer("memory_bytes", 0);
  device.speed = positive_number(reader, "speed");
  reader.finish();
  return device;
}

}  // namespace

namespace detail {

nlohmann::ordered_json node_json(Node const& node) {
  return {{"host", node.host},   {"sockets", node.sockets},           {"numa_nodes", node.numa_nodes},
          {"cores", node.cores}, {"memory_bytes", node.memory_bytes}, {"gpus", node.gpus}};
}

Node read_node(JsonReader& reader) {
  Node node;
  node.host = reader.text("host");
  node.sockets = static_cast<int>(reader.integer("sockets", 1, kMaxCount));
  node.numa_nodes = static_cast<int>(reader.integer("numa_nodes", 1, kMaxCount));
  node.cores = static_cast<int>(reader.integer("cores", 1, kMaxCount));
  node.memory_bytes = reader.integer("memory_bytes", 0);
  node.gpus = reader.texts("gpus");
  reader.finish();
  return node;
}

}  // namespace detail

LinkLevel Topology::level(std::vector<int> const& ranks) const {
  for (int const rank : ranks) {
    if (rank < 0 || rank >= num_ranks()) {
      throw InvalidArgument(fmt::format("there is no rank {} in a topology of {} ranks", rank, num_ranks()));
    }
    if (devices[rank].node != devices[ranks.front()].node) return LinkLevel::network;
  }
  return LinkLevel::node;
}

std::string to_string(LinkLevel level) { return level == LinkLevel::node ? "node" : "network"; }

LinkLevel parse_link_level(std::string_view name) {
  if (name == "node") return LinkLevel::node;
  if (name == "network") return LinkLevel::network;
  throw DataError(fmt::format("link level: expected node or network, found \"{}\"", name));
}

std::string to_json(Topology const& topology) {
  nlohmann::ordered_json json = {{"schema", kSchema},
                                 {"simulated", topology.simulated},
                                 {"dilation", topology.dilation},
                                 {"nodes", nlohmann::ordered_json::array()},
                                 {"devices", nlohmann::ordered_json::array()}};
  for (auto const& node : topology.nodes) json["nodes"].push_back(detail::node_json(node));
  for (auto const& device : topology.devices) {
    json["devices"].push_back(
        {{"node", device.node}, {"kind", device.kind}, {"memory_bytes", device.memory_bytes}, {"speed", device.speed}});
  }
  return json.dump(2) + "\n";
}

Topology topology_from_json(std::string_view text, std::string const& source) {
  auto const json = parse_json(text, source);
  JsonReader reader(json, source);
  reader.schema(kSchema);
  Topology topology;
  topology.simulated = reader.flag("simulated");
  topology.dilation = positive_number(reader, "dilation");
  for (auto& node : reader.objects("nodes")) topology.nodes.push_back(detail::read_node(node));
  if (topology.nodes.empty()) reader.fail("nodes", "at least one node");
  auto const num_nodes = std::ssize(topology.nodes);
  for (auto& device : reader.objects("devices")) topology.devices.push_back(read_device(device, num_nodes));
  if (topology.devices.empty()) reader.fail("devices", "at least one device");
  reader.finish();
  return topology;
}

std::string fingerprint(Topology const& topology) {
  std::string text;
  for (auto const& device : topology.devices) {
    // The length before the name keeps a name with blanks from imitating the next field.
    text += fmt::format("{} {} {} {} {}\n", device.node, device.memory_bytes, device.speed, device.kind.size(),
                        device.kind);
  }
  return fingerprint(std::string_view(text));
}

}  // namespace ballast
