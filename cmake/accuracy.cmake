# The accuracy scoreboard (tests/accuracy): distsetup-accuracy, and the suite `accuracy` that runs it. Included by tests.cmake.
file(GLOB accuracy_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/accuracy/*.cc")
find_package(Threads REQUIRED)
add_executable(distsetup-accuracy ${accuracy_sources})
target_include_directories(distsetup-accuracy PRIVATE "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/tests/accuracy")
target_link_libraries(distsetup-accuracy PRIVATE distsetup_planner Threads::Threads)
add_dependencies(distsetup_tests distsetup-accuracy)
