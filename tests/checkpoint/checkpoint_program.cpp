// SPDX-License-Identifier: Apache-2.0
// Saves and loads the example tensors for checkpoint_program_test.py.
//   save DIR STEP         all ranks save
//   load DIR              all ranks load the newest step and check every element
//   save-until-killed DIR saves steps 1, 2, ...
//   fill DIR STEP BYTES   saves a tensor of BYTES per rank
//   digest FILE           prints size and hash as a manifest has them
#include "ballast/base/error.hpp"
#include "ballast/checkpoint/checkpoint.hpp"
#include "ballast/cluster/environment.hpp"
#include "checkpoint/files.hpp"
#include "example_tensors.hpp"

#include <chrono>
#include <cstdio>
#include <limits>
#include <string>

namespace {

using namespace ballast;

void save(Communicator& world, std::string const& directory, std::int64_t step) {
  auto saved = test::example_shards(world.rank(), world.size(), true);
  save_checkpoint(world, directory, step, saved.list(), R"({"made by": "checkpoint_program"})");
}

void load(Communicator& world, std::string const& directory) {
  auto const checkpoint = find_checkpoint(directory);
  if (!checkpoint) throw DataError("there is no checkpoint in " + directory);
  auto loaded = test::example_shards(world.rank(), world.size(), false);
  load_checkpoint(world, *checkpoint, loaded.list());
  if (auto const name = loaded.first_difference(); !name.empty()) throw DataError(name + " has wrong elements");
  if (auto const faults = verify_checkpoint(*checkpoint); !faults.empty()) throw DataError(faults[0]);
  if (world.rank() == 0) std::printf("step %lld\n", static_cast<long long>(checkpoint->step));
}

void fill(Communicator& world, std::string const& directory, std::int64_t step, std::int64_t bytes) {
  std::vector<std::uint8_t> data(static_cast<std::size_t>(bytes), 1);
  auto const begin = bytes * world.rank();
  save_checkpoint(world, directory, step,
                  {{"data", {bytes * world.size()}, DataType::uint8, begin, begin + bytes, data.data()}}, "{}");
}

void run(Environment& environment) {
  auto const& arguments = environment.arguments();
  auto const& what = arguments.at(0);
  auto const& where = arguments.at(1);
  if (what == "save") save(environment.world(), where, std::stoll(arguments.at(2)));
  if (what == "load") load(environment.world(), where);
  if (what == "fill") fill(environment.world(), where, std::stoll(arguments.at(2)), std::stoll(arguments.at(3)));
  if (what == "save-until-killed") {
    for (std::int64_t step = 1; step < std::numeric_limits<std::int64_t>::max(); ++step) {
      save(environment.world(), where, step);
      std::printf("step %lld\n", static_cast<long long>(step));
      std::fflush(stdout);
    }
  }
  if (what == "digest") {
    auto const digest = detail::digest_file(where);
    std::printf("%lld %s\n", static_cast<long long>(digest.bytes), digest.hash.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) { return run_main(argc, argv, run); }
