#include "base/machine_memory.h"

#include <charconv>

#include "base/file.h"

namespace distsetup {
namespace {

// "MemTotal:       16316412 kB" at the beginning of a line; 0: there is no such line.
int64_t bytes_of(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) == text.npos ? text.size() : text.find('\n', at) + 1) {
    if (!text.substr(at).starts_with(name)) continue;
    const size_t digits = text.find_first_not_of(' ', at + name.size());
    int64_t kib = 0;
    if (digits == text.npos || std::from_chars(text.data() + digits, text.data() + text.size(), kib).ec != std::errc()) return 0;
    return kib * 1024;
  }
  return 0;
}

}  // namespace

std::optional<MachineMemory> parse_machine_memory(std::string_view text) {
  const MachineMemory memory = {bytes_of(text, "MemTotal:"), bytes_of(text, "MemAvailable:")};
  if (memory.total_bytes <= 0 || memory.available_bytes <= 0) return std::nullopt;
  return memory;
}

std::optional<MachineMemory> machine_memory() {
  const Result<std::string> text = read_file("/proc/meminfo");
  return text.ok() ? parse_machine_memory(*text) : std::nullopt;
}

}  // namespace distsetup
