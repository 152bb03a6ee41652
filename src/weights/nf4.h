// Matrices as nf4 (plan/nf4.h): to it and back. Which bytes come out is a function of the whole matrix alone, so that every rank that
// needs a part of them finds the same.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/nf4.h"

namespace distsetup {

// Takes the weights of a matrix row by row, in pieces of any size; holds the record that comes of them and what is not yet a block.
class Nf4Writer {
 public:
  explicit Nf4Writer(int64_t numel);
  void add(std::span<const float> weights);
  std::vector<uint8_t> finish();  // when all have been added

 private:
  void add_block(std::span<const float> block);

  const Nf4Record record_;
  std::vector<uint8_t> bytes_;
  std::vector<float> scales_;  // of blocks so far, not yet quantised
  std::vector<float> rest_;
};

// Of a matrix's record, that of a rank that has a part of it: of `record_of` bytes, its block b the whole's nf4_whole_block(part, b).
std::vector<uint8_t> nf4_part(const std::vector<uint8_t>& whole, const Nf4Record& of_whole, const Nf4Record& of_part,
                              const std::array<int32_t, 3>& part);

// What blocks [begin, end) of 64 weights are, into `to`, which has the matrix's weights from the first of them on; the last block may
// be short.
void read_nf4_blocks(const uint8_t* record, const Nf4Record& of, int64_t begin, int64_t end, float* to);

}  // namespace distsetup
