# ctest entries and the targets distsetup_tests, distsetup_runtime_tests that build them. A label is a suite (tests/README.md): one Catch2
# program per folder of C++ tests, one entry per test case; one entry per golden case; one per document (README.md and docs/*.md); and one
# per script of tests/{integration,docs,accuracy}. Exit code 77 of a script means "not run", its last line says why.
# Label all (scripts/test --all): what takes long (test cases tagged [all], documents that train, the scoreboard, some scripts), and the
# scripts named *_all.sh.
# Labels nightly_* (scripts/test --nightly): the same random tests with far more rounds, and the scripts named *_nightly.sh.
enable_testing()

if(NOT DISTSETUP_TESTS STREQUAL OFF)
  find_package(Catch2 2 QUIET)
  if(NOT Catch2_FOUND AND DISTSETUP_TESTS STREQUAL ON)
    message(FATAL_ERROR "DISTSETUP_TESTS=ON, but Catch2 2.x was not found (Debian: catch2)")
  elseif(NOT Catch2_FOUND)
    message(STATUS "tests: Catch2 not found, not built")
  endif()
endif()
if(NOT Catch2_FOUND)
  return()
endif()
include(Catch)

set(test_environment "DISTSETUP_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "DISTSETUP_SOURCE=${PROJECT_SOURCE_DIR}" OMP_NUM_THREADS=1
  # libtorch is not instrumented: containers that cross its border and what it never frees are no findings of ours.
  "ASAN_OPTIONS=detect_container_overflow=0" "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp")
set(nightly_environment DISTSETUP_NIGHTLY=1)  # num_rounds() of tests/support/seed.h
add_custom_target(distsetup_tests)          # of the compiler half
add_custom_target(distsetup_runtime_tests)

