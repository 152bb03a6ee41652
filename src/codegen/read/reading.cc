#include "codegen/read/reading.h"

#include "codegen/tables/fields.h"

namespace distsetup {

std::optional<int64_t> whole(const ReadFields& fields, std::string_view name) {
  const auto it = fields.find(name);
  if (it == fields.end() || !it->second.value.is_number_integer()) return std::nullopt;
  return it->second.value.get<int64_t>();
}

std::string text_of(const ReadFields& fields, std::string_view name) {
  const auto it = fields.find(name);
  return it == fields.end() ? "" : field_text(it->second.value);
}

}  // namespace distsetup
