# The CUDA plugin lib/libdistsetup_cuda.so (device, kernels), loaded by the trainer where a GPU is. It is built
# wherever nvcc is found; the NVIDIA wheels and a driver are needed only to load it. Its base symbols come from the program.
file(GLOB cuda_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/runtime/kernels/cuda/*.cu"
  "${PROJECT_SOURCE_DIR}/runtime/kernels/cuda/*.cc" "${PROJECT_SOURCE_DIR}/runtime/device/cuda*.cc")
if(NOT cuda_sources)
  message(STATUS "CUDA plugin: no sources yet, not built")
  return()
endif()
find_program(DISTSETUP_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT DISTSETUP_NVCC)
  if(DISTSETUP_CUDA STREQUAL ON)
    message(FATAL_ERROR "DISTSETUP_CUDA=ON, but nvcc was not found: set CUDA_HOME or DISTSETUP_NVCC")
  endif()
  message(STATUS "CUDA plugin: nvcc not found, not built")
  return()
endif()

set(CMAKE_CUDA_COMPILER "${DISTSETUP_NVCC}")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # the wheel's libcudart, through libtorch
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real)
endif()
find_program(DISTSETUP_CUDA_HOST_CXX NAMES g++ DOC "host compiler of nvcc")
if(DISTSETUP_CUDA_HOST_CXX)
  set(CMAKE_CUDA_HOST_COMPILER "${DISTSETUP_CUDA_HOST_CXX}")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc 12 and later speak C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_path(DISTSETUP_NCCL_DIR nccl.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
  "${TORCH_WHEEL_DIR}/../nvidia/nccl/include" DOC "folder of nccl.h, for its types only")

distsetup_torch_library(c10_cuda libtorch::c10)
distsetup_torch_library(torch_cuda libtorch::c10_cuda libtorch::torch_cpu)
target_include_directories(libtorch::c10_cuda INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
target_compile_definitions(libtorch::torch_cuda INTERFACE USE_CUDA)

add_library(distsetup_cuda MODULE ${cuda_sources})
set_target_properties(distsetup_cuda PROPERTIES LINKER_LANGUAGE CXX POSITION_INDEPENDENT_CODE ON)
target_compile_options(distsetup_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--threads=2;-diag-suppress=20012,20013,20014,20015>")
target_include_directories(distsetup_cuda PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
target_compile_definitions(distsetup_cuda PRIVATE DISTSETUP_VERSION="${PROJECT_VERSION}")
if(DISTSETUP_NCCL_DIR)
  target_include_directories(distsetup_cuda SYSTEM PRIVATE "${DISTSETUP_NCCL_DIR}")
endif()
# --no-as-needed keeps libtorch_cuda.so, which registers ATen's CUDA kernels when it is loaded.
# -Bsymbolic: its own functions are its own, also in a program that has others of these names (the tests of the emulated kernels).
target_link_options(distsetup_cuda PRIVATE LINKER:--no-as-needed LINKER:-Bsymbolic)
target_link_libraries(distsetup_cuda PRIVATE distsetup_fmt_first libtorch::torch_cuda nlohmann_json::nlohmann_json fmt::fmt ${CMAKE_DL_LIBS})
