// SPDX-License-Identifier: Apache-2.0
#include "ballast/base/error.hpp"

#include "ballast/base/assert.hpp"

#include <new>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(Error, OfEveryKindIsThrownAsItsOwnType) {
  EXPECT_THROW(throw_error(ErrorKind::invalid_argument, "a"), InvalidArgument);
  EXPECT_THROW(throw_error(ErrorKind::infeasible_plan, "a"), InfeasiblePlan);
  EXPECT_THROW(throw_error(ErrorKind::communication, "a"), CommunicationError);
  EXPECT_THROW(throw_error(ErrorKind::device, "a"), DeviceError);
  EXPECT_THROW(throw_error(ErrorKind::io, "a"), IoError);
  EXPECT_THROW(throw_error(ErrorKind::data, "a"), DataError);
  EXPECT_THROW(throw_error(ErrorKind::not_compiled, "a"), NotCompiled);
  EXPECT_THROW(throw_error(ErrorKind::failed, "a"), Error);
}

TEST(Error, KeepsKindAndMessageOnTheWayThroughAnExceptionPointer) {
  for (auto kind :
       {ErrorKind::failed, ErrorKind::invalid_argument, ErrorKind::infeasible_plan, ErrorKind::communication,
        ErrorKind::device, ErrorKind::io, ErrorKind::data, ErrorKind::not_compiled}) {
    std::exception_ptr caught;
    try {
      throw_error(kind, "what and why");
    } catch (...) {
      caught = std::current_exception();
    }

    EXPECT_EQ(kind_of(caught), kind);
    EXPECT_EQ(message_of(caught), "what and why");
  }
}

TEST(Error, HasTheExitCodesOfTheCommandLine) {
  EXPECT_EQ(exit_code(ErrorKind::invalid_argument), 2);
  EXPECT_EQ(exit_code(ErrorKind::infeasible_plan), 3);
  EXPECT_EQ(exit_code(ErrorKind::data), 65);
  for (auto kind :
       {ErrorKind::failed, ErrorKind::communication, ErrorKind::device, ErrorKind::io, ErrorKind::not_compiled}) {
    EXPECT_EQ(exit_code(kind), 1);
  }
}

TEST(MessageOf, CutsTheStackTraceThatLibTorchAppends) {
  auto const error =
      std::make_exception_ptr(std::runtime_error("shapes differ: [2] and [3]\nException raised from add at ops.cpp:12 "
                                                 "(most recent call first):\nframe #0: f + 0x12"));

  EXPECT_EQ(message_of(error), "shapes differ: [2] and [3]");
}

TEST(MessageOf, KeepsThoseWordsInsideALine) {
  auto const error = std::make_exception_ptr(std::runtime_error("an Exception raised from nowhere"));

  EXPECT_EQ(message_of(error), "an Exception raised from nowhere");
}

TEST(MessageOf, SaysSomethingForWhateverIsThrown) {
  EXPECT_EQ(message_of(std::make_exception_ptr(std::bad_alloc())), "out of host memory");
  EXPECT_EQ(message_of(std::make_exception_ptr(42)), "an exception of unknown type");
  EXPECT_EQ(message_of(nullptr), "no error");
  EXPECT_EQ(kind_of(std::make_exception_ptr(42)), ErrorKind::failed);
  EXPECT_EQ(kind_of(nullptr), ErrorKind::failed);
}

TEST(Assert, NamesExpressionAndPlaceWhenItFails) {
  try {
    BALLAST_ASSERT(1 + 1 == 3);
    FAIL() << "nothing was thrown";
  } catch (Error const& error) {
    std::string const message = error.what();
    EXPECT_NE(message.find("1 + 1 == 3"), message.npos) << message;
    EXPECT_NE(message.find("error_test.cpp:"), message.npos) << message;
  }
}

TEST(Assert, EvaluatesItsExpressionOnce) {
  int evaluated = 0;

  BALLAST_ASSERT(++evaluated == 1);

  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace ballast
