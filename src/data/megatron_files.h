// Megatron-LM's pair of files for token ids: PREFIX.bin has the ids of all sequences, one after the other; PREFIX.idx says where they
// lie (megatron/core/datasets/indexed_dataset.py). Little-endian:
//   "MMIDIDX\0\0", version 1 (64 bits), a code for the type of ids (8 bits), number of sequences and of document indices (64 bits
//   each), length of each sequence in ids (32 bits), its first byte in .bin (64 bits), first sequence of each document and the number
//   of sequences (64 bits each).
// Types of ids: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16; 6 and 7 are floating-point numbers, which are refused.
// Leaves out: modes of multimodal sets, which may follow; they are not read.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

bool is_megatron_file(const std::string& path);  // its ending is .bin or .idx

// Calls `use` for each document with its ids; errors of `use` stop. `path`: either file of the pair.
// Errors: one of them is missing, not of this format, or says something of the other that is not so; an id below 0 or beyond 32 bits.
Diagnostics read_megatron(const std::string& path, const std::function<Diagnostics(int64_t document, std::vector<uint32_t> ids)>& use);

// Writes PREFIX.bin and PREFIX.idx, each document a sequence; uint16 where `vocabulary_size` allows it, else int32, as Megatron-LM
// chooses. ids_of(i): of document i. Neither file may exist.
Diagnostics write_megatron(const std::string& prefix, int64_t vocabulary_size, int64_t num_documents,
                           const std::function<std::vector<uint32_t>(int64_t document)>& ids_of);

}  // namespace distsetup
