# libtorch from the Python wheel torch==2.11.0 as imported targets; neither find_package(Torch), which asks for the CUDA toolkit,
# nor Python is involved. scripts/build unpacks the wheel under .deps/; another copy: -DTORCH_WHEEL_DIR=<site-packages>/torch.
# Beside torch/ must lie nvidia/cu13/lib with libcudart.so.13 and libcupti.so.13 (libtorch_cpu.so loads them, found by its rpath).
set(DISTSETUP_TORCH_VERSION 2.11.0)
set(torch_default "${PROJECT_SOURCE_DIR}/.deps/libtorch-${DISTSETUP_TORCH_VERSION}/torch")
if(DEFINED ENV{TORCH_WHEEL_DIR})
  set(torch_default "$ENV{TORCH_WHEEL_DIR}")
endif()
set(TORCH_WHEEL_DIR "${torch_default}" CACHE PATH "torch folder of the unpacked wheel")
if(NOT EXISTS "${TORCH_WHEEL_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no libtorch in ${TORCH_WHEEL_DIR}: run scripts/build --runtime, or set TORCH_WHEEL_DIR")
endif()
file(STRINGS "${TORCH_WHEEL_DIR}/version.py" torch_version REGEX "^__version__")
if(NOT torch_version MATCHES "'${DISTSETUP_TORCH_VERSION}[+']")
  message(FATAL_ERROR "${TORCH_WHEEL_DIR} is not torch ${DISTSETUP_TORCH_VERSION} (found ${torch_version})")
endif()

function(distsetup_torch_library name)
  add_library(libtorch::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(libtorch::${name} PROPERTIES
    IMPORTED_LOCATION "${TORCH_WHEEL_DIR}/lib/lib${name}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${TORCH_WHEEL_DIR}/include;${TORCH_WHEEL_DIR}/include/torch/csrc/api/include")
  target_link_libraries(libtorch::${name} INTERFACE ${ARGN})
endfunction()

distsetup_torch_library(c10)
distsetup_torch_library(torch_cpu libtorch::c10)
# The OpenMP runtime of libtorch's kernels, whose threads ours take too (runtime/engine/threads.cc).
file(GLOB libtorch_openmp "${TORCH_WHEEL_DIR}/lib/libgomp*.so*")
if(NOT libtorch_openmp)
  message(FATAL_ERROR "no libgomp in ${TORCH_WHEEL_DIR}/lib: is this torch built without OpenMP?")
endif()
target_link_libraries(libtorch::torch_cpu INTERFACE "${libtorch_openmp}")
# The wheel carries Gloo's code but not its headers: our declarations stand in (runtime/third_party_stubs/gloo).
target_include_directories(libtorch::torch_cpu INTERFACE "${PROJECT_SOURCE_DIR}/runtime/third_party_stubs")
target_compile_definitions(libtorch::torch_cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # As the wheel was built: they change the layout of ATen's dispatch stubs (ATen/native/DispatchStub.h).
  target_compile_definitions(libtorch::torch_cpu INTERFACE HAVE_AVX512_CPU_DEFINITION HAVE_AVX2_CPU_DEFINITION)
endif()

# The wheel's include folder carries another fmt than the one our libraries are linked with: ours has to be found first.
# Link distsetup_fmt_first before libtorch.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(DISTSETUP_FMT_DIR fmt/format.h HINTS ${fmt_include} NO_DEFAULT_PATH REQUIRED)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fmt_first")
file(CREATE_LINK "${DISTSETUP_FMT_DIR}/fmt" "${PROJECT_BINARY_DIR}/fmt_first/fmt" SYMBOLIC)
add_library(distsetup_fmt_first INTERFACE)
target_include_directories(distsetup_fmt_first SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/fmt_first")

target_link_options(libtorch::torch_cpu INTERFACE
  "LINKER:--allow-shlib-undefined" "LINKER:-rpath,${TORCH_WHEEL_DIR}/lib")
