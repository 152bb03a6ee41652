# The static libraries of src/, each of some of its folders, and how they are compiled. One place, because it is the build time.

# Every source of src/ is compiled at one of three levels in a release build; other builds take the optimisation of compiler.cmake.
# - hot: schedules, simulation, replay. That is where a search spends its time.
# - warm: what loops over bytes or rows of a file, or checks all the lists of a job; of the rest what takes more than 0.15 % of the
#   instructions of some usual command (callgrind, counted by the source that a function stands in). Little inlining there (50 instead
#   of 225 instructions) makes a third less code in half the compile time.
# - quick: all the rest. None of it computes: not optimised it compiles with clang in 0.4 of the time, and a command takes up to 10 ms
#   more. g++ spends as much on the many small functions of unoptimised templates as on inlining them first, so for both warm and quick
#   sources it inlines and leaves out most of what else it does.
set(levels hot warm quick)
set(hot_options -O2)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(warm_options -Og)
  foreach(pass combine-stack-adjustments compare-elim cprop-registers dse forward-propagate guess-branch-probability if-conversion
      if-conversion2 ipa-bit-cp ipa-modref ipa-profile ipa-pure-const ipa-reference ipa-vrp shrink-wrap split-wide-types thread-jumps
      tree-bit-ccp tree-ccp tree-copy-prop tree-forwprop tree-fre tree-phiprop tree-pta tree-sink tree-sra)
    list(APPEND warm_options -fno-${pass})
  endforeach()
  list(APPEND warm_options -Wno-maybe-uninitialized)  # without those passes g++ takes an empty std::string for uninitialised
  set(quick_options ${warm_options})
else()
  set(warm_options -O1)
  set(quick_options -O0)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    list(APPEND warm_options "SHELL:-mllvm -inline-threshold=50" "SHELL:-mllvm -inlinehint-threshold=50")
  endif()
endif()

# distsetup_optimise(target level): how a target of the compiler half is compiled.
function(distsetup_optimise target level)
  foreach(option IN LISTS ${level}_options)
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:${option}>")
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # it looks for garbage each time that 300 MB more are in use, not 30 %: a tenth less time
    target_compile_options(${target} PRIVATE --param=ggc-min-expand=100 --param=ggc-min-heapsize=300000)
  endif()
endfunction()

# The standard headers, fmt and nlohmann's JSON, compiled once: a third of the compile time of src/. The headers of the folders that
# every other one includes, too: some hundredths more. A file still includes what it uses; scripts/check builds without this. A build with one source at a time is
# for who changes sources, so there a changed header of ours compiles again what includes it, and no more. One for each set of options:
# clang refuses a header precompiled with optimisation where there is none, and g++ takes the options of the header instead of those of
# the source, without a word.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/src_pch.cc" CONTENT "namespace distsetup { int src_pch_anchor; }\n" @ONLY)
set(precompiled_headers <algorithm> <charconv> <chrono> <cstdint> <filesystem> <functional> <map> <optional> <set> <span> <string>
  <string_view> <utility> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>)
if(DISTSETUP_UNITY)
  foreach(folder base model plan)
    file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.h")
    list(APPEND precompiled_headers ${headers})
  endforeach()
