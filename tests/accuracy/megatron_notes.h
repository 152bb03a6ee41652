// The notes of a row of the Megatron family, read into what the columns left open.
#pragma once
#include "row_setup.h"

namespace distsetup::accuracy {

void read_megatron_notes(const Row& row, Setup& setup);

}  // namespace distsetup::accuracy
