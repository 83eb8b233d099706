# SPDX-License-Identifier: Apache-2.0
# Installs ballast below its build folder, then configures, builds and runs the consumer project against it,
# and runs the installed command.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

set(work "${BUILD_DIR}/install_consumer")
file(REMOVE_RECURSE "${work}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${work}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${work}/build" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DWITH_TORCH=${WITH_TORCH}")
run("${CMAKE_COMMAND}" --build "${work}/build" --parallel 2)
run(timeout -k 5 60 "${MPIEXEC}" -n 2 "${work}/build/core_consumer")
if(WITH_TORCH)
  run(timeout -k 5 120 "${MPIEXEC}" -n 2 "${work}/build/torch_consumer")
  if(WITH_APPS)
    run(timeout -k 5 60 "${work}/prefix/bin/ballast" --help)
  endif()
endif()
