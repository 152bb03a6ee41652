// Chat templates against jinja2: tests/data/chat_templates/cases.json holds small templates with what jinja2 3.1.6, set up as in
// transformers, makes of them (make.py beside it writes it). Below: messages, limits, masks, and where models keep
// templates.
#include "text/template/chat_template.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "support/temporary_directory.h"
#include "text/template/read_chat_template.h"
#include "text/template/trained_ranges.h"

using namespace distsetup;
using OrderedJson = nlohmann::ordered_json;

namespace {

std::tm one_day() {
  std::tm day = {};
  day.tm_year = 126, day.tm_mon = 2, day.tm_mday = 9, day.tm_hour = 14, day.tm_min = 5, day.tm_sec = 7;
  day.tm_wday = 1, day.tm_yday = 67;
  return day;
}

Result<Rendered> rendered(const std::string& source, const OrderedJson& values = OrderedJson::object(),
                          const RenderLimits& limits = {}) {
  const Result<ChatTemplate> chat = parse_template(source, "t.jinja");
  if (!chat.ok()) return chat.diagnostics;
  return render(*chat, values, one_day(), limits);
}

// "1:7: unknown filter 'x'"
std::string mistake(const std::string& source, const OrderedJson& values = OrderedJson::object(), const RenderLimits& limits = {}) {
  const Result<Rendered> result = rendered(source, values, limits);
  if (result.ok()) return "rendered: " + result->text;
  const Diagnostic& first = result.diagnostics.at(0);
  return std::to_string(first.location.line) + ":" + std::to_string(first.location.column) + ": " + first.message;
}

std::string begin_of(const std::string& text, size_t size) { return text.substr(0, size); }

ChatRequest conversation(OrderedJson messages) {
  ChatRequest request;
  request.messages = std::move(messages);
  return request;
}

std::vector<std::string> trained_parts(const TrainedText& text) {
  std::vector<std::string> parts;
  for (const ByteRange& range : text.trained) parts.push_back(text.text.substr(range.begin, range.end - range.begin));
  return parts;
}

const OrderedJson kTurns = {{{"role", "user"}, {"content", "Hi"}},
                            {{"role", "assistant"}, {"content", "Yo"}},
                            {{"role", "user"}, {"content", "é?"}},
                            {{"role", "assistant"}, {"content", "é!"}}};
const std::string kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

}  // namespace

