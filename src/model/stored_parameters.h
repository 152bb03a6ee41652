// How many parameters a folder's weights have.
#pragma once
#include <cstdint>
#include <string>

namespace distsetup {

// Elements of the tensors of DIRECTORY/*.safetensors, from their headers; of `consolidated` files, which have the same again, and of
// adapters none. 0: it cannot be told, since there are none, one cannot be read, some of the numbered files are missing, or weights
// are packed (several in an integer, or in a byte).
int64_t count_in_safetensors(const std::string& directory);

}  // namespace distsetup
