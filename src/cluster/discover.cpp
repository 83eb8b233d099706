// SPDX-License-Identifier: Apache-2.0
#include "ballast/cluster/discover.hpp"

#include "ballast/base/json.hpp"
#include "ballast/base/log.hpp"
#include "ballast/comm/collective.hpp"
#include "cgroup.hpp"
#include "topology_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

namespace ballast {
namespace {

#define BALLAST_CHECK_HWLOC(call)                                                                             \
  do {                                                                                                        \
    if ((call) != 0) {                                                                                        \
      throw Error(ErrorKind::failed, fmt::format("cannot read the machine: {}: {}", #call, strerror(errno))); \
    }                                                                                                         \
  } while (false)

class Bitmap {
 public:
  Bitmap() : bitmap_(hwloc_bitmap_alloc()) {
    if (bitmap_ == nullptr) throw std::bad_alloc();
  }
  ~Bitmap() { hwloc_bitmap_free(bitmap_); }
  Bitmap(Bitmap const&) = delete;
  Bitmap& operator=(Bitmap const&) = delete;
  hwloc_bitmap_t handle() const { return bitmap_; }

  /// As "0-3,8".
  std::string text() const {
    char* raw = nullptr;
    if (hwloc_bitmap_list_asprintf(&raw, bitmap_) < 0) throw std::bad_alloc();
    std::string result(raw);
    std::free(raw);
    return result;
  }

 private:
  hwloc_bitmap_t bitmap_;
};

/// This host as hwloc sees it.
class Machine {
 public:
  Machine() {
    BALLAST_CHECK_HWLOC(hwloc_topology_init(&topology_));
    try {
      BALLAST_CHECK_HWLOC(hwloc_topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_IMPORTANT));
      BALLAST_CHECK_HWLOC(hwloc_topology_load(topology_));
    } catch (...) {
      hwloc_topology_destroy(topology_);
      throw;
    }
  }
  ~Machine() { hwloc_topology_destroy(topology_); }
  Machine(Machine const&) = delete;
  Machine& operator=(Machine const&) = delete;

  /// Processing units that this process may run on, as "0-3,8".
  std::string usable() const {
    Bitmap bound;
    if (hwloc_get_cpubind(topology_, bound.handle(), HWLOC_CPUBIND_PROCESS) != 0) {
      hwloc_bitmap_fill(bound.handle());  // the system does not say: not bound
    }
    hwloc_bitmap_and(bound.handle(), bound.handle(), hwloc_topology_get_allowed_cpuset(topology_));
    return bound.text();
  }

  /// The host, with the cores of which at least one processing unit is in `usable`.
  Node node(std::string const& usable) const {
    auto const limits = detail::read_cgroup_limits();
    Node node;
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) == 0) node.host = host.data();
    node.sockets = std::max(1, hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_PACKAGE));
    node.numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_NUMANODE));
    node.cores = count_cores(usable);
    if (limits.cpus) node.cores = std::clamp(static_cast<int>(*limits.cpus), 1, node.cores);
    node.memory_bytes = static_cast<std::int64_t>(hwloc_get_root_obj(topology_)->total_memory);
    if (limits.memory_bytes) node.memory_bytes = std::min(node.memory_bytes, *limits.memory_bytes);
    node.gpus = gpus();
    return node;
  }

 private:
  int count_cores(std::string const& usable) const {
    Bitmap set;
    hwloc_bitmap_list_sscanf(set.handle(), usable.c_str());
    int cores = 0;
    for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_CORE, core)) != nullptr;) {
      if (hwloc_bitmap_intersects(core->cpuset, set.handle()) != 0) ++cores;
    }
    // Some virtual machines show no cores, only processing units.
    return std::max({1, cores, cores == 0 ? hwloc_bitmap_weight(set.handle()) : 0});
  }

  /// Names of the computing devices behind PCI: the driver's name of the model where hwloc has it, else that of the
  /// PCI list. Other vendors' display adapters (consoles of servers and virtual machines) compute nothing.
  std::vector<std::string> gpus() const {
    constexpr std::array<unsigned, 3> vendors = {0x10de, 0x1002, 0x8086};
    std::vector<std::string> names;
    for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology_, device)) != nullptr;) {
      auto const& pci = device->attr->pcidev;
      bool const computes =
          pci.class_id == 0x0302 || pci.class_id >> 8 == 0x12 || (pci.class_id == 0x0300 && pci.vendor_id != 0x8086);
      if (!computes || std::find(vendors.begin(), vendors.end(), pci.vendor_id) == vendors.end()) continue;
      char const* name = hwloc_obj_get_info_by_name(device, "PCIDevice");
      for (hwloc_obj_t driver = device->io_first_child; driver != nullptr; driver = driver->next_sibling) {
        if (char const* model = hwloc_obj_get_info_by_name(driver, "GPUModel")) name = model;
      }
      names.push_back(name != nullptr ? name : fmt::format("PCI {:04x}:{:04x}", pci.vendor_id, pci.device_id));
    }
    return names;
  }

  hwloc_topology_t topology_ = nullptr;
};

