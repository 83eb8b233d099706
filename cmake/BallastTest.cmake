# SPDX-License-Identifier: Apache-2.0
# ballast_add_test(NAME <executable> SOURCES a_test.cpp ... [RANKS 1 2 4] [TORCH] [SLOW]
#                  [LABELS ...] [LIBRARIES ...] [TIMEOUT seconds])
#
# One executable of GoogleTest tests. Without RANKS it is one ctest <executable> with label "pure". With RANKS it gets
# tests/support/mpi_main.cpp as its main and one ctest <executable>.<R> per rank count, run by mpirun, with label "mpi".
# TORCH links ballast::ballast (label "torch"; not built without LibTorch), else it links ballast::core only.
# SLOW adds the label "slow", which scripts/test.sh leaves out. TIMEOUT is 120 s unless given.
function(ballast_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH;SLOW" "NAME;TIMEOUT" "SOURCES;RANKS;LABELS;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_SOURCES)
    message(FATAL_ERROR "ballast_add_test(${ARGN}): needs NAME and SOURCES, does not know '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(arg_TORCH AND NOT BALLAST_WITH_TORCH)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()

  add_executable(${arg_NAME} ${arg_SOURCES})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${arg_NAME} PRIVATE ballast::core GTest::gtest ${arg_LIBRARIES})
  if(arg_TORCH)
    target_link_libraries(${arg_NAME} PRIVATE ballast::ballast)
    ballast_reuse_torch_pch(${arg_NAME})
    list(APPEND arg_LABELS torch)
  endif()
  if(arg_SLOW)
    list(APPEND arg_LABELS slow)
  endif()

  if(NOT arg_RANKS)
    target_link_libraries(${arg_NAME} PRIVATE GTest::gtest_main)
    add_test(NAME ${arg_NAME} COMMAND ${arg_NAME})
    ballast_test_properties(${arg_NAME} LABELS pure ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
    return()
  endif()
  target_sources(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp")
  foreach(ranks IN LISTS arg_RANKS)
    set(test ${arg_NAME}.${ranks})
    # timeout tells mpirun to end, which ends its ranks; ctest alone would leave them running.
    math(EXPR ctest_timeout "${arg_TIMEOUT} + 15")
    add_test(NAME ${test} COMMAND timeout -k 5 ${arg_TIMEOUT} ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
      $<TARGET_FILE:${arg_NAME}>)
    ballast_test_properties(${test} LABELS mpi ${arg_LABELS} TIMEOUT ${ctest_timeout})
    set_tests_properties(${test} PROPERTIES PROCESSORS ${ranks})
    # Matters under AddressSanitizer only: Open MPI unloads its plugins with memory unfreed, and no suppression can name a
    # module that is gone. Leaks are looked for in the pure tests.
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endforeach()
endfunction()

# ballast_test_properties(<test> LABELS ... TIMEOUT s): what every ctest of the project gets.
# Open MPI is set up by its environment, see scripts/env.sh.
function(ballast_test_properties test)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS")
  set_tests_properties(${test} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    FAIL_REGULAR_EXPRESSION "HDF5-DIAG;Running 0 tests"  # HDF5 errors nobody handled; a test that does nothing
    ENVIRONMENT "BALLAST_PYTHON=${BALLAST_PYTHON};OMP_NUM_THREADS=1;${BALLAST_MPI_ENVIRONMENT}")
endfunction()
