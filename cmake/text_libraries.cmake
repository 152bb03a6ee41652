# What tokenizers stand on: PCRE2 (regular expressions) and utf8proc (normal forms, categories).

# distsetup_system_library(target header library package): an imported library, or an error that names the Debian package.
function(distsetup_system_library target header library package)
  find_path(DISTSETUP_${target}_DIR ${header})
  find_library(DISTSETUP_${target}_LIBRARY ${library})
  if(NOT DISTSETUP_${target}_DIR OR NOT DISTSETUP_${target}_LIBRARY)
    message(FATAL_ERROR "${header} or lib${library} was not found (Debian: ${package})")
  endif()
  add_library(distsetup_${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(distsetup_${target} SYSTEM INTERFACE "${DISTSETUP_${target}_DIR}")
  target_link_libraries(distsetup_${target} INTERFACE "${DISTSETUP_${target}_LIBRARY}")
endfunction()

distsetup_system_library(pcre2 pcre2.h pcre2-8 libpcre2-dev)
distsetup_system_library(utf8proc utf8proc.h utf8proc libutf8proc-dev)
