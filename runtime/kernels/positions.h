// Where a rank's rows of a sequence stand in it, for the kernels of every device.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define DISTSETUP_ANYWHERE __host__ __device__
#else
#define DISTSETUP_ANYWHERE
#endif

namespace distsetup {

// Two stretches of rows, one after the other: a rank's chunks where several share a sequence (src/plan/context_parallel.h), the halves
// of the sequence where one rank has all of it.
struct Positions {
  int64_t rows = 0;               // of a sequence on this rank
  int64_t chunk = 0;              // rows of the first stretch
  int64_t first = 0, second = 0;  // positions of the stretches' first rows
  DISTSETUP_ANYWHERE int64_t at(int64_t row) const { return row < chunk ? first + row : second + row - chunk; }
  // The row of a position; -1: it is another rank's, or none's.
  DISTSETUP_ANYWHERE int64_t row_of(int64_t position) const {
    if (position >= second && position < second + rows - chunk) return position - second + chunk;
    return position >= first && position < first + chunk ? position - first : -1;
  }
};
// Of rank `index` of `ranks` that share sequences of `length`.
inline Positions own_positions(int64_t length, int ranks = 1, int index = 0) {
  const int64_t chunk = length / (2 * ranks);
  return {length / ranks, chunk, index * chunk, (2 * ranks - 1 - index) * chunk};
}

}  // namespace distsetup
