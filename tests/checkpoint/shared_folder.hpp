// SPDX-License-Identifier: Apache-2.0
/// A temporary folder that all ranks of a test see.
#pragma once

#include "ballast/comm/collective.hpp"

#include <filesystem>
#include <string>

#include <stdlib.h>

namespace ballast::test {

class SharedFolder {
 public:
  /// Collective over `comm`, which must outlive it.
  explicit SharedFolder(Communicator& comm) : comm_(comm) {
    std::string name;
    collectively(comm, [&] {
      if (comm.rank() != 0) return;
      name = (std::filesystem::temp_directory_path() / "ballast-test-XXXXXX").string();
      if (mkdtemp(name.data()) == nullptr) throw IoError("cannot create " + name);
    });
    path_ = broadcast_text(comm, name, 0);
  }
  /// Collective, unlike destructors of the library: no rank removes what another still looks at.
  ~SharedFolder() {
    try {
      comm_.barrier();
    } catch (std::exception const&) {  // the test failed elsewhere
    }
    std::error_code ignored;
    if (comm_.rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(SharedFolder const&) = delete;
  SharedFolder& operator=(SharedFolder const&) = delete;

  std::filesystem::path const& path() const noexcept { return path_; }

  /// Runs `change` on rank 0 while no other rank looks. Collective.
  template <class Change>
  void on_rank_0(Change const& change) const {
    comm_.barrier();
    collectively(comm_, [&] {
      if (comm_.rank() == 0) change();
    });
  }

 private:
  Communicator& comm_;
  std::filesystem::path path_;
};

}  // namespace ballast::test
