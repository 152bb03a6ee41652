// SHA-256 as FIPS 180-4 section 6.2 writes it; letters a..h, W and K are the standard's. Plain C++, some 200 MB/s, and the processor's
// own instructions where it has them (SHA extensions of x86, 1 to 2 GB/s): a checkpoint shard has gigabytes.
#include "base/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/file.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace distsetup {
namespace {

// FIPS 180-4 section 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void plain_block(uint32_t* state, const uint8_t* p) {
  uint32_t w[64];
  for (int t = 0; t < 16; ++t) {
    w[t] = uint32_t{p[4 * t]} << 24 | uint32_t{p[4 * t + 1]} << 16 | uint32_t{p[4 * t + 2]} << 8 | uint32_t{p[4 * t + 3]};
  }
  for (int t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
  for (int t = 0; t < 64; ++t) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

#if defined(__x86_64__)
bool has_sha_instructions() {
  static const bool found = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
  }();
  return found;
}

// The instructions hold the state as (a b e f) and (c d g h), first letter in the highest lane; one does two rounds (Intel 64 and
// IA-32 Architectures Software Developer's Manual, SHA256RNDS2, SHA256MSG1, SHA256MSG2).
__attribute__((target("sha,sse4.1"))) void sha_blocks(uint32_t* state, const uint8_t* p, size_t num_blocks) {
  const __m128i bytes_of_words = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(state)), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (; num_blocks > 0; --num_blocks, p += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // of the last 16 words
    for (int group = 0; group < 16; ++group) {
      __m128i& now = w[group % 4];
      if (group < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * group)), bytes_of_words);
      } else {
        const __m128i seven_back = _mm_alignr_epi8(w[(group + 3) % 4], w[(group + 2) % 4], 4);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(group + 1) % 4]), seven_back), w[(group + 3) % 4]);
      }
      const __m128i in = _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRound + 4 * group)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, in);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(in, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i abef_turned = _mm_shuffle_epi32(abef, 0x1b), ghcd = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(abef_turned, ghcd, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(ghcd, abef_turned, 8));
}
#endif

}  // namespace

// Section 5.3.3: the square roots of the first eight primes.
Sha256::Sha256(bool plain)
    : plain_(plain),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      buffer_{} {}

void Sha256::blocks(const uint8_t* p, size_t num_blocks) {
#if defined(__x86_64__)
  if (!plain_ && has_sha_instructions()) return sha_blocks(state_, p, num_blocks);
#endif
  for (; num_blocks > 0; --num_blocks, p += 64) plain_block(state_, p);
}

void Sha256::update(const void* data, size_t num_bytes) {
  if (num_bytes == 0) return;
  const auto* p = static_cast<const uint8_t*>(data);
  const size_t used = num_bytes_ % 64;
  num_bytes_ += num_bytes;
  if (used > 0) {
    const size_t taken = std::min(num_bytes, 64 - used);
    std::memcpy(buffer_ + used, p, taken);
    if (used + taken < 64) return;
    blocks(buffer_, 1);
    p += taken, num_bytes -= taken;
  }
  blocks(p, num_bytes / 64);
  p += num_bytes / 64 * 64, num_bytes %= 64;
  std::memcpy(buffer_, p, num_bytes);
}

std::string Sha256::hex() {
  const uint64_t num_bits = num_bytes_ * 8;
  const size_t used = num_bytes_ % 64;
  // Section 5.1.1: a one bit, zeros, and the length in bits fill the last block.
  uint8_t tail[72] = {0x80};
  const size_t num_padding = (used < 56 ? 56 : 120) - used;
  for (int i = 0; i < 8; ++i) tail[num_padding + i] = static_cast<uint8_t>(num_bits >> (56 - 8 * i));
  update(tail, num_padding + 8);
  std::string text;
  for (const uint32_t word : state_) text += fmt::format("{:08x}", word);
  return text;
}

std::string sha256(std::string_view text) {
  Sha256 digest;
  digest.update(text);
  return digest.hex();
}

Result<std::string> sha256_of_file(const std::string& path) {
  const auto failed = [&path](int number) {
    return error(code::kUnreadableFile, {path}, fmt::format("cannot read '{}', {}", path, errno_text(number)));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed(errno);
  Sha256 digest;
  std::vector<char> chunk(size_t{1} << 20);
  while (true) {
    const ssize_t num_read = ::read(fd, chunk.data(), chunk.size());
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read <= 0) {
      const int number = errno;
      ::close(fd);
      if (num_read < 0) return failed(number);
      return digest.hex();
    }
    digest.update(chunk.data(), static_cast<size_t>(num_read));
  }
}

}  // namespace distsetup
