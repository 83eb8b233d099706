# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch's CPU libraries without CMake's CUDA language, which LibTorch's own package file demands.
#
# Looks at LibTorch_ROOT, CMAKE_PREFIX_PATH (also ".../torch/share/cmake", as torch.utils.cmake_prefix_path gives it),
# Torch_DIR, then <project>/.deps/torch, which scripts/setup.sh fills. Gives the target LibTorch::LibTorch, and
# LibTorch_VERSION, LibTorch_PREFIX.
#
# libtorch_cpu.so of a CUDA build needs libcupti.so.13 and libcudart.so.13. Its own run path names
# <prefix>/../nvidia/cu13/lib, where wheels put them; setup.sh keeps that layout, so nothing is to be done here.

set(_hints)
foreach(_dir IN ITEMS "${Torch_DIR}" "$ENV{Torch_DIR}")
  if(_dir)
    list(APPEND _hints "${_dir}/../../..")
  endif()
endforeach()
string(REPLACE ":" ";" _prefixes "${CMAKE_PREFIX_PATH};$ENV{CMAKE_PREFIX_PATH}")
foreach(_dir IN LISTS _prefixes)
  if(_dir)
    list(APPEND _hints "${_dir}/../..")
  endif()
endforeach()
list(APPEND _hints "${PROJECT_SOURCE_DIR}/.deps/torch")

find_path(LibTorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h HINTS ${_hints} PATH_SUFFIXES include)
cmake_path(GET LibTorch_INCLUDE_DIR PARENT_PATH LibTorch_PREFIX)
foreach(_name IN ITEMS torch_cpu c10)
  find_library(LibTorch_${_name}_LIBRARY ${_name} NO_DEFAULT_PATH
    HINTS "${LibTorch_PREFIX}/lib" "${LibTorch_PREFIX}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
endforeach()

if(LibTorch_INCLUDE_DIR)
  foreach(_file IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS "${LibTorch_INCLUDE_DIR}/${_file}")
      file(READ "${LibTorch_INCLUDE_DIR}/${_file}" _text)
      if(_text MATCHES "VERSION_MAJOR ([0-9]+).*VERSION_MINOR ([0-9]+).*VERSION_PATCH ([0-9]+)")
        set(LibTorch_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
      endif()
    endif()
  endforeach()
endif()

# Wheels before 2.7 were built with the old std::string; linking one with ballast_core gives pages of undefined symbols.
if(LibTorch_c10_LIBRARY)
  file(STRINGS "${LibTorch_c10_LIBRARY}" _new_abi REGEX "__cxx11" LIMIT_COUNT 1)
  if(NOT _new_abi)
    set(_abi_message REASON_FAILURE_MESSAGE
      "${LibTorch_c10_LIBRARY} was built with _GLIBCXX_USE_CXX11_ABI=0; take a wheel >= 2.7 or the cxx11-abi archive")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY LibTorch_INCLUDE_DIR _new_abi
  VERSION_VAR LibTorch_VERSION ${_abi_message})
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY)

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  foreach(_name IN ITEMS torch_cpu c10)
    add_library(LibTorch::${_name} SHARED IMPORTED)
    set_target_properties(LibTorch::${_name} PROPERTIES IMPORTED_LOCATION "${LibTorch_${_name}_LIBRARY}")
  endforeach()
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  set_target_properties(LibTorch::LibTorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10")
endif()
