// SPDX-License-Identifier: Apache-2.0
#include "ballast/device/pace.hpp"

#include "ballast/base/error.hpp"

#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

namespace ballast {
namespace {

void compute(double cpu_s) {
  double const end_s = thread_cpu_seconds() + cpu_s;
  while (thread_cpu_seconds() < end_s) {
  }
}

TEST(Pacer, WithoutSlowdownWorkTakesTheTimeItTakes) {
  Pacer pacer;
  double const start_s = wall_seconds();
  double const lasted_s = pacer.run([] { compute(0.005); });
  double const passed_s = wall_seconds() - start_s;

  EXPECT_GE(lasted_s, 0.005);
  EXPECT_LE(lasted_s, passed_s);
  EXPECT_EQ(pacer.busy_s(), lasted_s);
}

TEST(Pacer, WorkLastsAtLeastItsCpuTimeTimesTheSlowdown) {
  Pacer pacer(4.0);
  for (double const cpu_s : {0.0002, 0.001, 0.005}) {
    double const start_s = wall_seconds();
    double const lasted_s = pacer.run([&] { compute(cpu_s); });

    EXPECT_GE(lasted_s, 4.0 * cpu_s);
    EXPECT_GE(wall_seconds() - start_s, 4.0 * cpu_s);
  }
}

TEST(Pacer, SleepingTakesNoCpuTime) {
  Pacer pacer(20.0);
  double const start_s = thread_cpu_seconds();
  pacer.run([] { compute(0.002); });

  EXPECT_LT(thread_cpu_seconds() - start_s, 0.010);  // 0.040 when it were spent spinning
}

TEST(Pacer, CallsIdleWhileItSleepsAndSleepsNoLonger) {
  int calls = 0;
  Pacer pacer(20.0, [&] { ++calls; });
  double const start_s = thread_cpu_seconds();
  double const lasted_s = pacer.run([] { compute(0.002); });

  EXPECT_GE(lasted_s, 0.040);
  EXPECT_GE(calls, 10);
  EXPECT_LE(calls, 1000);
  EXPECT_LT(thread_cpu_seconds() - start_s, 0.015);  // 0.040 when it were spent spinning
}

TEST(Pacer, WithoutSlowdownIdleIsNeverCalled) {
  Pacer pacer(0.0, [] { FAIL(); });
  pacer.run([] { compute(0.001); });
}

TEST(Pacer, BusySumsTheRunsUntilTheReset) {
  Pacer pacer(2.0);
  double sum_s = pacer.run([] { compute(0.001); });
  sum_s += pacer.run([] { compute(0.001); });
  EXPECT_DOUBLE_EQ(pacer.busy_s(), sum_s);

  pacer.reset();
  EXPECT_EQ(pacer.busy_s(), 0.0);
}

TEST(Pacer, WorkThatThrowsIsNotSleptFor) {
  Pacer pacer(1e6);
  double const start_s = wall_seconds();

  EXPECT_THROW(pacer.run([] {
    compute(0.001);
    throw std::runtime_error("work");
  }),
               std::runtime_error);

  EXPECT_LT(wall_seconds() - start_s, 100.0);  // 1000 s if it slept
}

TEST(Pacer, RefusesASlowdownThatIsNone) {
  EXPECT_THROW(Pacer(-1.0), InvalidArgument);
  EXPECT_THROW(Pacer(std::numeric_limits<double>::infinity()), InvalidArgument);
  EXPECT_THROW(Pacer(std::numeric_limits<double>::quiet_NaN()), InvalidArgument);
}

}  // namespace
}  // namespace ballast
