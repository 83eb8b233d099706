# SPDX-License-Identifier: Apache-2.0
# Installs the libraries, their headers and what find_package(ballast) needs.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ballast")
set(libraries ballast_core)
if(BALLAST_WITH_TORCH)
  list(APPEND libraries ballast)
endif()
install(TARGETS ${libraries} EXPORT ballastTargets FILE_SET HEADERS)
install(EXPORT ballastTargets NAMESPACE ballast:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/ballastConfig.cmake.in "${PROJECT_BINARY_DIR}/ballastConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ballastConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/ballastConfig.cmake" "${PROJECT_BINARY_DIR}/ballastConfigVersion.cmake"
        cmake/FindLibTorch.cmake cmake/FindNCCL.cmake
  DESTINATION "${package_dir}")
