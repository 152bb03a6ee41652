#include "codegen/read/reading.h"

#include "codegen/job/secrets.h"
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

std::string shown_text(const LostKey& lost) {
  const bool is_of_vocabulary = lost.text.starts_with('<') || lost.text.starts_with('[');
  return is_of_vocabulary || secret_in(lost.key + "=" + lost.text).empty() ? lost.text : "(not shown)";
}

void drop_assumed(Reading& reading) {
  std::erase_if(reading.fields, [](const auto& one) { return one.second.is_assumed && one.first != "strategy.trainer"; });
}

}  // namespace distsetup
