// Empty on purpose: ProcessGroupGloo.hpp includes it and uses nothing of it. See README.md.
#pragma once
