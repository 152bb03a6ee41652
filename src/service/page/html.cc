#include "service/page/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <kainjow/mustache.hpp>

#include "base/check.h"
#include "base/embedded.h"
#include "base/json.h"
#include "base/names.h"

namespace distsetup {
namespace {

namespace mustache = kainjow::mustache;

mustache::data html_data(const Json& json) {
  if (json.is_object()) {
    mustache::data object(mustache::data::type::object);
    for (const auto& [name, value] : json.items()) object.set(name, html_data(value));
    return object;
  }
  if (json.is_array()) {
    mustache::data list(mustache::data::type::list);
    for (const Json& item : json) list << html_data(item);
    return list;
  }
  if (json.is_boolean()) return mustache::data(json.get<bool>());
  if (json.is_null()) return mustache::data(false);
  CHECK(json.is_string(), "a number for a page that is no text", json.dump());
  const std::string text = shown_text(json.get_ref<const std::string&>());
  return text.empty() ? mustache::data(false) : mustache::data(text);  // a section of an empty text is left out
}

// A name that no value has is empty in Mustache; here it is a bug.
class StrictContext : public mustache::context<std::string> {
 public:
  StrictContext(std::string_view page, const mustache::data* values) : mustache::context<std::string>(values), page_(page) {}
  const mustache::data* get(const std::string& name) const override {
    const mustache::data* found = mustache::context<std::string>::get(name);
    CHECK(found != nullptr, "a template names a value that is not there", page_, name);
    return found;
  }
  const mustache::data* get_partial(const std::string& name) const override {
    parts_ = mustache::data(mustache::partial([name] { return std::string(page_file(name + ".html.mustache")); }));
    return &parts_;
  }

 private:
  std::string page_;
  mutable mustache::data parts_;
};

}  // namespace

std::string_view page_file(std::string_view name) {
  const std::string path = fmt::format("templates/_service/{}", name);
  const auto files = embedded_files();
  const auto found = std::find_if(files.begin(), files.end(), [&path](const EmbeddedFile& file) { return file.path == path; });
  CHECK(found != files.end(), "no such file of the page", path);
  return found->text;
}

std::string render_html(std::string_view template_name, const Json& values) {
  mustache::mustache page(std::string(page_file(fmt::format("{}.html.mustache", template_name))));
  CHECK(page.is_valid(), "a template of the page", template_name, page.error_message());
  const mustache::data data = html_data(values);
  StrictContext context(template_name, &data);
  return page.render(context);
}

std::string shown_text(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool is_control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    if (length == 0 || is_control) {
      out += kReplacement;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string escape_html(std::string_view text) { return mustache::html_escape(shown_text(text)); }

}  // namespace distsetup
