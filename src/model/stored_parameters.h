// How many parameters a folder's weights have.
#pragma once
#include <cstdint>
#include <string>

namespace distsetup {

// Elements of the tensors of DIRECTORY/*.safetensors, from their headers: of the files that its index names, else of
// model.safetensors, else of a numbered set; not of copies beside them, of adapters or of an optimizer. 0: it cannot be told, since
// there are none, one cannot be read, some are missing, or weights are packed (several in an integer, or in a byte).
int64_t count_in_safetensors(const std::string& directory);

}  // namespace distsetup