endif()
foreach(pch distsetup_src_pch distsetup_quick_pch)
  add_library(${pch} OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/src_pch.cc")
  target_compile_definitions(${pch} PRIVATE DISTSETUP_VERSION="${PROJECT_VERSION}")
  target_include_directories(${pch} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${pch} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${pch} PRIVATE ${precompiled_headers})
endforeach()
distsetup_optimise(distsetup_quick_pch quick)

# Of a trainer under sanitizers: what its tests make plans with, and nothing that the trainer itself has. Sanitizers would make most of
# the compile time here; the compiler half under sanitizers is a build of its own (the preset dev).
set(plain_libraries)
if(DISTSETUP_RUNTIME AND DISTSETUP_SANITIZE)
  set(plain_libraries planner tool)
  set(plain_options -fno-sanitize=all -O0)
  target_compile_options(distsetup_quick_pch PRIVATE ${plain_options})
endif()

# distsetup_library(name FOLDERS folder... [HOT pattern...] [WARM pattern...] [UNITS hot warm quick] [LIBRARIES library...]): a static
# library of folders of src/ and their rooms. HOT and WARM: sources that are not quick, each a regular expression for the end of a path
# without its ".cc". UNITS: in how many pieces the sources of each level are compiled (DISTSETUP_UNITY). Most of the time of a source
# alone goes into headers and templates that its neighbours need too, so as few as keep two cores busy. Without UNITS it is one each.
function(distsetup_library name)
  cmake_parse_arguments(PARSE_ARGV 1 library "" "" "FOLDERS;HOT;WARM;UNITS;LIBRARIES")
  set(target distsetup_${name})
  set(quick_sources)
  foreach(folder IN LISTS library_FOLDERS)
    file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.cc" "${PROJECT_SOURCE_DIR}/src/${folder}/*/*.cc")
    list(APPEND quick_sources ${sources})
  endforeach()
  foreach(level hot warm)
    string(TOUPPER ${level} given)
    list(JOIN library_${given} "|" patterns)
    set(${level}_sources ${quick_sources})
    list(FILTER ${level}_sources INCLUDE REGEX "/(${patterns})\\.cc$")
    list(REMOVE_ITEM quick_sources ${${level}_sources})
  endforeach()
  if("${warm_options}" STREQUAL "${quick_options}")  # fewer pieces, since they share headers and templates
    list(APPEND quick_sources ${warm_sources})
    set(warm_sources)
  endif()
  add_library(${target} STATIC)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  set(targets ${target})
  if(NOT library_UNITS)
    set(library_UNITS 1 1 1)
  endif()
  foreach(level units IN ZIP_LISTS levels library_UNITS)  # in the order in which a linker meets them
    if(${level}_sources)
      list(LENGTH ${level}_sources count)
      math(EXPR batch "(${count} + ${units} - 1) / ${units}")
      if(DISTSETUP_SANITIZE AND batch GREATER 20 AND NOT name IN_LIST plain_libraries)
        set(batch 20)  # clang 14's assembler takes minutes for an object of 50 MB
      endif()
      add_library(${target}_${level} OBJECT ${${level}_sources})
      if(name IN_LIST plain_libraries)
        target_precompile_headers(${target}_${level} REUSE_FROM distsetup_quick_pch)
        target_compile_options(${target}_${level} PRIVATE ${plain_options})
      elseif(level STREQUAL "quick" AND CMAKE_BUILD_TYPE STREQUAL "Release")
        target_precompile_headers(${target}_${level} REUSE_FROM distsetup_quick_pch)
      else()
        target_precompile_headers(${target}_${level} REUSE_FROM distsetup_src_pch)
      endif()
      distsetup_optimise(${target}_${level} ${level})
      set_target_properties(${target}_${level} PROPERTIES UNITY_BUILD ${DISTSETUP_UNITY} UNITY_BUILD_BATCH_SIZE ${batch})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${level}>)
      list(APPEND targets ${target}_${level})
    endif()
  endforeach()
  foreach(one IN LISTS targets)
    target_include_directories(${one} PUBLIC "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
    target_include_directories(${one} SYSTEM PUBLIC "${DISTSETUP_MUSTACHE_DIR}")
    target_link_libraries(${one} PUBLIC ${library_LIBRARIES})
  endforeach()
endfunction()

# distsetup_optimised_first(target library...): for a program with quick objects in it. An inline function of a header stands in many
# objects, and a linker takes the first. So that it is not the slow one (a search would take twice as long), the objects of these
# libraries come first, hot ones before warm ones; then nothing is left to take from the libraries themselves.
function(distsetup_optimised_first target)
  foreach(level IN LISTS levels)
    foreach(library IN LISTS ARGN)
      if(TARGET distsetup_${library}_${level})
        target_link_options(${target} PRIVATE $<TARGET_OBJECTS:distsetup_${library}_${level}>)
      endif()
    endforeach()
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
