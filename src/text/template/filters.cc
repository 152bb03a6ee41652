#include "text/template/filters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "text/template/filters_of_lists.h"
#include "text/template/filters_of_numbers.h"
#include "text/template/filters_of_texts.h"

namespace distsetup::jinja {
namespace {

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> all = [] {
    std::map<std::string_view, Filter> made;
    for (const auto& table : {text_filters(), list_filters(), number_filters()}) {
      for (const NamedFilter& one : table) made.emplace(one.name, one.apply);
    }
    return made;
  }();
  return all;
}

}  // namespace

const std::vector<std::string>& filter_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, filter] : filters()) all.emplace_back(name);
    return all;
  }();
  return names;
}

PyValue apply_filter(TemplateRun& run, std::string_view name, const PyValue& input, const CallArguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) {
    fail(fmt::format("unknown filter '{}'", name), fmt::format("known: {}", fmt::join(filter_names(), ", ")));
  }
  return found->second(run, input, arguments);
}

}  // namespace distsetup::jinja
