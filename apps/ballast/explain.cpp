// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/explain.hpp"

#include "ballast/base/file.hpp"
#include "verb.hpp"

#include <CLI/CLI.hpp>

namespace ballast {
namespace {

class Explain final : public Verb {
 public:
  explicit Explain(CLI::App& parent) : Verb(parent, "explain", "Print a plan in plain words") {
    app().add_option("plan.json", plan_, "Plan")->required();
  }

  int run(Environment& environment) override {
    auto const plan = plan_from_json(read_file(plan_), plan_.string());
    print(environment, to_json(plan), explain(plan));
    return 0;
  }

 private:
  std::filesystem::path plan_;
};

}  // namespace

std::unique_ptr<Verb> make_explain(CLI::App& parent) { return std::make_unique<Explain>(parent); }

}  // namespace ballast
