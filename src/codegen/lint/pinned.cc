#include "codegen/lint/pinned.h"

#include <vector>

#include "base/check.h"
#include "base/value_yaml.h"
#include "codegen/read/tree.h"
#include "codegen/tables/templates.h"

namespace distsetup::lint {
namespace {

const Value& pins() {
  static const Value kPins = [] {
    const std::string* text = find_file(embedded_templates(), "_pins.yaml");
    CHECK(text != nullptr, "templates/_pins.yaml");
    Result<Value> root = parse_yaml(*text, "templates/_pins.yaml");
    CHECK(root.ok() && root->find("pins") != nullptr, "{}", format_diagnostics(root.diagnostics));
    return *root->find("pins");
  }();
  return kPins;
}

}  // namespace

std::string pinned_version(std::string_view package, const std::function<std::string(const std::string&)>& release_of) {
  for (const Value& one : pins().items) {
    const std::string release = release_of(foreign::text(one, "tool"));
    if (release.empty() || release != foreign::text(one, "release")) continue;
    const Value* installs = one.find("installs");
    const Value* version = installs == nullptr ? nullptr : installs->find(package);
    if (version != nullptr) return version->text;
  }
  return "";
}

}  // namespace distsetup::lint