/// The hosts of a job and which of them each rank runs on.
struct Hosts {
  std::vector<Node> nodes;  ///< in the order of their lowest ranks
  std::vector<int> node_of_rank;
};

/// Asks every host once, by its lowest rank. Collective over `world`.
Hosts ask_hosts(Communicator& world) {
  std::optional<Machine> machine;
  std::string usable;
  collectively(world, [&] {
    machine.emplace();
    usable = machine->usable();
  });
  auto const node_comm = world.split_by_node();
  // Ranks may be bound to different cores; the node has those that any of them may use.
  auto const all_usable = all_gather_text(*node_comm, usable);
  auto const ranks_here = all_gather_value(*node_comm, static_cast<std::int64_t>(world.rank()));
  auto const leader = *std::min_element(ranks_here.begin(), ranks_here.end());

  std::string text;
  collectively(world, [&] {
    if (leader != world.rank()) return;
    text = detail::node_json(machine->node(fmt::format("{}", fmt::join(all_usable, ",")))).dump();
  });
  auto const texts = all_gather_text(world, text);
  auto const leaders = all_gather_value(world, leader);

  Hosts hosts;
  std::map<std::int64_t, int> index_of_leader;
  for (auto const rank : std::set<std::int64_t>(leaders.begin(), leaders.end())) {
    index_of_leader[rank] = static_cast<int>(hosts.nodes.size());
    auto const json = parse_json(texts[rank], "discovery");
    JsonReader reader(json, "discovery");
    hosts.nodes.push_back(detail::read_node(reader));
  }
  for (auto const rank : leaders) hosts.node_of_rank.push_back(index_of_leader.at(rank));
  return hosts;
}

std::vector<int> count_ranks(Hosts const& hosts) {
  std::vector<int> ranks(hosts.nodes.size(), 0);
  for (int const node : hosts.node_of_rank) ++ranks[node];
  return ranks;
}

Topology real_topology(Hosts const& hosts) {
  constexpr double usable_part = 0.9;  // the rest is for the system, MPI and the programs themselves
  constexpr std::int64_t memory_unit_bytes = std::int64_t{16} << 20;
  auto const ranks = count_ranks(hosts);
  Topology topology;
  topology.nodes = hosts.nodes;
  for (int const node : hosts.node_of_rank) {
    auto const memory_bytes = usable_part * static_cast<double>(hosts.nodes[node].memory_bytes) / ranks[node];
    // In whole units: a kernel update that takes some pages must not make it another cluster for a saved plan.
    auto const units = static_cast<std::int64_t>(memory_bytes) / memory_unit_bytes;
    topology.devices.push_back({node, "cpu", units * memory_unit_bytes, 1.0});
  }
  return topology;
}

/// Cores that the job's ranks would have if every host were as crowded as the most crowded one: the dilation must suit
/// the ranks that share a core with most others.
int effective_cores(Hosts const& hosts) {
  auto const ranks = count_ranks(hosts);
  auto const num_ranks = static_cast<double>(hosts.node_of_rank.size());
  double cores = num_ranks * hosts.nodes[0].cores / ranks[0];
  for (std::size_t node = 1; node < ranks.size(); ++node) {
    cores = std::min(cores, num_ranks * hosts.nodes[node].cores / ranks[node]);
  }
  return std::max(1, static_cast<int>(cores));
}

}  // namespace

Node discover_node() {
  Machine const machine;
  return machine.node(machine.usable());
}

Topology discover(Communicator& world, std::optional<ClusterDescription> const& description) {
  auto const hosts = ask_hosts(world);
  if (!description) return real_topology(hosts);

  auto const cores = effective_cores(hosts);
  auto topology = described_topology(*description, world.size(), cores);
  double const least = static_cast<double>(world.size()) / cores;
  if (topology.dilation < least && world.rank() == 0) {
    log(LogLevel::warning, fmt::format("{}: dilation {} is below ranks / cores = {}: measured times will be too long",
                                       description->source, topology.dilation, least));
  }
  // A described node computes on the host of its first rank.
  for (int rank = world.size() - 1; rank >= 0; --rank) {
    auto const& host = hosts.nodes[hosts.node_of_rank[rank]];
    auto& node = topology.nodes[topology.devices[rank].node];
    node.sockets = host.sockets;
    node.numa_nodes = host.numa_nodes;
    node.cores = host.cores;
  }
  return topology;
}

}  // namespace ballast
