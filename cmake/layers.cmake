# One static library per folder of src/, and what they share.

# The standard headers, fmt and nlohmann's JSON, compiled once: a third of the compile time of src/. A file still includes what it
# uses; scripts/check builds without this.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/src_pch.cc" CONTENT "namespace distsetup { int src_pch_anchor; }\n" @ONLY)
add_library(distsetup_src_pch OBJECT "${PROJECT_BINARY_DIR}/src_pch.cc")
target_compile_definitions(distsetup_src_pch PRIVATE DISTSETUP_VERSION="${PROJECT_VERSION}")
target_link_libraries(distsetup_src_pch PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
target_precompile_headers(distsetup_src_pch PRIVATE <algorithm> <cstdint> <functional> <map> <optional> <set> <span> <string>
  <string_view> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# distsetup_layer(name folder library...). A folder without sources yet becomes an interface library, so links stay valid.
# HOT: -O2. The others run for milliseconds: -O1 there saves a fifth of the compile time.
function(distsetup_layer name folder)
  cmake_parse_arguments(PARSE_ARGV 2 layer HOT BATCH "")
  if(NOT layer_BATCH)
    set(layer_BATCH 12)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cc" "${PROJECT_SOURCE_DIR}/${folder}/*/*.cc")
  set(target distsetup_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    target_precompile_headers(${target} REUSE_FROM distsetup_src_pch)
    if(NOT layer_HOT)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    # Several sources at once: most of the time of a source alone goes into headers and templates that its neighbours need too. Off
    # where single files are changed and built again (preset dev).
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${DISTSETUP_UNITY} UNITY_BUILD_BATCH_SIZE ${layer_BATCH})
    set(visibility PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(visibility INTERFACE)
  endif()
  target_include_directories(${target} ${visibility} "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_include_directories(${target} SYSTEM ${visibility} "${DISTSETUP_MUSTACHE_DIR}")
  target_link_libraries(${target} ${visibility} ${layer_UNPARSED_ARGUMENTS})
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
