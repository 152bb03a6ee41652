// The program `distsetup-service`. Everything it does is in service/.
#include <string>
#include <vector>

#include "service/service_program.h"

int main(int argc, char** argv) { return distsetup::run_service_program({argv + (argc > 0 ? 1 : 0), argv + argc}); }
