// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hdf5.hpp"

#include "ballast/base/error.hpp"

#include <filesystem>
#include <fstream>
#include <type_traits>

#include <gtest/gtest.h>

namespace ballast::detail {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Hdf5Handle>);
static_assert(std::is_nothrow_move_assignable_v<Hdf5Handle>);
static_assert(!std::is_copy_constructible_v<Hdf5Handle>);
static_assert(!std::is_copy_assignable_v<Hdf5Handle>);

int num_closed = 0;
herr_t count_closing(hid_t) {
  ++num_closed;
  return 0;
}

TEST(Hdf5Handle, ClosesOnceHoweverItIsMoved) {
  num_closed = 0;
  {
    Hdf5Handle first(1, count_closing);
    Hdf5Handle second(std::move(first));
    EXPECT_FALSE(first.valid());
    Hdf5Handle third(2, count_closing);
    third = std::move(second);
    EXPECT_EQ(num_closed, 1) << "what was overwritten";
    auto& itself = third;
    third = std::move(itself);
    EXPECT_EQ(third.id(), 1);
  }
  EXPECT_EQ(num_closed, 2);
  Hdf5Handle last(3, count_closing);
  EXPECT_EQ(last.close(), 0);
  EXPECT_EQ(last.close(), 0) << "a second time does nothing";
  EXPECT_EQ(num_closed, 3);
}

TEST(Hdf5Reader, RefusesWhatIsNoHdf5File) {
  auto const path = std::filesystem::temp_directory_path() / ("ballast-no-hdf5-" + std::to_string(getpid()));
  std::ofstream(path) << "this is no HDF5 file";

  testing::internal::CaptureStderr();
  EXPECT_THROW(Hdf5Reader{path}, DataError);
  EXPECT_THROW(Hdf5Reader{"/nonexistent/file.h5"}, DataError);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "HDF5 must not print";
  std::filesystem::remove(path);
}

TEST(OutputFile, NamesPathAndReasonOfTheFailure) {
  try {
    OutputFile const file("/nonexistent/file.h5");
    ADD_FAILURE() << "created";
  } catch (IoError const& error) {
    EXPECT_EQ(std::string(error.what()), "cannot create /nonexistent/file.h5: No such file or directory");
  }
}

TEST(Hdf5, CutsAnIntervalOutAndChecksTypeAndSize) {
  auto const path = std::filesystem::temp_directory_path() / ("ballast-hdf5-" + std::to_string(getpid()));
  std::vector<double> const data = {0, 1, 2, 3, 4, 5, 6};
  OutputFile output(path);
  Hdf5Writer writer(output);
  writer.write({"/a/b/3-10", {5, 2}, DataType::float64, 3, 10}, data.data());
  writer.close();
  output.commit();

  Hdf5Reader const reader(path);
  std::vector<double> part(3);
  reader.read("/a/b/3-10", DataType::float64, 7, 2, 3, part.data());

  EXPECT_EQ(part, (std::vector<double>{2, 3, 4}));
  EXPECT_NO_THROW(reader.check("/a/b/3-10", DataType::float64, 7));
  EXPECT_THROW(reader.check("/a/b/3-10", DataType::float64, 6), DataError);
  EXPECT_THROW(reader.check("/a/b/3-10", DataType::int64, 7), DataError);
  EXPECT_THROW(reader.check("/a/b", DataType::float64, 7), DataError);
  EXPECT_THROW(reader.check("/a/c/3-10", DataType::float64, 7), DataError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace ballast::detail
