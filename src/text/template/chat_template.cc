#include "text/template/chat_template.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "text/template/execute.h"
#include "text/template/parse_blocks.h"
#include "text/template/steps.h"
#include "text/template/template_run.h"

namespace distsetup {
namespace {

constexpr size_t kMaxTemplateBytes = 4 << 20;

Diagnostic diagnostic(const char* code, const std::string& name, const jinja::TemplateError& failure) {
  return error(code, {name, failure.line, failure.column}, failure.message, failure.help);
}

}  // namespace

Result<ChatTemplate> parse_template(std::string_view source, std::string name) {
  if (source.size() > kMaxTemplateBytes) {
    return error(code::kSyntax, {name},
                 fmt::format("a chat template of {} bytes; at most {} are read", source.size(), kMaxTemplateBytes));
  }
  if (!is_utf8(source)) return error(code::kSyntax, {name}, "the chat template is not UTF-8");
  try {
    auto syntax = std::make_shared<jinja::Syntax>(jinja::parse_syntax(source));
    const bool has_generation = syntax->has_generation;
    return ChatTemplate{std::move(name), std::string(source), std::move(syntax), has_generation};
  } catch (const jinja::TemplateError& failure) {
    return diagnostic(code::kSyntax, name, failure);
  } catch (const std::exception& failure) {  // out of memory
    return error(code::kSyntax, {name}, fmt::format("the chat template cannot be read: {}", failure.what()));
  }
}

Result<Rendered> render(const ChatTemplate& chat, const nlohmann::ordered_json& values, const std::tm& now,
                        const RenderLimits& limits) {
  if (!values.is_object()) return error(code::kData, {chat.name}, "the values of a chat template are an object of names");
  try {
    const jinja::StepBudget budget(limits.steps);
    jinja::TemplateRun run(limits, now, jinja::from_json(values));
    jinja::execute_template(run, *chat.syntax);
    Rendered rendered{std::move(run.output), std::move(run.spans), std::nullopt};
    if (run.lost_span) rendered.lost_span = Location{chat.name, run.lost_span->first, run.lost_span->second};
    return rendered;
  } catch (const jinja::TemplateError& failure) {
    return diagnostic(code::kData, chat.name, failure);
  } catch (const std::exception& failure) {  // out of memory
    return error(code::kData, {chat.name}, fmt::format("the chat template cannot be rendered: {}", failure.what()));
  }
}

}  // namespace distsetup
