# Language, warnings, optimisation, sanitizers and linker for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin" CACHE PATH "where programs go")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/../lib")

# Warnings are for who changes a source: they are looked for where they are errors (the dev preset, scripts/check), and so is whether a
# format string fits its arguments. Without both a build takes a tenth less time.
if(DISTSETUP_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-unknown-warning-option>)
else()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-w>)
  add_compile_definitions(FMT_CONSTEVAL=)
endif()
if(DISTSETUP_SANITIZE)
  set(sanitizers address,undefined,float-cast-overflow)
  if(DISTSETUP_SANITIZE STREQUAL THREAD)
    set(sanitizers thread)
  endif()
  set(DISTSETUP_SANITIZER_FLAGS -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${DISTSETUP_SANITIZER_FLAGS}>")
  add_link_options(-fsanitize=${sanitizers})
  # An index past the end of a vector that has more memory than elements is no mistake to AddressSanitizer.
  add_compile_definitions("$<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>")
  # g++ warns of what the sanitizers themselves put there (its manual, -fsanitize=address).
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()

# lld and gold link these programs several times faster than bfd.
include(CheckLinkerFlag)
foreach(linker lld gold)
  check_linker_flag(CXX -fuse-ld=${linker} DISTSETUP_HAS_${linker})
  if(DISTSETUP_HAS_${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()
