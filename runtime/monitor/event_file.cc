#include "runtime/monitor/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/monitor/environment.h"

namespace distsetup {
namespace {

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
    table[byte] = crc;
  }
  return table;
}

template <class T>
std::string little_endian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
  return out;
}

std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

std::string record(std::string_view data) {
  const std::string length = little_endian<uint64_t>(data.size());
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

// Protocol buffers: a field's number and wire type, then its value.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}
std::string field_of_bytes(int number, std::string_view bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field_of_int(int number, int64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(static_cast<uint64_t>(value));
}
std::string field_of_double(int number, double value) {
  return varint(static_cast<uint64_t>(number) << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string field_of_float(int number, float value) {
  return varint(static_cast<uint64_t>(number) << 3 | 5) + little_endian(std::bit_cast<uint32_t>(value));
}

// Event: wall_time 1, step 2, then one of file_version 3, summary 5, session_log 7.
std::string event(int64_t step, std::string_view what) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return field_of_double(1, now) + field_of_int(2, step) + std::string(what);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

EventFile::~EventFile() {
  if (fd_ >= 0) ::close(fd_);
}

Diagnostics EventFile::append(std::string_view event) {
  const std::string bytes = record(event);
  const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
  if (n == static_cast<ssize_t>(bytes.size())) return {};
  return {error(code::kUnwritableFile, {path_}, fmt::format("cannot write '{}', {}", path_, errno_text(n < 0 ? errno : ENOSPC)))};
}

Diagnostics EventFile::open(const std::string& directory, int64_t step) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}", directory, std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                      host_name(), ::getpid());
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) return {error(code::kUnwritableFile, {path_}, fmt::format("cannot write '{}', {}", path_, errno_text(errno)))};
  Diagnostics said = append(event(0, field_of_bytes(3, "brain.Event:2")));
  constexpr int64_t kStart = 1;  // SessionLog.SessionStatus
  if (!has_error(said) && step > 0) said = append(event(step, field_of_bytes(7, field_of_int(1, kStart))));
  return said;
}

Diagnostics EventFile::write(const Json& line) {
  const std::string kind = line.at("kind").get<std::string>();
  std::string summary;
  for (const auto& [key, value] : line.items()) {
    if (!value.is_number() || key == "step") continue;
    const std::string tag = key.find('/') == std::string::npos ? kind + "/" + key : key;
    summary += field_of_bytes(1, field_of_bytes(1, tag) + field_of_float(2, value.get<float>()));
  }
  return append(event(line.at("step").get<int64_t>(), field_of_bytes(5, summary)));
}

}  // namespace distsetup
