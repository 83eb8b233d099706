// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/description.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/base/toml.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr char const* kSchema = "ballast.cluster/1";
/// Far above any cluster; keeps a mistyped count from filling the memory.
constexpr std::int64_t kMaxDevices = 1'000'000;

double positive_number(TomlTable& table, std::string_view key, double fallback) {
  if (!table.has(key)) return fallback;
  double const value = table.number(key, 0.0);
  if (value <= 0) table.fail(key, "a number above 0");
  return value;
}

LinkSpeed read_link(TomlTable& links, std::string_view key) {
  auto table = links.table(key);
  if (!table) links.fail(key, "{ latency = \"5us\", bandwidth = \"4GB/s\" }");
  LinkSpeed const link{table->seconds("latency"), table->bytes_per_s("bandwidth")};
  table->finish();
  return link;
}

void read_devices(TomlTable& table, std::vector<DescribedDevice>& devices, std::int64_t room) {
  DescribedDevice device;
  device.kind = table.text("kind", device.kind);
  device.memory_bytes = table.bytes("memory");
  if (device.memory_bytes == 0) table.fail("memory", "more than 0 bytes");
  device.speed = positive_number(table, "speed", device.speed);
  auto const count = table.integer("count", 1, 1);
  if (count > room) table.fail("count", fmt::format("at most {} devices in all", kMaxDevices));
  table.finish();
  devices.insert(devices.end(), static_cast<std::size_t>(count), device);
}

DescribedNode read_node(TomlTable& table, std::size_t number, std::int64_t room) {
  DescribedNode node;
  node.name = table.text("name", fmt::format("node{}", number));
  for (auto& entry : table.tables("devices")) {
    read_devices(entry, node.devices, room - std::ssize(node.devices));
  }
  if (node.devices.empty()) table.fail("devices", "at least one device, { kind = \"large\", memory = \"64MiB\" }");
  table.finish();
  return node;
}

}  // namespace

int ClusterDescription::num_ranks() const noexcept {
  std::size_t count = 0;
  for (auto const& node : nodes) count += node.devices.size();
  return static_cast<int>(count);
}

ClusterDescription read_cluster_file(std::filesystem::path const& path) {
  return parse_cluster(read_file(path), path.string());
}

ClusterDescription parse_cluster(std::string_view text, std::string const& source) {
  auto table = TomlTable::parse(text, source);
  if (table.text("schema") != kSchema) table.fail("schema", fmt::format("\"{}\"", kSchema));
  ClusterDescription description;
  description.source = source;
  description.dilation = positive_number(table, "dilation", 0.0);

  auto links = table.table("links");
  if (!links) table.fail("links", "a table with node and network");
  description.within_node = read_link(*links, "node");
  description.between_nodes = read_link(*links, "network");
  links->finish();

  std::set<std::string> names;
  for (auto& entry : table.tables("node")) {
    auto const room = kMaxDevices - description.num_ranks();
    description.nodes.push_back(read_node(entry, description.nodes.size(), room));
    if (!names.insert(description.nodes.back().name).second) entry.fail("name", "a name that no other node has");
  }
  if (description.nodes.empty()) table.fail("node", "at least one [[node]]");
  table.finish();
  return description;
}

Topology described_topology(ClusterDescription const& description, int num_ranks, int cores) {
  if (num_ranks != description.num_ranks()) {
    throw InvalidArgument(fmt::format("{} describes {} devices, but {} ranks were started: start one rank per device",
                                      description.source, description.num_ranks(), num_ranks));
  }
  if (cores < 1) throw InvalidArgument(fmt::format("cores: expected at least 1, found {}", cores));
  Topology topology;
  topology.simulated = true;
  topology.dilation =
      description.dilation > 0 ? description.dilation : std::max(1.0, static_cast<double>(num_ranks) / cores);
  for (auto const& described : description.nodes) {
    Node node;
    node.host = described.name;
    node.cores = cores;
    for (auto const& device : described.devices) {
      topology.devices.push_back(
          {static_cast<int>(topology.nodes.size()), device.kind, device.memory_bytes, device.speed});
      auto const room = std::numeric_limits<std::int64_t>::max() - node.memory_bytes;
      node.memory_bytes += std::min(device.memory_bytes, room);
    }
    topology.nodes.push_back(std::move(node));
  }
  return topology;
}

LinkDelays link_delays(ClusterDescription const& description, Topology const& topology) {
  LinkDelays delays{{}, description.within_node, description.between_nodes, topology.dilation};
  for (auto const& device : topology.devices) delays.node_of_rank.push_back(device.node);
  return delays;
}

}  // namespace ballast
