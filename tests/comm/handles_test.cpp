// SPDX-License-Identifier: Apache-2.0
// How handles of this module may be moved and copied, and the request, which needs no MPI.
#include "ballast/comm/communicator.hpp"
#include "ballast/comm/mpi.hpp"
#include "ballast/comm/request.hpp"

#include <type_traits>

#include <gtest/gtest.h>

namespace ballast {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Request> && std::is_nothrow_move_assignable_v<Request>);
static_assert(!std::is_copy_constructible_v<Request> && !std::is_copy_assignable_v<Request>);
static_assert(!std::is_copy_constructible_v<Communicator> && !std::is_move_constructible_v<Communicator>);
static_assert(std::has_virtual_destructor_v<Communicator> && std::has_virtual_destructor_v<RequestState>);
static_assert(!std::is_copy_constructible_v<MpiSession> && !std::is_move_constructible_v<MpiSession>);

class CountingState : public RequestState {
 public:
  explicit CountingState(int& waits) : waits_(waits) {}
  void wait() override { ++waits_; }

 private:
  int& waits_;
};

TEST(Request, IsCompleteWhenEmpty) {
  Request request;

  EXPECT_TRUE(request.empty());
  EXPECT_NO_THROW(request.wait());
  EXPECT_NO_THROW(request.synchronize());
}

TEST(Request, IsWaitedForOnce) {
  int waits = 0;
  Request request(std::make_unique<CountingState>(waits));

  request.wait();
  request.wait();
  request.synchronize();

  EXPECT_EQ(waits, 1);
  EXPECT_TRUE(request.empty());
}

TEST(Request, MovesItsOperationAlong) {
  int waits = 0;
  Request first(std::make_unique<CountingState>(waits));

  Request second = std::move(first);
  second.synchronize();

  EXPECT_EQ(waits, 1);
}

}  // namespace
}  // namespace ballast
