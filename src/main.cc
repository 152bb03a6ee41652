// The program `distsetup`. Everything it does is in cli/.
#include <string>
#include <vector>

#include "cli/cli.h"

int main(int argc, char** argv) { return distsetup::run_cli({argv + (argc > 0 ? 1 : 0), argv + argc}); }
