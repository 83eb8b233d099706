// SPDX-License-Identifier: Apache-2.0
/// HDF5's way to an `OutputFile`: a file driver that never tells HDF5 of a failure.
#pragma once

#include "output_file.hpp"

#include <hdf5.h>

namespace ballast::detail {

/// Registers the driver; the identifier is closed by H5FDunregister. Negative if HDF5 refuses.
hid_t register_output_driver() noexcept;

/// Makes files that are created with `access` write into `file`, which must outlive them. Negative if HDF5 refuses.
herr_t set_output_driver(hid_t access, hid_t driver, OutputFile& file) noexcept;

}  // namespace ballast::detail
