# One static library per folder of src/, and what they share.

# The standard headers, fmt and nlohmann's JSON, compiled once: a third of the compile time of src/. A file still includes what it
# uses; scripts/check builds without this.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/src_pch.cc" CONTENT "namespace distsetup { int src_pch_anchor; }\n" @ONLY)
add_library(distsetup_src_pch OBJECT "${PROJECT_BINARY_DIR}/src_pch.cc")
target_compile_definitions(distsetup_src_pch PRIVATE DISTSETUP_VERSION="${PROJECT_VERSION}")
target_link_libraries(distsetup_src_pch PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
set(precompiled_headers <algorithm> <cstdint> <functional> <map> <optional> <set> <span> <string> <string_view> <utility> <vector>
  <fmt/format.h> <nlohmann/json.hpp>)
target_precompile_headers(distsetup_src_pch PRIVATE ${precompiled_headers})

# How src/ is optimised in a release build. Most of it runs for milliseconds: little inlining there (50 instead of 225 instructions)
# makes a third less code in half the compile time. HOT sources (schedules, simulation, replay) are where a search spends its time.
set(cold_options -O1)
set(hot_options -O2)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND cold_options "SHELL:-mllvm -inline-threshold=50" "SHELL:-mllvm -inlinehint-threshold=50")
endif()

# distsetup_sources(target options folder...): what a library of src/ is compiled with.
function(distsetup_sources target options)
  target_precompile_headers(${target} REUSE_FROM distsetup_src_pch)
  foreach(option IN LISTS ${options})
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:${option}>")
  endforeach()
  # Several sources at once: most of the time of a source alone goes into headers and templates that its neighbours need too. Off
  # where single files are changed and built again (preset dev).
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${DISTSETUP_UNITY} UNITY_BUILD_BATCH_SIZE 26)
endfunction()

# distsetup_layer(name folder [HOT pattern...] [LIBRARIES library...]): a static library of a folder and its rooms. HOT: which sources
# are optimised for speed, each a regular expression for the end of a path without its ".cc".
function(distsetup_layer name folder)
  cmake_parse_arguments(PARSE_ARGV 2 layer "" "" "HOT;LIBRARIES")
  set(target distsetup_${name})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cc" "${PROJECT_SOURCE_DIR}/${folder}/*/*.cc")
  set(targets ${target})
  if(layer_HOT)
    set(hot_sources ${sources})
    list(JOIN layer_HOT "|" patterns)
    list(FILTER hot_sources INCLUDE REGEX "/(${patterns})\\.cc$")
    list(REMOVE_ITEM sources ${hot_sources})
    add_library(${target}_hot OBJECT ${hot_sources})
    distsetup_sources(${target}_hot hot_options)
    list(APPEND targets ${target}_hot)
    list(APPEND sources $<TARGET_OBJECTS:${target}_hot>)
  endif()
  add_library(${target} STATIC ${sources})
  distsetup_sources(${target} cold_options)
  foreach(one IN LISTS targets)
    target_include_directories(${one} PUBLIC "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
    target_include_directories(${one} SYSTEM PUBLIC "${DISTSETUP_MUSTACHE_DIR}")
    target_link_libraries(${one} PUBLIC ${layer_LIBRARIES})
  endforeach()
endfunction()

# An executable from those of the given sources that exist; none: no target.
function(distsetup_program name library)
  set(sources)
  foreach(source IN LISTS ARGN)
    if(EXISTS "${PROJECT_SOURCE_DIR}/${source}")
      list(APPEND sources "${PROJECT_SOURCE_DIR}/${source}")
    endif()
  endforeach()
  if(NOT sources)
    message(STATUS "${name}: no ${ARGN} yet, not built")
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${library})
endfunction()
