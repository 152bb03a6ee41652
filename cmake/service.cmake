# The job server bin/distsetup-service (src/service), a program of its own: `distsetup serve` starts it. Built where cpp-httplib and SQLite
# are found; `distsetup` itself needs neither.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(DISTSETUP_HTTPLIB QUIET cpp-httplib)
  pkg_check_modules(DISTSETUP_SQLITE QUIET sqlite3)
endif()
if(NOT DISTSETUP_HTTPLIB_FOUND OR NOT DISTSETUP_SQLITE_FOUND)
  message(STATUS "distsetup-service: cpp-httplib or sqlite3 not found by pkg-config (libcpp-httplib-dev, libsqlite3-dev), not built")
  return()
endif()
find_package(Threads REQUIRED)
distsetup_library(service FOLDERS service WARM ".*" UNITS 1 2 1 LIBRARIES distsetup_core ${DISTSETUP_SQLITE_LINK_LIBRARIES} ${DISTSETUP_HTTPLIB_LINK_LIBRARIES}
  Threads::Threads)
# The header of the HTTP library is used with the flags that the library was compiled with, and in these files alone.
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/service/http_server.cc" "${PROJECT_SOURCE_DIR}/src/service/connection.cc"
  "${PROJECT_SOURCE_DIR}/src/service/client/service_call.cc" PROPERTIES
  COMPILE_OPTIONS "${DISTSETUP_HTTPLIB_CFLAGS}" SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
distsetup_program(distsetup-service distsetup_service src/service_main.cc)
