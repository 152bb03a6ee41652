// Quantities: every accepted spelling with its value, every refused one with its code, and the printed forms at their edges.
#include "base/quantity.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/diagnostic_codes.h"
#include "support/death.h"

using namespace distsetup;

namespace {

template <class T>
std::string code_of(const Result<T>& result) {
  return result.ok() ? "ok" : result.diagnostics.at(0).code;
}

}  // namespace

TEST_CASE("sizes: decimal and binary units, fractions, spaces", "[quantity]") {
  const auto bytes = [](std::string_view text) { return parse_bytes(text).value.value_or(-1); };
  CHECK(bytes("512B") == 512);
  CHECK(bytes("80GiB") == 85'899'345'920);
  CHECK(bytes("80 GB") == 80'000'000'000);
  CHECK(bytes("16 MB") == 16'000'000);
  CHECK(bytes("1.5GiB") == 1'610'612'736);
  CHECK(bytes("0.1GiB") == 107'374'182);  // 107374182.4
  CHECK(bytes("3TB") == 3'000'000'000'000);
  CHECK(bytes("2PiB") == 2'251'799'813'685'248);
  CHECK(bytes("1kB") == 1000);
  CHECK(bytes("16gb") == 16'000'000'000);
  CHECK(bytes("16gib") == 17'179'869'184);
  CHECK(bytes("4Gi") == 4 * kGiB);
  CHECK(bytes(" 7KiB ") == 7168);
  CHECK(bytes("0B") == 0);
}

TEST_CASE("sizes: the largest that fits, and one more", "[quantity]") {
  CHECK(*parse_bytes("9223372036854775807B") == std::numeric_limits<int64_t>::max());
  CHECK(code_of(parse_bytes("9223372036854775808B")) == code::kOutOfRange);
  CHECK(code_of(parse_bytes("8EiB")) == code::kOutOfRange);
  CHECK(*parse_bytes("7.999EiB") > 0);
  CHECK(code_of(parse_bytes(std::string(500, '9') + "B")) == code::kOutOfRange);
  CHECK(code_of(parse_bytes("0." + std::string(500, '9') + "B")) == "ok");
}

TEST_CASE("sizes: what is refused, and the help", "[quantity]") {
  const Location at = {"run.yaml", 3, 9};
  CHECK(code_of(parse_bytes("80")) == code::kUnitMissing);
  CHECK(code_of(parse_bytes("GiB")) == code::kWrongType);
  CHECK(code_of(parse_bytes("")) == code::kWrongType);
  CHECK(code_of(parse_bytes("-1GiB")) == code::kOutOfRange);
  CHECK(code_of(parse_bytes("1,5GiB")) == code::kUnknownUnit);
  CHECK(code_of(parse_bytes("1e3MB")) == code::kUnknownUnit);
  CHECK(code_of(parse_bytes("5iB")) == code::kUnknownUnit);
  CHECK(code_of(parse_bytes("5GBB")) == code::kUnknownUnit);
  const Result<int64_t> bits = parse_bytes("80Gb", at);
  CHECK(code_of(bits) == code::kUnknownUnit);
  CHECK(bits.diagnostics[0].help == "'b' means bits; for bytes write 80GB");
  CHECK(bits.diagnostics[0].location == at);
  CHECK(bits.diagnostics[0].length == 4);
  CHECK(parse_bytes("80").diagnostics[0].message == "found '80' (it has no unit), expected a size with its unit");
  CHECK(parse_bytes("80").diagnostics[0].help == "write it like 80GiB, 512MB, 1.5TB");
}

TEST_CASE("sizes: a bare suffix is binary only where the caller says so", "[quantity]") {
  CHECK(code_of(parse_bytes("32G")) == code::kUnknownUnit);
  CHECK(parse_bytes("32G").diagnostics[0].help == "write 32GiB (1024s) or 32GB (1000s)");
  CHECK(parse_bytes("16m").diagnostics[0].help == "write 16MiB (1024s) or 16MB (1000s)");
  CHECK(*parse_bytes("32G", {}, BareSuffix::kBinary) == 32 * kGiB);
  CHECK(*parse_bytes("500m", {}, BareSuffix::kBinary) == 500 * kMiB);
  CHECK(*parse_bytes("32GB", {}, BareSuffix::kBinary) == 32'000'000'000);
  CHECK(code_of(parse_bytes("4000", {}, BareSuffix::kBinary)) == code::kUnitMissing);
}

TEST_CASE("durations", "[quantity]") {
  const auto seconds = [](std::string_view text) { return parse_duration_s(text).value.value_or(-1); };
  CHECK(seconds("4h") == 14400);
  CHECK(seconds("30m") == 1800);
  CHECK(seconds("90s") == 90);
  CHECK(seconds("2d") == 172800);
  CHECK(seconds("1h30m") == 5400);
  CHECK(seconds("1d 2h 3m 4s") == 93784);
  CHECK(seconds("1.5h") == 5400);
  CHECK(seconds("2 H") == 7200);
  CHECK(seconds("48:00:00") == 172800);
  CHECK(seconds("00:00:01") == 1);
  CHECK(seconds("1-12:00:00") == 129600);
  CHECK(seconds("0s") == 0);
}

TEST_CASE("durations: what is refused", "[quantity]") {
  CHECK(code_of(parse_duration_s("4")) == code::kUnitMissing);
  CHECK(code_of(parse_duration_s("1h30")) == code::kUnitMissing);
  CHECK(code_of(parse_duration_s("4w")) == code::kUnknownUnit);
  CHECK(code_of(parse_duration_s("4 hours")) == code::kUnknownUnit);
  CHECK(code_of(parse_duration_s("30m1h")) == code::kWrongType);
  CHECK(code_of(parse_duration_s("1h1h")) == code::kWrongType);
  CHECK(code_of(parse_duration_s("h")) == code::kWrongType);
  CHECK(code_of(parse_duration_s("")) == code::kWrongType);
  CHECK(code_of(parse_duration_s("::")) == code::kWrongType);
  CHECK(code_of(parse_duration_s("1h,")) == code::kUnknownUnit);
  CHECK(code_of(parse_duration_s("-4h")) == code::kOutOfRange);
  for (const char* clock : {"12:30", "1:60:00", "1:00:60", "1-24:00:00", "1-12", "1:2:3:4", "1::2", "1-", "999999999999:00:00"}) {
    INFO(clock);
    CHECK(code_of(parse_duration_s(clock)) == code::kAmbiguousSpelling);
  }
  CHECK(code_of(parse_duration_s("106751991167301d")) == code::kOutOfRange);
  CHECK(code_of(parse_duration_s("106751991167300d9999999s9")) != "ok");
  CHECK(code_of(parse_duration_s("106751991167300d99999999h")) == code::kOutOfRange);
}

TEST_CASE("data rates: bits and bytes", "[quantity]") {
  const auto rate = [](std::string_view text) { return parse_bytes_per_s(text).value.value_or(-1); };
  CHECK(rate("400Gb/s") == 50e9);
  CHECK(rate("400 Gbps") == 50e9);
  CHECK(rate("400Gbit/s") == 50e9);
  CHECK(rate("50GB/s") == 50e9);
  CHECK(rate("50GBps") == 50e9);
  CHECK(rate("3.35TB/s") == 3.35e12);
  CHECK(rate("4.8TB/s") == 4.8e12);
  CHECK(rate("1GiB/s") == 1073741824.0);
  CHECK(rate("100kB/s") == 1e5);
  CHECK(rate("8b/s") == 1);
}

TEST_CASE("data rates: what is refused", "[quantity]") {
  CHECK(code_of(parse_bytes_per_s("400")) == code::kUnitMissing);
  CHECK(code_of(parse_bytes_per_s("50GB")) == code::kUnitMissing);
  CHECK(parse_bytes_per_s("50GB").diagnostics[0].help == "write 50GB/s");
  CHECK(code_of(parse_bytes_per_s("400gb/s")) == code::kUnknownUnit);
  CHECK(parse_bytes_per_s("400gb/s").diagnostics[0].help == "write 400Gb/s (bits) or 400GB/s (bytes)");
  CHECK(code_of(parse_bytes_per_s("400GT/s")) == code::kUnknownUnit);
  CHECK(code_of(parse_bytes_per_s("fast")) == code::kWrongType);
  CHECK(code_of(parse_bytes_per_s("0GB/s")) == code::kOutOfRange);
  CHECK(code_of(parse_bytes_per_s("-5GB/s")) == code::kOutOfRange);
  CHECK(code_of(parse_bytes_per_s(std::string(400, '9') + "GB/s")) == code::kOutOfRange);
  CHECK(code_of(parse_bytes_per_s(std::string(305, '9') + "EiB/s")) == code::kOutOfRange);
}

TEST_CASE("computing rates", "[quantity]") {
  CHECK(*parse_flops_per_s("989TFLOP/s") == 989e12);
  CHECK(*parse_flops_per_s("1.979PFLOP/s") == 1.979e15);
  CHECK(*parse_flops_per_s("312 TFLOPS") == 312e12);
  CHECK(*parse_flops_per_s("67TFLOPs/s") == 67e12);
  CHECK(*parse_flops_per_s("5flops") == 5);
  CHECK(code_of(parse_flops_per_s("989")) == code::kUnitMissing);
  CHECK(code_of(parse_flops_per_s("989TFLOP")) == code::kUnitMissing);
  CHECK(code_of(parse_flops_per_s("989TOPS")) == code::kUnknownUnit);
  CHECK(code_of(parse_flops_per_s("0TFLOPS")) == code::kOutOfRange);
  CHECK(code_of(parse_flops_per_s("")) == code::kWrongType);
}

TEST_CASE("printed sizes choose the unit by what is printed", "[quantity]") {
  CHECK(format_gib(18'897'856'102) == "17.6 GiB");
  CHECK(format_gib(kGiB, 0) == "1 GiB");
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(66'270'003) == "63.2 MiB");
  CHECK(format_bytes(kMiB - 1) == "1.0 MiB");  // not 1024.0 KiB
  CHECK(format_bytes(-3 * kGiB) == "-3.0 GiB");
  CHECK(format_bytes(std::numeric_limits<int64_t>::max()) == "8.0 EiB");
  CHECK(format_bytes(std::numeric_limits<int64_t>::min()) == "-8.0 EiB");
}

TEST_CASE("printed counts", "[quantity]") {
  CHECK(format_count(70'553'706'496) == "70,553,706,496");
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(-1234567) == "-1,234,567");
  CHECK(format_count(std::numeric_limits<int64_t>::min()) == "-9,223,372,036,854,775,808");
  CHECK(format_short_count(70'553'706'496.0) == "70.6B");
  CHECK(format_short_count(6'160'000) == "6.2M");
  CHECK(format_short_count(512) == "512");
  CHECK(format_short_count(12.5) == "12.5");
  CHECK(format_short_count(1000) == "1.0K");
  CHECK(format_short_count(999'950'000) == "1.0B");  // not 1000.0M
  CHECK(format_short_count(1.5e13) == "15.0T");
  CHECK(format_short_count(2.5e15) == "2500.0T");
  CHECK(format_short_count(-8e9) == "-8.0B");
}

TEST_CASE("printed durations", "[quantity]") {
  CHECK(format_duration(0) == "0 s");
  CHECK(format_duration(12.34e-6) == "12.3 us");
  CHECK(format_duration(0.0032) == "3.2 ms");
  CHECK(format_duration(4.1) == "4.1 s");
  CHECK(format_duration(0.99999) == "1.0 s");
  CHECK(format_duration(59.96) == "1 m 00 s");
  CHECK(format_duration(3599.6) == "1 h 00 m");
  CHECK(format_duration(7500) == "2 h 05 m");
  CHECK(format_duration(47.5 * 3600) == "47 h 30 m");
  CHECK(format_duration(100 * 3600) == "4 d 04 h");
  CHECK(format_duration(-4.1) == "-4.1 s");
  CHECK(format_duration(1e300) == "1.16e+295 d");
  CHECK(format_duration(std::nan("")) == "unknown");
}

TEST_CASE("SLURM times", "[quantity]") {
  CHECK(format_slurm_time(172800) == "48:00:00");
  CHECK(format_slurm_time(61) == "00:01:01");
  CHECK(format_slurm_time(0) == "00:00:00");
  CHECK(*parse_duration_s(format_slurm_time(123456)) == 123456);
  CHECK(dies_with("-1 seconds", [] { format_slurm_time(-1); }));
}