TEST_CASE("templates give the bytes of jinja2", "[chat_templates]") {
  const char* source = std::getenv("DISTSETUP_SOURCE");
  const Result<std::string> file = read_file(std::string(source != nullptr ? source : ".") + "/tests/data/chat_templates/cases.json");
  REQUIRE(file.ok());
  const OrderedJson cases = OrderedJson::parse(*file);
  REQUIRE(cases.size() > 150);
  for (const OrderedJson& one : cases) {
    INFO(one.dump());
    OrderedJson values = {{"messages", nullptr}, {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", false}};
    if (one.contains("values")) values.update(one["values"]);
    const Result<Rendered> result = rendered(one["template"], values);
    if (one.contains("refused")) {
      CHECK_FALSE(result.ok());
      CHECK_FALSE(result.diagnostics.empty());
      continue;
    }
    if (!result.ok()) FAIL_CHECK(format_diagnostics(result.diagnostics));
    if (!result.ok()) continue;
    CHECK(result->text == one["text"].get<std::string>());
    OrderedJson spans = OrderedJson::array();
    for (const ByteRange& span : result->spans) spans.push_back({span.begin, span.end});
    CHECK(spans == one.value("spans", OrderedJson::array()));
  }
}

TEST_CASE("a mistake has its line, its column and what would be right", "[chat_templates]") {
  CHECK(mistake("ab\n{{ x | uper }}") == "2:8: unknown filter 'uper'");
  CHECK(mistake("é {{ 1 + }}") == "1:10: found '}}', expected an expression");
  CHECK(mistake("{% include 'x' %}") == "1:4: chat templates have no block 'include'");
  CHECK(mistake("{% for x in y recursive %}{% endfor %}").find("recursive loops are not read") != std::string::npos);
  CHECK(mistake("{{ m.a.b }}", {{"m", OrderedJson::object()}}) == "1:8: 'dict object' has no attribute 'a'");
  CHECK(mistake("{{ raise_exception('no ' ~ 'system') }}") == "1:4: the template refuses the conversation: no system");
  CHECK(mistake("{% if x %}") == "1:11: found the end of the template, expected '{% elif %}' or '{% else %}' or '{% endif %}'");
  CHECK(mistake("{{ [1]|map('string') }}").find("an address of memory") != std::string::npos);
  CHECK(mistake("{{ 'a'.format_map }}").find("an address of memory") != std::string::npos);
  CHECK(mistake("{{ 'a'.encode() }}") == "1:8: the method 'encode' of a text is not read");
  const Result<ChatTemplate> unknown = parse_template("{{ x | uper }}", "t.jinja");
  REQUIRE(unknown.diagnostics.size() == 1);
  CHECK(begin_of(unknown.diagnostics[0].help, 29) == "did you mean 'upper'; known: ");
}

TEST_CASE("a template cannot run away", "[chat_templates]") {
  const RenderLimits few = {100'000, 1 << 20};
  CHECK(mistake("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", OrderedJson::object(), few)
            .find("too many steps") != std::string::npos);
  CHECK(mistake("{% set ns = namespace(t='ab') %}{% for i in range(60) %}{% set ns.t = ns.t * 2 %}{% endfor %}", OrderedJson::object(),
                few)
            .find("too many steps") != std::string::npos);
  CHECK(mistake("{{ 'a' * 1000000000000 }}").find("too") != std::string::npos);
  CHECK(mistake("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("nested too deep") != std::string::npos);
  CHECK(
      mistake("{% set ns = namespace(t=[]) %}{% for i in range(999) %}{% set ns.t = [ns.t] %}{% endfor %}").find("nested more than") !=
      std::string::npos);
  CHECK(mistake("{% set n = namespace() %}{% set n.n = n %}{{ n }}").find("nested more than") != std::string::npos);
  CHECK(mistake("{{ " + std::string(5000, '(') + '1' + std::string(5000, ')') + " }}").find("nested more than") != std::string::npos);
  CHECK(mistake("{{ 1" +
                [] {
                  std::string sum;
                  for (int i = 0; i < 5000; ++i) sum += "+1";
                  return sum;
                }() +
                " }}")
            .find("nested more than") != std::string::npos);
  CHECK(mistake("{{ 'x' * 3000000 }}", OrderedJson::object(), {50'000'000, 1 << 20}).find("longer than 1048576 bytes") !=
        std::string::npos);
}

TEST_CASE("text that is not UTF-8 is refused, in the template and in the values", "[chat_templates]") {
  CHECK(mistake("\xff") == "0:0: the chat template is not UTF-8");
  CHECK(mistake("{{ x }}", {{"x", "\xff"}}) == "0:0: a text of the values is not UTF-8");
}

TEST_CASE("what is trained: the template's own marks", "[chat_templates]") {
  const std::string marked =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}{% "
      "else %}"
      "{{ m.content }}</s>{% endif %}{% endfor %}";
  const Result<TrainedText> text = trained_text(*parse_template(marked, "t"), conversation(kTurns), one_day());
  REQUIRE(text.ok());
  CHECK(text->method == MaskMethod::kGenerationBlocks);
  CHECK(trained_parts(*text) == std::vector<std::string>{"Yo</s>", "é!</s>"});
}

TEST_CASE("a generation block whose text is kept aside has no known place", "[chat_templates]") {
  const std::string kept = "{% macro m(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ m('a') | upper }}";
  const Result<TrainedText> text = trained_text(*parse_template(kept, "t"), conversation(kTurns), one_day());
  REQUIRE_FALSE(text.ok());
  CHECK(text.diagnostics[0].location.column == 20);
  CHECK(text.diagnostics[0].message.find("its place in the text is not known") != std::string::npos);
}

TEST_CASE("what is trained: prefixes, where they prove it", "[chat_templates]") {
  const Result<TrainedText> text = trained_text(*parse_template(kPlain, "t"), conversation(kTurns), one_day());
  REQUIRE(text.ok());
  CHECK(text->method == MaskMethod::kPrefixes);
  CHECK(trained_parts(*text) == std::vector<std::string>{"Yo</s>", "é!</s>"});
}

TEST_CASE("a template that rewrites earlier turns is refused, not guessed", "[chat_templates]") {
  const std::string rewrites =
      "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else '…' }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const Result<TrainedText> text = trained_text(*parse_template(rewrites, "t"), conversation(kTurns), one_day());
  REQUIRE_FALSE(text.ok());
  CHECK(text.diagnostics[0].message.find("message 2, of the assistant: the ") == 0);
  const std::string other_prompt =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}";
  CHECK_FALSE(trained_text(*parse_template(other_prompt, "t"), conversation(kTurns), one_day()).ok());
}

TEST_CASE("what is trained: marks, where a template drops earlier reasoning", "[chat_templates]") {
  const std::vector<OrderedJson> turns = {{{"role", "user"}, {"content", "Hi"}},
                                          {{"role", "assistant"}, {"content", " Yo\n"}, {"reasoning_content", "so"}},
                                          {{"role", "user"}, {"content", "<bot>\nYo"}},
                                          {{"role", "assistant"}, {"content", "é!"}, {"reasoning_content", "hm"}}};
  const auto parts = [&turns](const std::string& source) {
    const Result<TrainedText> text = trained_text(*parse_template(source, "t"), conversation(turns), one_day());
    if (!text.ok()) return std::vector<std::string>{text.diagnostics[0].message};
    CHECK(text->method == MaskMethod::kMarks);
    return trained_parts(*text);
  };
  const std::string drops =
      "{% for m in messages %}{% if m.role == 'user' %}<user>\n{{ m.content }}</s>{% else %}<bot>\n"
      "{% if loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content | trim }}</s>{% endif %}{% endfor %}";
  CHECK(parts(drops + "{% if add_generation_prompt %}<bot>\n{% endif %}") ==
        std::vector<std::string>{"Yo</s>", "<think>hm</think>é!</s>"});
  // The prompt goes on where earlier turns end: what is behind the part that both have is trained.
  CHECK(parts(drops + "{% if add_generation_prompt %}<bot>\n<think>{% endif %}") ==
        std::vector<std::string>{"Yo</s>", "hm</think>é!</s>"});
  // Another prompt, another ending, a message that is dropped, one that is written twice.
  const std::string asks = "{% if add_generation_prompt %}<bot>\n{% endif %}";
  CHECK(parts(drops + "{% if add_generation_prompt %}<body>\n{% endif %}").front().find("message 2, of the assistant: ") == 0);
  for (const char* content : {"{{ m.content }}{{ '</s>' if loop.last else '<e>' }}", "{{ m.content if loop.last }}</s>",
                              "{{ m.content }}{{ m.content if loop.last }}</s>"}) {
    INFO(content);
    const std::string source =
        std::string("{% for m in messages %}{% if m.role == 'user' %}<user>\n{{ m.content }}</s>{% else %}<bot>\n") + content +
        "{% endif %}{% endfor %}" + asks;
    CHECK(parts(source).front().find("message 2, of the assistant: ") == 0);
  }
}

TEST_CASE("reasoning is there under each of its names, as transformers has it", "[chat_templates]") {
  const ChatRequest request = conversation({{{"role", "assistant"}, {"reasoning", "so"}, {"content", "Yo"}}});
  const OrderedJson values = chat_values(request);
  CHECK(values["messages"][0].dump() ==
        R"({"thinking":"so","role":"assistant","reasoning":"so","content":"Yo","reasoning_content":"so"})");
  CHECK(values["tools"].is_null());
}

TEST_CASE("where a model keeps its chat template", "[chat_templates]") {
  const TemporaryDirectory folder;
  const auto source = [&](const std::string& name = "") {
    const Result<ModelTemplate> model = read_chat_template(folder.path(), name);
    return model.ok() ? model->chat.source : model.diagnostics.at(0).message;
  };
  CHECK(source().find("the model has no chat template") == 0);
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "one"})");
  CHECK(source() == "one");
  CHECK(read_chat_template(folder.path())->special_tokens.dump() == R"({"bos_token":"<s>","eos_token":"</s>"})");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]})");
  CHECK(source("tool_use") == "two");
  CHECK(source("tool") == "the model has no chat template 'tool'");
  folder.write("chat_template.json", R"({"chat_template": "three"})");
  CHECK(source() == "three");
  folder.write("chat_template.jinja", "four");
  CHECK(source() == "four");
}
