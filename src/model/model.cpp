// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/seed.hpp"
#include "ballast/device/tensor_types.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace ballast {
namespace {

constexpr std::string_view kNameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

}  // namespace

Model::Model(std::string name) : name_(std::move(name)), loss_(cross_entropy_loss) {}

Model& Model::add_layer(std::string name, LayerFactory factory, std::string kind) {
  // Names become parts of tensor names in checkpoints, of seeds and of plans.
  if (name.empty() || name.find_first_not_of(kNameCharacters) != name.npos) {
    throw InvalidArgument(fmt::format("layer name '{}': expected one or more of A-Z, a-z, 0-9, '_', '.', '-'", name));
  }
  if (std::ranges::any_of(layers_, [&](Entry const& entry) { return entry.name == name; })) {
    throw InvalidArgument(fmt::format("layer name '{}' is taken already in model '{}'", name, name_));
  }
  if (!factory) throw InvalidArgument(fmt::format("layer '{}' has no factory", name));
  layers_.push_back({std::move(name), std::move(factory), std::move(kind)});
  return *this;
}

Model& Model::set_loss(LossFunction loss) {
  if (!loss) throw InvalidArgument(fmt::format("model '{}': the loss is empty", name_));
  loss_ = std::move(loss);
  return *this;
}

std::vector<std::string> Model::layer_names() const {
  std::vector<std::string> names;
  names.reserve(layers_.size());
  for (auto const& entry : layers_) names.push_back(entry.name);
  return names;
}

std::unique_ptr<Layer> Model::build(int layer, std::uint64_t seed) const {
  Entry const& entry = layers_.at(static_cast<std::size_t>(layer));
  std::unique_ptr<Layer> built;
  translate_torch_errors(fmt::format("building layer '{}'", entry.name), [&] {
    seed_default_generator(derive_seed(seed, entry.name));
    built = entry.factory();
  });
  if (!built) throw InvalidArgument(fmt::format("the factory of layer '{}' returned nothing", entry.name));
  return built;
}

}  // namespace ballast
