// SPDX-License-Identifier: Apache-2.0
/// A model: a chain of named layer factories and a loss. Nothing is built until a rank needs its layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ballast/model/layer.hpp"

namespace ballast {

/// A chain of layers, each built only where it is placed.
///
/// Example: `Model model("net"); model.add("in", [] { return torch::nn::Linear(8, 64); }); ...` (with
/// model/torch_module.hpp). Layers with the same non-empty `kind` have equal shapes and costs and are profiled once.
class Model {
 public:
  explicit Model(std::string name = "model");

  /// Appends a layer. @throws InvalidArgument if the name is empty, taken, or holds other than [A-Za-z0-9_.-].
  template <class Factory>
  Model& add(std::string name, Factory factory, std::string kind = "") {
    using Result = decltype(factory());
    return add_layer(std::move(name), [factory] { return LayerAdapter<Result>::adapt(factory()); }, std::move(kind));
  }
  Model& add_layer(std::string name, LayerFactory factory, std::string kind = "");

  /// Default: cross_entropy_loss.
  Model& set_loss(LossFunction loss);

  std::string const& name() const noexcept { return name_; }
  int num_layers() const noexcept { return static_cast<int>(layers_.size()); }
  std::vector<std::string> layer_names() const;
  std::string const& layer_name(int layer) const { return layers_.at(layer).name; }
  std::string const& layer_kind(int layer) const { return layers_.at(layer).kind; }
  LossFunction const& loss() const noexcept { return loss_; }

  /// Builds one layer with the default generator seeded by (seed, layer name): the same bits on whatever rank, in
  /// whatever order. @throws DeviceError if it does not fit, Error if the factory fails; both name the layer.
  std::unique_ptr<Layer> build(int layer, std::uint64_t seed) const;

 private:
  struct Entry {
    std::string name;
    LayerFactory factory;
    std::string kind;
  };
  std::string name_;
  std::vector<Entry> layers_;
  LossFunction loss_;
};

}  // namespace ballast
