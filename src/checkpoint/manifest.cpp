// SPDX-License-Identifier: Apache-2.0
#include "manifest.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/base/json.hpp"
#include "step_directory.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ballast::detail {
namespace {

constexpr char const* kSchema = "ballast.checkpoint/1";
constexpr std::size_t kMaxNameBytes = 1000;
constexpr std::size_t kMaxDimensions = 32;
constexpr std::uintmax_t kMaxManifestBytes = std::uintmax_t{1} << 30;
constexpr int kMaxDepth = 100;

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "3-9": the last part of a dataset's path.
bool looks_like_dataset(std::string_view part) {
  auto const dash = part.find('-');
  return dash != part.npos && is_digits(part.substr(0, dash)) && is_digits(part.substr(dash + 1));
}

bool is_utf8(std::string_view text) {
  try {
    nlohmann::json(text).dump();  // refuses anything else
    return true;
  } catch (nlohmann::json::exception const&) {
    return false;
  }
}

/// A name that cannot lead out of the step directory and hides nothing.
bool is_plain_file_name(std::string_view name) {
  auto const plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !name.empty() && name.size() <= 255 && name.front() != '.' && std::all_of(name.begin(), name.end(), plain);
}

bool is_hash(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

CheckpointTensor read_tensor(JsonReader& reader) {
  CheckpointTensor tensor;
  tensor.name = reader.text("name");
  if (auto const fault = name_fault(tensor.name); !fault.empty())
    reader.fail("name", "a tensor's name (" + fault + ")");
  tensor.shape = reader.integers("shape");
  try {
    tensor.type = parse_data_type(reader.text("type"));
  } catch (InvalidArgument const&) {
    reader.fail("type", "the name of an element type");
  }
  if (tensor.shape.size() > kMaxDimensions || !num_elements(tensor.shape, tensor.type)) {
    reader.fail("shape", "at most 32 dimensions >= 0 and less than 2^63 bytes");
  }
  reader.finish();
  return tensor;
}

StoredShard read_shard(JsonReader& reader, Manifest const& manifest) {
  StoredShard shard;
  shard.tensor = reader.text("tensor");
  auto const* tensor = manifest.find(shard.tensor);
  if (tensor == nullptr) reader.fail("tensor", "the name of a tensor of this manifest");
  auto const elements = num_elements(tensor->shape, tensor->type).value();
  shard.begin = reader.integer("begin", 0, elements);
  shard.end = reader.integer("end", 0, elements);
  if (shard.end <= shard.begin) reader.fail("end", fmt::format("an integer > begin = {}", shard.begin));
  shard.dataset = reader.text("dataset");
  if (shard.dataset != dataset_path(shard.tensor, shard.begin, shard.end)) {
    reader.fail("dataset", fmt::format("\"{}\"", dataset_path(shard.tensor, shard.begin, shard.end)));
  }
  reader.finish();
  return shard;
}

StoredFile read_file_entry(JsonReader& reader, Manifest const& manifest) {
  StoredFile file;
  file.name = reader.text("name");
  if (!is_plain_file_name(file.name) || file.name == kManifestName) {
    reader.fail("name", "a plain file name, without folders");
  }
  file.bytes = reader.integer("bytes", 0);
  file.hash = reader.text("hash");
  if (!is_hash(file.hash)) reader.fail("hash", "32 hexadecimal digits");
  for (auto& entry : reader.objects("shards")) file.shards.push_back(read_shard(entry, manifest));
  reader.finish();
  return file;
}

}  // namespace

CheckpointTensor const* Manifest::find(std::string_view name) const {
  auto const at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](CheckpointTensor const& tensor, std::string_view key) { return tensor.name < key; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

std::optional<std::int64_t> num_elements(std::vector<std::int64_t> const& shape, DataType type) {
  // A zero anywhere makes the product zero, but the other dimensions must still be sane by themselves.
  auto const most = std::numeric_limits<std::int64_t>::max() / size_of(type);
  std::int64_t elements = 1;
  bool empty = false;
  for (auto const extent : shape) {
    if (extent < 0) return {};
    empty = empty || extent == 0;
    auto const factor = std::max<std::int64_t>(extent, 1);
    if (factor > most / elements) return {};
    elements *= factor;
  }
  return empty ? 0 : elements;
}

std::string name_fault(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.size() > kMaxNameBytes) return fmt::format("it is longer than {} bytes", kMaxNameBytes);
  if (std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    return "it has a control character";
  }
  if (!is_utf8(name)) return "it is not UTF-8";
  for (std::size_t begin = 0; begin <= name.size();) {
    auto const end = std::min(name.find('/', begin), name.size());
    auto const part = name.substr(begin, end - begin);
    if (part.empty()) return "it has an empty part before, between or after \"/\"";
    if (part == "." || part == "..") return fmt::format("it has the part \"{}\"", part);
    if (looks_like_dataset(part)) return fmt::format("its part \"{}\" looks like an interval", part);
    begin = end + 1;
  }
  return "";
}

std::string dataset_path(std::string_view name, std::int64_t begin, std::int64_t end) {
  return fmt::format("/{}/{}-{}", name, begin, end);
}

std::string to_json(Manifest const& manifest) {
  using Json = nlohmann::ordered_json;
  Json json = {{"schema", kSchema},
               {"step", manifest.step},
               {"tensors", Json::array()},
               {"files", Json::array()},
               {"metadata", Json::parse(manifest.metadata)}};
  for (auto const& tensor : manifest.tensors) {
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"type", to_string(tensor.type)}});
  }
  for (auto const& file : manifest.files) {
    Json shards = Json::array();
    for (auto const& shard : file.shards) {
      shards.push_back(
          {{"tensor", shard.tensor}, {"begin", shard.begin}, {"end", shard.end}, {"dataset", shard.dataset}});
    }
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"hash", file.hash}, {"shards", shards}});
  }
  return json.dump(1) + "\n";
}

