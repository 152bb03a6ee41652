# runtime/ -> distsetup_runtime and the program distsetup-train. Three kinds of sources:
#   kernels/cpu/*.cc       no torch headers, own flags, g++ where there is one (see below)
#   CUDA parts             kernels/cuda/*, device/cuda*.cc: the plugin, cmake/cuda.cmake
#   everything else        on ATen, with one precompiled header
file(GLOB_RECURSE runtime_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/runtime/*.cc")
list(FILTER runtime_sources EXCLUDE REGEX "/runtime/(train(_main)?\\.cc$|kernels/(cpu|cuda)/|device/cuda|third_party_stubs/)")
file(GLOB kernel_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/runtime/kernels/cpu/*.cc")

# ATen's headers cost 5-15 s a file; the precompiled header brings that to 1-3 s (clang++; g++ gains less).
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/pch.cc" CONTENT "namespace distsetup { int precompiled_header_anchor; }\n")
add_library(distsetup_pch OBJECT "${PROJECT_BINARY_DIR}/pch.cc")
target_link_libraries(distsetup_pch PUBLIC distsetup_fmt_first distsetup_core libtorch::torch_cpu)
target_precompile_headers(distsetup_pch PRIVATE
  <ATen/ATen.h> <ATen/Parallel.h>
  <torch/csrc/distributed/c10d/TCPStore.hpp> <torch/csrc/distributed/c10d/PrefixStore.hpp>
  <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
  <fmt/format.h> <nlohmann/json.hpp> <map> <string> <vector>)

# Kernel files: vectorised over reassociated sums, contraction to FMA, no errno, no traps. NaN and infinity keep their meaning
# (-ffinite-math-only is not set), yet checks for them belong outside these files. g++ 12 vectorises these loops up to seven times
# better than clang++ 14, so it compiles this folder also when the rest is clang's; objects of both link together.
find_program(DISTSETUP_KERNEL_CXX NAMES g++ DOC "C++ compiler of runtime/kernels/cpu")
if(NOT DISTSETUP_KERNEL_CXX)
  set(DISTSETUP_KERNEL_CXX "${CMAKE_CXX_COMPILER}")
endif()
set(kernel_flags -std=c++20 -Wall -Wextra -fPIC -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fassociative-math
  -fno-signed-zeros -freciprocal-math -DNDEBUG -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR})
if(DISTSETUP_WERROR)
  list(APPEND kernel_flags -Werror)
endif()
if(DISTSETUP_NATIVE_ARCH)
  list(APPEND kernel_flags -march=native -DDISTSETUP_ONE_INSTRUCTION_SET)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND kernel_flags -mprefer-vector-width=512)
endif()
if(DISTSETUP_SANITIZE)
  # The compiler of the rest, since a program has one sanitizer runtime, and one copy of each kernel: the loader chooses among several
  # before that runtime has begun, and the choosing would be instrumented too.
  set(DISTSETUP_KERNEL_CXX "${CMAKE_CXX_COMPILER}")
  list(APPEND kernel_flags -O1 -g1 -DDISTSETUP_ONE_INSTRUCTION_SET -D_GLIBCXX_ASSERTIONS ${DISTSETUP_SANITIZER_FLAGS})
endif()
set(kernel_objects)
foreach(source IN LISTS kernel_sources)
  cmake_path(GET source STEM name)
  set(object "${PROJECT_BINARY_DIR}/kernels/${name}.o")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${DISTSETUP_KERNEL_CXX} ${kernel_flags} -MD -MT "${object}" -MF "${object}.d" -c "${source}" -o "${object}"
    DEPENDS "${source}"
    DEPFILE "${object}.d"
    COMMENT "kernel ${name}.cc"
    COMMAND_EXPAND_LISTS VERBATIM)
  list(APPEND kernel_objects "${object}")
endforeach()
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/kernels")
# A target of these alone, which depends on nothing: with distsetup_runtime's dependencies its sources would wait for the libraries of src/.
add_custom_target(distsetup_kernels DEPENDS ${kernel_objects})

if(runtime_sources)
  add_library(distsetup_runtime STATIC ${runtime_sources} ${kernel_objects})
  target_precompile_headers(distsetup_runtime REUSE_FROM distsetup_pch)
  set(visibility PUBLIC)
elseif(kernel_objects)
  add_library(distsetup_runtime STATIC ${kernel_objects})
  set_target_properties(distsetup_runtime PROPERTIES LINKER_LANGUAGE CXX)
  set(visibility PUBLIC)
else()
  add_library(distsetup_runtime INTERFACE)
  set(visibility INTERFACE)
endif()
# The HTTP server of --metrics-address. Its header is used with the flags that the library was compiled with.
find_package(PkgConfig)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(DISTSETUP_HTTPLIB cpp-httplib)
endif()
if(NOT DISTSETUP_HTTPLIB_FOUND)
  message(FATAL_ERROR "cpp-httplib was not found by pkg-config: install libcpp-httplib-dev and pkg-config (scripts/packages.txt)")
endif()
set_source_files_properties("${PROJECT_SOURCE_DIR}/runtime/monitor/open_metrics.cc" PROPERTIES
  COMPILE_OPTIONS "${DISTSETUP_HTTPLIB_CFLAGS}" SKIP_PRECOMPILE_HEADERS ON)
find_package(Threads REQUIRED)
target_link_libraries(distsetup_runtime ${visibility} ${DISTSETUP_HTTPLIB_LINK_LIBRARIES} distsetup_fmt_first distsetup_core libtorch::torch_cpu Threads::Threads ${CMAKE_DL_LIBS})

distsetup_program(distsetup-train distsetup_runtime runtime/train_main.cc runtime/train.cc)
if(TARGET distsetup-train)
  target_precompile_headers(distsetup-train REUSE_FROM distsetup_pch)
  # The CUDA plugin finds the trainer's symbols in the program that loads it.
  set_target_properties(distsetup-train PROPERTIES ENABLE_EXPORTS ON)
endif()
