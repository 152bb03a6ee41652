#include "cli/settings/session.h"

#include "base/file.h"
#include "base/value_yaml.h"
#include "cli/line/parse.h"

namespace distsetup {

namespace {

Result<SiteFile> read_site_file(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text.ok()) {
    text.diagnostics.back().help = "make one: distsetup init --site --output " + path;
    return text.diagnostics;
  }
  Result<Value> value = parse_yaml(*text, path);
  if (!value.ok()) return value.diagnostics;
  return {SiteFile{std::move(*text), std::move(*value)}, std::move(value.diagnostics)};
}

}  // namespace

const Result<SiteFile>& site_file(const Session& session, const std::string& path) {
  const auto known = session.site_files->find(path);
  return known != session.site_files->end() ? known->second : session.site_files->emplace(path, read_site_file(path)).first->second;
}

Result<Session> open_session(const Arguments& arguments) {
  const bool takes_script_flags = arguments.command != nullptr && arguments.command->after_dashes == AfterDashes::kTrainerFlags;
  const auto folder = [&](const char* flag) {  // both flags may stand behind `--` too
    return arguments.text(flag, takes_script_flags ? value_of_word(arguments.passed_on, flag) : "");
  };
  const std::string own_presets = folder("presets"), own_templates = folder("templates");
  Session session;
  Diagnostics diagnostics;
  Result<Presets> presets = own_presets.empty() ? load_presets() : load_presets({own_presets});
  append(diagnostics, std::move(presets.diagnostics));
  Result<TemplateSet> templates = own_templates.empty() ? Result<TemplateSet>(embedded_templates()) : load_templates(own_templates);
  append(diagnostics, std::move(templates.diagnostics));
  if (has_error(diagnostics)) return diagnostics;
  session.presets = std::move(*presets);
  session.templates = std::move(*templates);
  if (takes_script_flags && !arguments.passed_on.empty()) {
    Result<FlagList> list = read_flag_list(session.templates, arguments.passed_on);
    if (!list.ok()) return list.diagnostics;
    session.script_flags = std::move(*list);
  }
  return {std::move(session), std::move(diagnostics)};
}

}  // namespace distsetup
