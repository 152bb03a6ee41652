# distsetup_calibration: the constants of presets/calibration as a C++ table, written by a small program with the reader of YAML that
# everything else uses. Only what links the planner waits for it, not the planner's own sources.
file(GLOB calibration_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/presets/calibration/*.yaml")
set(calibration_source "${PROJECT_BINARY_DIR}/calibration/calibration_table.cc")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/calibration")
add_executable(calibration_table "${CMAKE_CURRENT_LIST_DIR}/calibration_table.cc" "${PROJECT_SOURCE_DIR}/src/planner/time/calibration.cc")
target_precompile_headers(calibration_table REUSE_FROM distsetup_src_pch)
target_link_libraries(calibration_table PRIVATE distsetup_core)
add_custom_command(
  OUTPUT "${calibration_source}"
  COMMAND calibration_table "${calibration_source}" ${calibration_files}
  DEPENDS calibration_table ${calibration_files}
  COMMENT "constants of presets/calibration as a table"
  VERBATIM)
add_library(distsetup_calibration STATIC "${calibration_source}")
target_include_directories(distsetup_calibration PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(distsetup_planner INTERFACE distsetup_calibration)