Manifest manifest_from_json(std::string_view text, std::string const& source) {
  check_depth(text, source);
  auto const json = parse_json(text, source);
  JsonReader reader(json, source);
  reader.schema(kSchema);
  Manifest manifest;
  manifest.step = reader.integer("step", 0);
  for (auto& entry : reader.objects("tensors")) {
    auto tensor = read_tensor(entry);
    // Sorted by name, so that a repeated name is next to its twin.
    if (!manifest.tensors.empty() && tensor.name <= manifest.tensors.back().name) {
      entry.fail("name", fmt::format("a name after \"{}\"", manifest.tensors.back().name));
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  std::set<std::string> names;
  std::int64_t bytes = 0;
  for (auto& entry : reader.objects("files")) {
    manifest.files.push_back(read_file_entry(entry, manifest));
    auto const& file = manifest.files.back();
    if (!names.insert(file.name).second) entry.fail("name", "each file once");
    if (file.bytes > std::numeric_limits<std::int64_t>::max() - bytes) entry.fail("bytes", "less than 2^63 in all");
    bytes += file.bytes;
  }
  reader.object("metadata");  // must be an object; what is in it belongs to others
  manifest.metadata = json["metadata"].dump();
  reader.finish();
  return manifest;
}

std::string read_manifest_text(std::filesystem::path const& step_directory) {
  auto const path = step_directory / kManifestName;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw DataError(fmt::format("{} is no complete checkpoint: it has no {}", step_directory.string(), kManifestName));
  }
  auto const bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxManifestBytes) {
    throw DataError(fmt::format("{}: {} bytes are too many for a manifest", path.string(), bytes));
  }
  try {
    return read_file(path);
  } catch (InvalidArgument const& gone) {
    throw DataError(gone.what());
  }
}

Manifest checked_manifest(std::string const& text, std::filesystem::path const& step_directory) {
  auto const source = (step_directory / kManifestName).string();
  auto manifest = manifest_from_json(text, source);
  auto const named = step_of(step_directory);
  if (named && *named != manifest.step) {
    throw DataError(
        fmt::format("{}: /step: expected {} as in the directory's name, found {}", source, *named, manifest.step));
  }
  return manifest;
}

void check_depth(std::string_view text, std::string const& source) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char const c = text[at];
    if (in_text) {
      if (c == '\\') ++at;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) throw DataError(fmt::format("{}: nested deeper than {} levels", source, kMaxDepth));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace ballast::detail
