// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/collective.hpp"
#include "ballast/comm/mpi.hpp"
#include "support/mpi_test.hpp"

#include <cstdlib>

namespace ballast {
namespace {

TEST(MpiSession, LeavesMpiToTheOneWhoStartedIt) {
  int argc = 0;
  char** argv = nullptr;

  { MpiSession const second(argc, argv); }

  EXPECT_EQ(all_reduce_value(test::world(), std::int64_t{1}, ReduceOperation::sum), test::world().size());
}

TEST(MpiWorld, MayBeMadeSeveralTimesAndOutlivedByItsParts) {
  auto part = make_mpi_world()->split(0, 0);
  auto other = make_mpi_world();

  EXPECT_EQ(all_reduce_value(*part, std::int64_t{1}, ReduceOperation::sum), test::world().size());
  EXPECT_EQ(all_reduce_value(*other, std::int64_t{1}, ReduceOperation::sum), test::world().size());
}

TEST(LaunchedByMpi, KnowsTheLaunchersByWhatTheySet) {
  bool const here = launched_by_mpi();
  EXPECT_EQ(here, test::world().size() > 1);  // these tests run under mpirun
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) unsetenv(name);
  EXPECT_FALSE(launched_by_mpi());

  setenv("PMI_SIZE", "2", 1);
  EXPECT_TRUE(launched_by_mpi());
  setenv("PMI_SIZE", "1", 1);
  EXPECT_FALSE(launched_by_mpi());
  setenv("SLURM_NTASKS", "4", 1);  // set in a batch script, too, outside any srun
  EXPECT_FALSE(launched_by_mpi());
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_TRUE(launched_by_mpi());
}

}  // namespace
}  // namespace ballast
