// SPDX-License-Identifier: Apache-2.0
#include "hdf5.hpp"

#include "ballast/base/error.hpp"
#include "hdf5_output.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace ballast::detail {
namespace {

/// Takes the descriptions of HDF5's error stack: the innermost one says what the system refused.
herr_t collect(unsigned, H5E_error2_t const* entry, void* descriptions) {
  if (entry->desc != nullptr) static_cast<std::vector<std::string>*>(descriptions)->emplace_back(entry->desc);
  return 0;
}

/// HDF5's own text for the last failure, on one line.
std::string last_error() {
  std::vector<std::string> descriptions;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &descriptions);
  H5Eclear2(H5E_DEFAULT);
  if (descriptions.empty()) return "HDF5 gives no reason";
  auto text = descriptions.front();
  // Of a failed system call HDF5 tells time, addresses and sizes around the one thing that matters.
  constexpr std::string_view key = "error message = '";
  if (auto const at = text.find(key); at != text.npos) {
    text = text.substr(at + key.size());
    text = text.substr(0, text.find('\''));
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return fmt::format("{} (HDF5: {})", text, descriptions.back());
}

template <class ErrorType>
[[noreturn]] void fail(std::string const& what, std::filesystem::path const& path) {
  throw ErrorType(fmt::format("cannot {} {}: {}", what, path.string(), last_error()));
}

/// Every HDF5 call goes through this: a negative result throws.
#define BALLAST_CHECK_HDF5(ErrorType, call, what, path) \
  do {                                                  \
    if ((call) < 0) fail<ErrorType>(what, path);        \
  } while (false)

/// Owns the identifier that a call returned; throws if it is none.
template <class ErrorType>
Hdf5Handle own(hid_t id, Hdf5Handle::Closer closer, std::string const& what, std::filesystem::path const& path) {
  if (id < 0) fail<ErrorType>(what, path);
  return Hdf5Handle(id, closer);
}

/// The HDF5 library prints its error stack to stderr unless told not to; its texts go into our errors instead. Stays off:
/// it may fail again when the process ends.
void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

/// HDF5 has no bfloat16; as a described float other programs read its values (h5py as float32).
Hdf5Handle bfloat16_type(std::filesystem::path const& path) {
  constexpr char const* what = "describe bfloat16 for";
  auto type = own<IoError>(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, what, path);
  BALLAST_CHECK_HDF5(IoError, H5Tset_fields(type.id(), 15, 7, 8, 0, 7), what, path);  // sign, exponent, mantissa
  BALLAST_CHECK_HDF5(IoError, H5Tset_size(type.id(), 2), what, path);
  BALLAST_CHECK_HDF5(IoError, H5Tset_ebias(type.id(), 127), what, path);
  return type;
}

/// Little-endian in the file, as in memory on every machine with GPUs: nothing is ever converted.
Hdf5Handle hdf5_type(DataType type, std::filesystem::path const& path) {
  if (type == DataType::bfloat16) return bfloat16_type(path);
  hid_t id = H5I_INVALID_HID;
  switch (type) {
    case DataType::uint8:
      id = H5T_STD_U8LE;
      break;
    case DataType::int32:
      id = H5T_STD_I32LE;
      break;
    case DataType::int64:
      id = H5T_STD_I64LE;
      break;
    case DataType::float32:
      id = H5T_IEEE_F32LE;
      break;
    case DataType::float64:
      id = H5T_IEEE_F64LE;
      break;
    case DataType::bfloat16:
      break;
  }
  return own<IoError>(H5Tcopy(id), H5Tclose, "make a type for", path);
}

Hdf5Handle file_access(std::filesystem::path const& path) {
  return own<IoError>(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "set up access to", path);
}

Hdf5Handle simple_space(std::int64_t size, std::filesystem::path const& path) {
  auto const extent = static_cast<hsize_t>(size);
  return own<IoError>(H5Screate_simple(1, &extent, nullptr), H5Sclose, "make a dataspace for", path);
}

void write_attribute(hid_t dataset, char const* name, hid_t type, Hdf5Handle const& space, void const* value,
                     std::filesystem::path const& path) {
  auto const what = fmt::format("write attribute {} to", name);
  auto attribute =
      own<IoError>(H5Acreate2(dataset, name, type, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what, path);
  BALLAST_CHECK_HDF5(IoError, H5Awrite(attribute.id(), type, value), what, path);
  BALLAST_CHECK_HDF5(IoError, attribute.close(), what, path);
}

void write_attributes(hid_t dataset, Hdf5Shard const& shard, std::filesystem::path const& path) {
  auto const scalar = own<IoError>(H5Screate(H5S_SCALAR), H5Sclose, "make a dataspace for", path);
  write_attribute(dataset, "begin", H5T_STD_I64LE, scalar, &shard.begin, path);
  write_attribute(dataset, "end", H5T_STD_I64LE, scalar, &shard.end, path);
  std::int64_t const nothing = 0;  // HDF5 wants an address also for the empty shape of a scalar
  write_attribute(dataset, "shape", H5T_STD_I64LE, simple_space(std::ssize(shard.shape), path),
                  shard.shape.empty() ? &nothing : shard.shape.data(), path);
  auto const name = to_string(shard.type);
  auto const text = own<IoError>(H5Tcopy(H5T_C_S1), H5Tclose, "make a type for", path);
  BALLAST_CHECK_HDF5(IoError, H5Tset_size(text.id(), name.size()), "make a type for", path);
  BALLAST_CHECK_HDF5(IoError, H5Tset_strpad(text.id(), H5T_STR_NULLPAD), "make a type for", path);
  write_attribute(dataset, "type", text.id(), scalar, name.data(), path);
}

}  // namespace

Hdf5Writer::Hdf5Writer(OutputFile& file) : output_(file) {
  silence();
  auto const& path = output_.path();
  constexpr char const* what = "set up writing to";
  driver_ = own<IoError>(register_output_driver(), H5FDunregister, what, path);
  auto const access = file_access(path);
  BALLAST_CHECK_HDF5(IoError, set_output_driver(access.id(), driver_.id(), output_), what, path);
  BALLAST_CHECK_HDF5(IoError, H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110), what, path);
  BALLAST_CHECK_HDF5(IoError, H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG), what, path);
  file_ = own<IoError>(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), H5Fclose, "create", path);
  output_.check();
}

