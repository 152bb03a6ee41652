// Numbers with units, as people write them, to and from plain integers and doubles in base units.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace distsetup {

inline constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// "80GiB", "16 MB", "32G" (SLURM: G = GiB there; pass kBinary), "512B". Bare numbers are an error (kUnitMissing).
enum class BareSuffix { kRefused, kBinary };  // what K, M, G, T without B mean
Result<int64_t> parse_bytes(std::string_view text, const Location& at = {}, BareSuffix suffix = BareSuffix::kRefused);
// "4h", "30m", "90s", "2d", "1h30m", "48:00:00" (h:m:s), "1-12:00:00" (d-h:m:s). Seconds.
Result<int64_t> parse_duration_s(std::string_view text, const Location& at = {});
// "400Gb/s" (bits), "50GB/s" (bytes), "3.35TB/s". Bytes per second.
Result<double> parse_bytes_per_s(std::string_view text, const Location& at = {});
// "989TFLOP/s". Flops per second.
Result<double> parse_flops_per_s(std::string_view text, const Location& at = {});
// "4M", "15T", "1.5B", "128k": thousands; with an i ("4Mi") powers of 1024. A whole number.
Result<int64_t> parse_count(std::string_view text, const Location& at = {});
bool is_short_count(std::string_view text);  // a number with such an ending

std::string format_gib(int64_t bytes, int decimals = 1);  // "17.6 GiB"
std::string format_bytes(int64_t bytes);                  // largest fitting binary unit: "63.2 MiB"
std::string format_count(int64_t n);                      // "70,553,706,496"
std::string format_short_count(double n);                 // "70.6B", "6.2M"
std::string format_duration(double seconds);              // "3.2 ms", "4.1 s", "2 h 05 m"
std::string format_slurm_time(int64_t seconds);           // "48:00:00"

}  // namespace distsetup
