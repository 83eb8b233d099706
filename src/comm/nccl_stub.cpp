// SPDX-License-Identifier: Apache-2.0
// Stands in for nccl.cpp in a build without NCCL.
#include "ballast/comm/nccl.hpp"

namespace ballast {

bool nccl_compiled() noexcept { return false; }

std::unique_ptr<Communicator> make_nccl_communicator(Communicator&, int) {
  throw NotCompiled("this build of Ballast has no NCCL; configure with -DBALLAST_WITH_NCCL=ON where CUDA and NCCL are");
}

}  // namespace ballast
