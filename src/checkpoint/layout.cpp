// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include "ballast/base/error.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast::detail {
namespace {

std::string shape_text(std::vector<std::int64_t> const& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

/// @throws InvalidArgument unless the shard is an interval of a possible tensor.
void check_shard(TensorShard const& shard) {
  if (auto const fault = name_fault(shard.name); !fault.empty()) {
    throw InvalidArgument(fmt::format("a tensor cannot be named \"{}\": {}", shard.name, fault));
  }
  auto const elements = num_elements(shard.shape, shard.type);
  if (!elements) {
    throw InvalidArgument(fmt::format("tensor {} has the impossible shape {}", shard.name, shape_text(shard.shape)));
  }
  if (shard.begin < 0 || shard.begin > shard.end || shard.end > *elements) {
    throw InvalidArgument(fmt::format("tensor {}: [{}, {}) is no interval of its {} elements", shard.name, shard.begin,
                                      shard.end, *elements));
  }
  if (shard.data == nullptr && shard.begin < shard.end) {
    throw InvalidArgument(fmt::format("tensor {}: [{}, {}) has no data", shard.name, shard.begin, shard.end));
  }
}

/// One tensor while its shards are collected.
struct Tensor {
  std::vector<std::int64_t> shape;
  DataType type = DataType::float32;
  int rank = 0;                               ///< that named it first, for errors
  std::map<std::int64_t, std::int64_t> ends;  ///< of the intervals, by begin
};

void check_coverage(std::string const& name, Tensor const& tensor) {
  std::int64_t covered = 0;
  for (auto const& [begin, end] : tensor.ends) {
    if (begin < covered) {
      throw InvalidArgument(
          fmt::format("tensor {}: its shards overlap in [{}, {})", name, begin, std::min(covered, end)));
    }
    if (begin > covered) {
      throw InvalidArgument(fmt::format("tensor {}: no rank holds [{}, {})", name, covered, begin));
    }
    covered = end;
  }
  auto const elements = num_elements(tensor.shape, tensor.type).value();
  if (covered < elements) {
    throw InvalidArgument(fmt::format("tensor {}: no rank holds [{}, {})", name, covered, elements));
  }
}

/// Where an interval of a tensor is stored.
struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::size_t file = 0;
  StoredShard const* shard = nullptr;
};

using PiecesOfTensor = std::map<std::string, std::vector<Piece>, std::less<>>;

/// By tensor, sorted by begin.
PiecesOfTensor index_pieces(Manifest const& manifest) {
  PiecesOfTensor pieces;
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    for (auto const& shard : manifest.files[file].shards) {
      pieces[shard.tensor].push_back({shard.begin, shard.end, file, &shard});
    }
  }
  for (auto& [name, list] : pieces) {
    std::sort(list.begin(), list.end(),
              [](Piece const& a, Piece const& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  }
  return pieces;
}

void check_against_manifest(TensorShard const& shard, Manifest const& manifest) {
  auto const* tensor = manifest.find(shard.name);
  if (tensor == nullptr) {
    throw InvalidArgument(
        fmt::format("the checkpoint of step {} has no tensor {}: it is of another model", manifest.step, shard.name));
  }
  if (tensor->shape != shard.shape || tensor->type != shard.type) {
    throw InvalidArgument(fmt::format("tensor {} is {} {} in the checkpoint of step {}, but {} {} in this model",
                                      shard.name, to_string(tensor->type), shape_text(tensor->shape), manifest.step,
                                      to_string(shard.type), shape_text(shard.shape)));
  }
}

/// Adds the reads for one shard. `pieces` are those of its tensor.
void add_reads(TensorShard const& shard, std::vector<Piece> const& pieces, std::vector<std::vector<ShardRead>>& reads) {
  for (auto position = shard.begin; position < shard.end;) {
    auto const after = std::upper_bound(pieces.begin(), pieces.end(), position,
                                        [](std::int64_t value, Piece const& piece) { return value < piece.begin; });
    if (after == pieces.begin() || (after - 1)->end <= position) {
      auto const gap_end = after == pieces.end() ? shard.end : std::min(shard.end, after->begin);
      throw DataError(fmt::format("the checkpoint does not hold [{}, {}) of tensor {}", position, gap_end, shard.name));
    }
    auto const& piece = *(after - 1);
    auto const end = std::min(shard.end, piece.end);
    auto* target = static_cast<char*>(shard.data) + (position - shard.begin) * size_of(shard.type);
    reads[piece.file].push_back(
        {piece.shard->dataset, shard.type, piece.end - piece.begin, position - piece.begin, end - position, target});
    position = end;
  }
}

}  // namespace

std::string describe_shards(std::int64_t step, std::vector<TensorShard> const& shards) {
  if (step < 0) throw InvalidArgument(fmt::format("step: expected an integer >= 0, found {}", step));
  auto json = nlohmann::json::array({step});
  std::set<std::tuple<std::string, std::int64_t, std::int64_t>> known;
  for (auto const& shard : shards) {
    check_shard(shard);
    if (shard.begin < shard.end && !known.insert({shard.name, shard.begin, shard.end}).second) {
      throw InvalidArgument(
          fmt::format("tensor {}: [{}, {}) is given twice by one rank", shard.name, shard.begin, shard.end));
    }
    json.push_back({shard.name, shard.shape, static_cast<std::int32_t>(shard.type), shard.begin, shard.end});
  }
  return json.dump();
}

SaveLayout make_layout(std::vector<std::string> const& descriptions) {
  SaveLayout layout;
  layout.shards.resize(descriptions.size());
  std::map<std::string, Tensor> tensors;
  std::int64_t step = -1;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    auto const json = nlohmann::json::parse(descriptions[rank]);
    if (rank == 0) step = json[0];
    if (json[0] != step) {
      throw InvalidArgument(fmt::format("rank 0 saves step {}, rank {} step {}", step, rank, json[0].dump()));
    }
    for (std::size_t entry = 1; entry < json.size(); ++entry) {
      std::string const name = json[entry][0];
      std::vector<std::int64_t> const shape = json[entry][1];
      auto const type = static_cast<DataType>(json[entry][2].get<std::int32_t>());
      std::int64_t const begin = json[entry][3];
      std::int64_t const end = json[entry][4];
      auto const [at, is_new] = tensors.try_emplace(name, Tensor{shape, type, static_cast<int>(rank), {}});
      auto& tensor = at->second;
      if (tensor.shape != shape || tensor.type != type) {
        throw InvalidArgument(fmt::format("tensor {} is {} {} on rank {}, but {} {} on rank {}", name,
                                          to_string(tensor.type), shape_text(tensor.shape), tensor.rank,
                                          to_string(type), shape_text(shape), rank));
      }
      if (begin == end) continue;
      auto const [interval, is_new_interval] = tensor.ends.try_emplace(begin, end);
      if (!is_new_interval && interval->second == end) continue;  // an exact replica: the lower rank writes it
      if (!is_new_interval) {
        throw InvalidArgument(fmt::format("tensor {}: the shards [{}, {}) and [{}, {}) overlap", name, begin,
                                          interval->second, begin, end));
      }
      layout.shards[rank].push_back({name, begin, end, dataset_path(name, begin, end)});
    }
  }
  for (auto const& [name, tensor] : tensors) {
    check_coverage(name, tensor);
    layout.tensors.push_back({name, tensor.shape, tensor.type});
  }
  return layout;
}