void Hdf5Writer::write(Hdf5Shard const& shard, void const* data) {
  auto const what = fmt::format("write {} to", shard.dataset);
  auto const type = hdf5_type(shard.type, output_.path());
  auto const space = simple_space(shard.end - shard.begin, output_.path());
  auto const links = own<IoError>(H5Pcreate(H5P_LINK_CREATE), H5Pclose, what, output_.path());
  BALLAST_CHECK_HDF5(IoError, H5Pset_create_intermediate_group(links.id(), 1), what, output_.path());
  BALLAST_CHECK_HDF5(IoError, H5Pset_char_encoding(links.id(), H5T_CSET_UTF8), what, output_.path());
  auto const creation = own<IoError>(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what, output_.path());
  BALLAST_CHECK_HDF5(IoError, H5Pset_layout(creation.id(), H5D_CONTIGUOUS), what, output_.path());
  BALLAST_CHECK_HDF5(IoError, H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER), what, output_.path());
  BALLAST_CHECK_HDF5(IoError, H5Pset_obj_track_times(creation.id(), false), what, output_.path());
  auto dataset = own<IoError>(
      H5Dcreate2(file_.id(), shard.dataset.c_str(), type.id(), space.id(), links.id(), creation.id(), H5P_DEFAULT),
      H5Dclose, what, output_.path());
  BALLAST_CHECK_HDF5(IoError, H5Dwrite(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), what,
                     output_.path());
  write_attributes(dataset.id(), shard, output_.path());
  BALLAST_CHECK_HDF5(IoError, dataset.close(), what, output_.path());
  output_.check();  // HDF5 does not know of failed writes
}

void Hdf5Writer::close() {
  BALLAST_CHECK_HDF5(IoError, file_.close(), "complete", output_.path());
  output_.check();
}

Hdf5Reader::Hdf5Reader(std::filesystem::path path) : path_(std::move(path)) {
  silence();
  auto const access = file_access(path_);
#if H5_VERSION_GE(1, 10, 7)
  // Nobody writes a committed file, and parallel file systems often refuse locks.
  BALLAST_CHECK_HDF5(IoError, H5Pset_file_locking(access.id(), false, true), "set up access to", path_);
#endif
  file_ = own<DataError>(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose, "open", path_);
}

Hdf5Handle Hdf5Reader::open(std::string const& dataset, DataType type, std::int64_t size) const {
  auto const what = fmt::format("open {} of", dataset);
  auto handle = own<DataError>(H5Dopen2(file_.id(), dataset.c_str(), H5P_DEFAULT), H5Dclose, what, path_);
  auto const stored_type = own<DataError>(H5Dget_type(handle.id()), H5Tclose, what, path_);
  auto const space = own<DataError>(H5Dget_space(handle.id()), H5Sclose, what, path_);
  bool const same = H5Tequal(stored_type.id(), hdf5_type(type, path_).id()) > 0 &&
                    H5Sget_simple_extent_ndims(space.id()) == 1 && H5Sget_simple_extent_npoints(space.id()) == size;
  if (!same) {
    throw DataError(fmt::format("{}: {} does not hold the {} elements of {} that the manifest says", path_.string(),
                                dataset, size, to_string(type)));
  }
  return handle;
}

void Hdf5Reader::read(std::string const& dataset, DataType type, std::int64_t size, std::int64_t offset,
                      std::int64_t count, void* data) const {
  auto const what = fmt::format("read {} of", dataset);
  auto const handle = open(dataset, type, size);
  auto const stored = simple_space(size, path_);
  auto const start = static_cast<hsize_t>(offset);
  auto const extent = static_cast<hsize_t>(count);
  BALLAST_CHECK_HDF5(IoError, H5Sselect_hyperslab(stored.id(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr), what,
                     path_);
  BALLAST_CHECK_HDF5(IoError,
                     H5Dread(handle.id(), hdf5_type(type, path_).id(), simple_space(count, path_).id(), stored.id(),
                             H5P_DEFAULT, data),
                     what, path_);
}

void Hdf5Reader::check(std::string const& dataset, DataType type, std::int64_t size) const {
  open(dataset, type, size);
}

}  // namespace ballast::detail
