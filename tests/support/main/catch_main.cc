// The main function of every Catch2 test program, compiled once.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "base/end_process.h"

int main(int argc, char** argv) { return distsetup::end_process(Catch::Session().run(argc, argv)); }
