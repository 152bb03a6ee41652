#include "service/page/page.h"

#include "base/json.h"

namespace distsetup {

std::string render_page(PageKind, const Json& data) {
  std::string text;
  for (const char c : data.dump(2, ' ', false, Json::error_handler_t::replace))
    text += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>distsetup</title><pre>" + text + "</pre></html>\n";
}

std::optional<StaticFile> static_file(std::string_view) { return std::nullopt; }

}  // namespace distsetup