std::vector<std::vector<ShardRead>> plan_reads(Manifest const& manifest, std::vector<TensorShard> const& shards) {
  auto const pieces = index_pieces(manifest);
  std::vector<std::vector<ShardRead>> reads(manifest.files.size());
  static std::vector<Piece> const none;
  for (auto const& shard : shards) {
    check_shard(shard);
    check_against_manifest(shard, manifest);
    auto const at = pieces.find(shard.name);
    add_reads(shard, at != pieces.end() ? at->second : none, reads);
  }
  return reads;
}

std::vector<std::string> coverage_faults(Manifest const& manifest) {
  auto pieces = index_pieces(manifest);
  std::vector<std::string> faults;
  for (auto const& tensor : manifest.tensors) {
    std::int64_t covered = 0;
    for (auto const& piece : pieces[tensor.name]) {
      if (piece.begin > covered) {
        faults.push_back(fmt::format("tensor {}: no file holds [{}, {})", tensor.name, covered, piece.begin));
      } else if (piece.begin < covered) {
        faults.push_back(
            fmt::format("tensor {}: [{}, {}) is stored twice", tensor.name, piece.begin, std::min(covered, piece.end)));
      }
      covered = std::max(covered, piece.end);
    }
    auto const elements = num_elements(tensor.shape, tensor.type).value();
    if (covered < elements) {
      faults.push_back(fmt::format("tensor {}: no file holds [{}, {})", tensor.name, covered, elements));
    }
  }
  return faults;
}

}  // namespace ballast::detail