# The precompiled header of src/ and Catch2's, which alone takes as long as an average test. A test still includes what it uses.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/test_pch.cc" CONTENT "namespace distsetup { int test_pch_anchor; }\n" @ONLY)
add_library(distsetup_test_pch OBJECT "${PROJECT_BINARY_DIR}/test_pch.cc")
target_compile_definitions(distsetup_test_pch PRIVATE DISTSETUP_VERSION="${PROJECT_VERSION}")
target_include_directories(distsetup_test_pch PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
target_link_libraries(distsetup_test_pch PRIVATE fmt::fmt nlohmann_json::nlohmann_json Catch2::Catch2)
set(test_headers ${precompiled_headers})
list(FILTER test_headers EXCLUDE REGEX "/base/check\\.h$")  # its CHECK would take the place of Catch2's
target_precompile_headers(distsetup_test_pch PRIVATE ${test_headers} <catch2/catch.hpp>)
distsetup_optimise(distsetup_test_pch quick)

# tests/support/*.cc: what several suites share, on the compiler half only.
file(GLOB support_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cc")
add_library(distsetup_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/support/main/catch_main.cc")
target_link_libraries(distsetup_test_main PUBLIC Catch2::Catch2)
target_include_directories(distsetup_test_main PRIVATE "${PROJECT_SOURCE_DIR}/src")
add_library(distsetup_test_support INTERFACE)
if(support_sources)
  add_library(distsetup_test_support_objects STATIC ${support_sources})
  target_link_libraries(distsetup_test_support_objects PUBLIC distsetup_tool)
  target_link_libraries(distsetup_test_support INTERFACE distsetup_test_support_objects)
endif()

set(nightly_seconds 14400)

# ctest reads this file after its list of tests: catch_discover_tests flattens lists, so it cannot set labels and environment itself.
function(distsetup_test_properties list labels environment)
  set(file "${PROJECT_BINARY_DIR}/${list}_properties.cmake")
  file(CONFIGURE OUTPUT "${file}" @ONLY CONTENT
"foreach(test IN LISTS @list@)
  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"@labels@\" ENVIRONMENT \"@environment@\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")
endfunction()

# distsetup_catch_suite(SUITE ALL-TARGET NIGHTLY-SPEC PRECOMPILED LIBRARY...). NIGHTLY-SPEC selects the cases that --nightly repeats with
# more rounds (tests/support/seed.h), as Catch2 selects them ("*" all, "[nightly]" those with this tag, "" none). PRECOMPILED: the
# target whose precompiled header it shares; "": none (torch has a CHECK of its own, so the order of headers counts there).
function(distsetup_catch_suite suite all_target nightly precompiled)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${suite}/*.cc")
  if(NOT sources)
    return()
  endif()
  set(only_with_all)
  foreach(source IN LISTS sources)  # ctest would split such a name into several tests that do not exist
    file(STRINGS "${source}" split REGEX "TEST_CASE\\(\"[^\"]*;")
    file(STRINGS "${source}" long REGEX "\\[all\\]")
    list(APPEND only_with_all ${long})
    if(split)
      message(FATAL_ERROR "${source}: the name of a test case has a semicolon")
    endif()
  endforeach()
  set(target ${suite}_tests)
  add_executable(${target} ${sources})
  if(precompiled)
    target_precompile_headers(${target} REUSE_FROM ${precompiled})
    distsetup_optimise(${target} quick)  # tests are compiled far longer than they run
    set(first core)
    if("distsetup_tool" IN_LIST ARGN)
      list(APPEND first planner tool)
    endif()
    distsetup_optimised_first(${target} ${first})
  else()
    distsetup_optimise(${target} warm)
  endif()
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${target} PRIVATE distsetup_test_main Catch2::Catch2 distsetup_test_support ${ARGN})
  catch_discover_tests(${target} TEST_PREFIX "${suite}." TEST_SPEC "~[all]~[.]" EXTRA_ARGS -w NoTests PROPERTIES TIMEOUT 600)
  distsetup_test_properties(${target}_TESTS "${suite}" "${test_environment}")
  if(only_with_all)
    catch_discover_tests(${target} TEST_PREFIX "${suite}." TEST_SPEC "[all]" TEST_LIST ${target}_ALL EXTRA_ARGS -w NoTests
      PROPERTIES TIMEOUT 600)
    distsetup_test_properties(${target}_ALL "${suite};all" "${test_environment}")
  endif()
  if(nightly)
    catch_discover_tests(${target} TEST_PREFIX "nightly.${suite}." TEST_SPEC "${nightly}" TEST_LIST ${target}_NIGHTLY
      EXTRA_ARGS -w NoTests PROPERTIES TIMEOUT ${nightly_seconds})
    distsetup_test_properties(${target}_NIGHTLY "nightly_${suite}" "${test_environment};${nightly_environment}")
  endif()
  add_dependencies(${all_target} ${target})
endfunction()

set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/unit/test_check.cc" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)  # its CHECK is ours
distsetup_catch_suite(unit distsetup_tests "" distsetup_test_pch distsetup_tool)
if(TARGET distsetup_service)
  # No more than the service itself: with sanitizers (presets address, thread) it is built apart from the rest.
  distsetup_catch_suite(service distsetup_tests "" distsetup_test_pch distsetup_service)
endif()
find_package(rapidcheck QUIET)
if(rapidcheck_FOUND)
  distsetup_catch_suite(property distsetup_tests "*" distsetup_test_pch distsetup_tool rapidcheck)
elseif(DISTSETUP_TESTS STREQUAL ON)
  message(FATAL_ERROR "DISTSETUP_TESTS=ON, but rapidcheck was not found (Debian: librapidcheck-dev)")
else()
  message(STATUS "tests: rapidcheck not found, property tests not built")
endif()
if(DISTSETUP_RUNTIME)
  distsetup_catch_suite(runtime distsetup_runtime_tests "[nightly]" "" distsetup_runtime distsetup_planner)
  if(TARGET runtime_tests AND DISTSETUP_SANITIZE)  # everything is compiled with the same options there; a third of the time
    target_precompile_headers(runtime_tests REUSE_FROM distsetup_pch)
    # Catch2 would print their vectors of structs with libtorch's operator<<, which cannot.
    foreach(name checkpoint comm roll_call)
      set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/runtime/test_${name}.cc" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endforeach()
  endif()
  if(TARGET runtime_tests)  # a stand-in of libnccl.so.2 on host memory
    add_library(fake_nccl MODULE "${PROJECT_SOURCE_DIR}/tests/support/fake_nccl/fake_nccl.cc")
    target_include_directories(fake_nccl PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    # It stands in for a library of C, which says nothing of its functions' types: clang's check of them has nothing to compare.
    target_compile_options(fake_nccl PRIVATE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
    target_compile_definitions(runtime_tests PRIVATE DISTSETUP_FAKE_NCCL="$<TARGET_FILE:fake_nccl>")
    add_dependencies(runtime_tests fake_nccl)
    if(TARGET distsetup_cuda)  # one for several ranks on one GPU (tests/gpu)
      add_library(one_gpu_nccl MODULE "${PROJECT_SOURCE_DIR}/tests/support/one_gpu_nccl/one_gpu_nccl.cu")
      set_target_properties(one_gpu_nccl PROPERTIES LINKER_LANGUAGE CXX POSITION_INDEPENDENT_CODE ON)
      target_include_directories(one_gpu_nccl PRIVATE "${PROJECT_SOURCE_DIR}/tests" ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
      target_link_options(one_gpu_nccl PRIVATE LINKER:--no-as-needed)
      target_link_libraries(one_gpu_nccl PRIVATE libtorch::c10_cuda)  # which brings the CUDA runtime
      add_dependencies(runtime_tests one_gpu_nccl)
    endif()
    # One step of a family's program against Transformers: tests/integration/families_all.sh.
    add_executable(family_check "${PROJECT_SOURCE_DIR}/tests/support/main/family_check.cc")
    target_include_directories(family_check PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    target_link_libraries(family_check PRIVATE distsetup_runtime distsetup_planner)
    set_target_properties(runtime_tests family_check PROPERTIES ENABLE_EXPORTS ON)  # the CUDA plugin's base symbols come from the program
    add_dependencies(distsetup_runtime_tests family_check)
  endif()
endif()

# What every target makes of a plan per strategy: read by tests/golden/targets and tests/integration/emit_parsers_all.sh.
add_executable(emit_targets "${PROJECT_SOURCE_DIR}/tests/support/main/emit_targets.cc")
target_link_libraries(emit_targets PRIVATE distsetup_tool)
distsetup_optimised_first(emit_targets core tool)
add_dependencies(distsetup_tests emit_targets)

# Google Benchmark programs: built on request (ninja planner_bench), never run as tests.
find_package(benchmark QUIET)
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/bench/*.cc")
if(benchmark_FOUND AND bench_sources)
  add_executable(planner_bench EXCLUDE_FROM_ALL ${bench_sources})
  target_link_libraries(planner_bench PRIVATE distsetup_planner benchmark::benchmark benchmark::benchmark_main)
endif()

include(accuracy)

# Scripts of tests/integration that have the machine to themselves, since they hold something to a time: a mutant to a second, a signal
# to be passed on, a build to what a newcomer waits. All others run beside others, like the suites.
set(held_to_a_time bench_repeat fuzz fuzz_all launch quickstart_all watchdog)
# The longest, which begin first, so that none runs alone at the end.
set(takes_minutes emit_targets_all parity_all slurm_launch_all weights_all)
# Those that need no more than the build and have neighbours that show the same in less time: for scripts/test --all too.
set(takes_long faults guard offload resume trainer_flags tune watchdog)
# Those that start SLURM, of which a machine has one.
set(starts_slurm emit_slurm_all launch_scripts_all service_launchers_all slurm_all slurm_launch_all)

function(distsetup_script_test suite script)
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/tests" "${script}")
  add_test(NAME "${name}" COMMAND "${script}" WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set(labels ${suite})
  set(seconds 1200)
  set(environment ${test_environment})
  cmake_path(GET script STEM stem)
  if(script MATCHES "_all\\.sh$|/accuracy/run$" OR stem IN_LIST takes_long)  # scripts/test --all
    list(APPEND labels all)
  elseif(script MATCHES "_nightly\\.sh$")
    set(labels nightly_${suite})
    set(seconds ${nightly_seconds})
    list(APPEND environment ${nightly_environment})
  endif()
  set_tests_properties("${name}" PROPERTIES LABELS "${labels}" TIMEOUT ${seconds} SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
  if(stem IN_LIST held_to_a_time)
    set_tests_properties("${name}" PROPERTIES RUN_SERIAL ON)
  elseif(stem IN_LIST starts_slurm)
    set_tests_properties("${name}" PROPERTIES RESOURCE_LOCK slurm)
  endif()
  if(stem IN_LIST takes_minutes)
    set_tests_properties("${name}" PROPERTIES COST 1000)
  endif()
endfunction()

foreach(suite integration docs accuracy)
  file(GLOB scripts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${suite}/run" "${PROJECT_SOURCE_DIR}/tests/${suite}/*.sh")
  foreach(script IN LISTS scripts)
    distsetup_script_test(${suite} "${script}")
  endforeach()
endforeach()

file(GLOB golden_commands CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/golden/*/cmd")
foreach(command IN LISTS golden_commands)
  cmake_path(GET command PARENT_PATH case)
  cmake_path(GET case FILENAME case)
  add_test(NAME "golden.${case}" COMMAND "${PROJECT_SOURCE_DIR}/tests/golden/run" "${case}")
  set_tests_properties("golden.${case}" PROPERTIES LABELS golden TIMEOUT 60 ENVIRONMENT "${test_environment}")
endforeach()

# Every command of these pages is run, in a scratch folder of the page's own.
file(GLOB documents CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/docs/*.md")
foreach(document IN LISTS documents)
  cmake_path(GET document FILENAME page)
  add_test(NAME "docs/${page}" COMMAND "${PROJECT_SOURCE_DIR}/tests/docs/document.py" "${document}")
  set_tests_properties("docs/${page}" PROPERTIES LABELS docs TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${test_environment}")
  if(page MATCHES "^(README|trainer|weights)\\.md$")  # they train
    set_tests_properties("docs/${page}" PROPERTIES COST 1000 LABELS "docs;all")
  endif()
endforeach()

foreach(check check_layers check_structure)
  add_test(NAME ${check} COMMAND "${PROJECT_SOURCE_DIR}/scripts/${check}")
  set_tests_properties(${check} PROPERTIES LABELS layers TIMEOUT 60)
endforeach()
