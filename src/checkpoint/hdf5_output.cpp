// SPDX-License-Identifier: Apache-2.0
#include "hdf5_output.hpp"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>  // since HDF5 1.14 drivers are declared here
#endif

#include <new>

namespace ballast::detail {
namespace {

/// What HDF5 copies into its access properties.
struct DriverInfo {
  OutputFile* file;
};

/// HDF5's view of an open file; its own part comes first.
struct OpenFile {
  H5FD_t base;
  OutputFile* file;
  haddr_t allocated;  ///< HDF5's "end of allocation"
};

OpenFile* self(H5FD_t* base) noexcept { return reinterpret_cast<OpenFile*>(base); }
OpenFile const* self(H5FD_t const* base) noexcept { return reinterpret_cast<OpenFile const*>(base); }

extern "C" {

static H5FD_t* ballast_output_open(char const*, unsigned, hid_t access, haddr_t) {
  auto const* info = static_cast<DriverInfo const*>(H5Pget_driver_info(access));
  auto* opened = info != nullptr ? new (std::nothrow) OpenFile{} : nullptr;
  if (opened == nullptr) return nullptr;
  opened->file = info->file;
  return &opened->base;
}

static herr_t ballast_output_close(H5FD_t* base) {
  delete self(base);  // the file itself is its owner's to close
  return 0;
}

static herr_t ballast_output_query(H5FD_t const*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

static haddr_t ballast_output_allocated(H5FD_t const* base, H5FD_mem_t) { return self(base)->allocated; }

static herr_t ballast_output_allocate(H5FD_t* base, H5FD_mem_t, haddr_t end) {
  self(base)->allocated = end;
  return 0;
}

static haddr_t ballast_output_size(H5FD_t const* base, H5FD_mem_t) {
  return static_cast<haddr_t>(self(base)->file->size());
}

static herr_t ballast_output_read(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes, void* data) {
  self(base)->file->read(static_cast<std::int64_t>(offset), data, bytes);
  return 0;
}

static herr_t ballast_output_write(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t offset, std::size_t bytes,
                                   void const* data) {
  self(base)->file->write(static_cast<std::int64_t>(offset), data, bytes);
  return 0;
}

static herr_t ballast_output_truncate(H5FD_t* base, hid_t, hbool_t) {
  self(base)->file->resize(static_cast<std::int64_t>(self(base)->allocated));
  return 0;
}

}  // extern "C"

}  // namespace

hid_t register_output_driver() noexcept {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(666);  // anything from 512 on is for private drivers
#endif
  driver.name = "ballast_output";
  driver.maxaddr = static_cast<haddr_t>(1) << 62;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(DriverInfo);
  driver.open = ballast_output_open;
  driver.close = ballast_output_close;
  driver.query = ballast_output_query;
  driver.get_eoa = ballast_output_allocated;
  driver.set_eoa = ballast_output_allocate;
  driver.get_eof = ballast_output_size;
  driver.read = ballast_output_read;
  driver.write = ballast_output_write;
  driver.truncate = ballast_output_truncate;
  H5FD_mem_t const one_free_list[] = H5FD_FLMAP_DICHOTOMY;
  static_assert(sizeof(one_free_list) == sizeof(driver.fl_map));
  for (int type = 0; type < H5FD_MEM_NTYPES; ++type) driver.fl_map[type] = one_free_list[type];
  return H5FDregister(&driver);
}

herr_t set_output_driver(hid_t access, hid_t driver, OutputFile& file) noexcept {
  DriverInfo const info{&file};
  return H5Pset_driver(access, driver, &info);
}

}  // namespace ballast::detail
