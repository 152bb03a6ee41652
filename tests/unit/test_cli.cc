// The command line: parsing, layers of settings, help, explain, exit codes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/commands/explanations.h"
#include "cli/deliver/deliver.h"
#include "cli/line/help.h"
#include "cli/line/output.h"
#include "cli/line/parse.h"
#include "cli/settings/run_source.h"
#include "planner/spec/spec_table.h"

using namespace distsetup;

namespace {

Result<Arguments> parsed(const std::string& command, const std::vector<std::string>& words) {
  const Command* found = find_command(command);
  REQUIRE(found != nullptr);
  return parse(*found, words);
}

std::vector<std::string> codes(const Diagnostics& diagnostics) {
  std::vector<std::string> out;
  for (const Diagnostic& d : diagnostics) out.push_back(d.code);
  return out;
}

// Sets a variable for one scope.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) { ::setenv(name_.c_str(), value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

}  // namespace

TEST_CASE("flags: hyphen and underscore, joined and separate values, letter case are the same") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"--zero-stage", "3"},
                                                                                     {"--zero_stage", "3"},
                                                                                     {"--zero-stage=3"},
                                                                                     {"--zero_stage=3"},
                                                                                     {"--Zero_Stage", "3"},
                                                                                     {"--stage", "3"}}) {
    const Result<Arguments> arguments = parsed("deepspeed", words);
    REQUIRE(arguments.ok());
    CHECK(arguments->text("zero-stage") == "3");
  }
}

TEST_CASE("flags: letters") {
  const Result<Arguments> arguments = parsed("fsdp", {"-o", "cfg.json", "-fq"});
  REQUIRE(arguments.ok());
  CHECK(arguments->text("output") == "cfg.json");
  CHECK(arguments->has("force"));
  CHECK(arguments->has("quiet"));
  CHECK(parsed("fsdp", {"-ocfg.json"})->text("output") == "cfg.json");
  CHECK(codes(parsed("fsdp", {"-x"}).diagnostics) == std::vector<std::string>{code::kUnknownFlag});
}

TEST_CASE("flags: a negative number is a value") {
  const Result<Arguments> arguments = parsed("deepspeed", {"--gradient-clipping", "-1"});
  REQUIRE(arguments.ok());
  CHECK(arguments->text("gradient-clipping") == "-1");
  CHECK(codes(double_flag(*arguments, "gradient-clipping", 0).diagnostics) == std::vector<std::string>{code::kOutOfRange});
}

TEST_CASE("flags: a flag that may stand alone takes only words it knows") {
  Result<Arguments> arguments = parsed("plan", {"--offload-optimizer", "run.yaml"});
  REQUIRE(arguments.ok());
  CHECK(arguments->positionals == std::vector<std::string>{"run.yaml"});
  CHECK(arguments->run_flags.at(0).value == std::nullopt);
  arguments = parsed("plan", {"--offload_optimizer", "cpu", "run.yaml"});
  REQUIRE(arguments.ok());
  CHECK(arguments->run_flags.at(0).value == "cpu");
  arguments = parsed("plan", {"--bf16", "--model", "7B"});
  REQUIRE(arguments.ok());
  CHECK(arguments->run_flags.at(0).value == std::nullopt);
  CHECK(arguments->run_flags.at(1).value == "7B");
}

TEST_CASE("flags: every mistake of a line in one pass") {
  CHECK(codes(parsed("plan", {"--modle", "7B", "--nodse", "4", "--output"}).diagnostics) ==
        std::vector<std::string>{code::kUnknownFlag, code::kUnknownFlag, code::kMissingArgument});
  CHECK(codes(parsed("deepspeed", {"--bf16=yes"}).diagnostics) == std::vector<std::string>{code::kWrongType});
  CHECK(codes(parsed("deepspeed", {"stage3"}).diagnostics) == std::vector<std::string>{code::kUnknownFlag});
  CHECK(codes(parsed("deepspeed", {"--output", "a", "--output", "b"}).diagnostics) == std::vector<std::string>{code::kConflict});
  CHECK(parsed("deepspeed", {"--output", "a", "--output", "a"}).ok());
}

TEST_CASE("flags: those of other tools are answered with what says the same here") {
  const auto help = [](const char* command, const std::vector<std::string>& words) {
    const Diagnostics said = parsed(command, words).diagnostics;
    REQUIRE(said.size() == 1);
    CHECK(said.front().code == code::kUnknownFlag);
    return said.front().help;
  };
  CHECK(help("plan", {"--zero", "3"}) == "did you mean '--sharding zero3'");
  CHECK(help("plan", {"--zero=2"}) == "did you mean '--sharding zero2'");
  CHECK(help("plan", {"--zero"}) == "--sharding zero: ZeRO has stages: write zero1, zero2 or zero3");
  CHECK(help("plan", {"--zero3"}) == "did you mean '--sharding zero3'");
  CHECK(help("plan", {"--deepspeed", "ds_config.json"}) == "did you mean '--from ds_config.json'");
  CHECK(help("plan", {"--deepspeed"}) == "did you mean '--trainer deepspeed'");
  CHECK(help("plan", {"--load-in-4bit"}) == "did you mean '--finetune qlora'");
  CHECK(help("plan", {"--use_flash_attn"}) == "did you mean '--attention flash2'");
  CHECK(help("plan", {"--cpu-offload"}).starts_with("it moves parameters and optimizer state in FSDP"));
  CHECK(help("plan", {"--axolotl"}).find("--code-base axolotl") != std::string::npos);
  CHECK(help("plan", {"--fsdp", "full_shard"}) == "did you mean '--sharding zero3'");
  CHECK(help("plan", {"--=x"}) == "flags: distsetup plan --help");
}

TEST_CASE("flags: words behind -- go to the trainer") {
  const Result<Arguments> arguments = parsed("launch", {"--plan", "plan.json", "--", "--stop-after", "3", "-h"});
  REQUIRE(arguments.ok());
  CHECK(arguments->passed_on == std::vector<std::string>{"--stop-after", "3", "-h"});
  CHECK_FALSE(asks_for_help({"launch", "--", "-h"}));
}

TEST_CASE("flags: within a command a spelling names one flag, and the help lists every flag") {
  // A command's own flag wins over a key of the run; these are meant.
  const std::set<std::string> own_over_key = {};
  for (const Command& command : commands()) {
    CAPTURE(command.name);
    const std::string help = command_help(command, TextStream{});
    std::set<std::string> seen;
    const auto spelled = [&](std::string spelling) {
      CAPTURE(spelling);
      std::replace(spelling.begin(), spelling.end(), '_', '-');
      CHECK(seen.insert(spelling).second);
    };
    for (const std::vector<Flag>* flags : {&command.flags, &common_flags()}) {
      for (const Flag& flag : *flags) {
        CHECK(help.find("--" + flag.name) != std::string::npos);
        spelled(flag.name);
        for (const std::string& alias : flag.aliases) spelled(alias);
      }
    }
    for (const SpecKey& key : spec_keys()) {
      if (!takes_key(command, key)) continue;
      CHECK(help.find("--" + std::string(key.flags.front().name)) != std::string::npos);
      for (const SettingFlag& flag : key.flags) {
        if (own_over_key.count(std::string(flag.name)) == 0) spelled(std::string(flag.name));
      }
    }
  }
}

TEST_CASE("help: fits a narrow terminal and says the same") {
  for (const Command& command : commands()) {
    TextStream narrow, wide;
    narrow.width_columns = 60;
    wide.width_columns = 110;
    const std::string text = command_help(command, narrow);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      const bool is_to_paste = line.find("distsetup ") != std::string::npos;
      CAPTURE(command.name, line);
      CHECK(
          (is_to_paste || line.size() <= 60 || line.find("\xc2\xb7") != std::string::npos || line.find("\xe2") != std::string::npos));
    }
    const auto words = [](std::string one) {
      std::erase_if(one, [](char c) { return c == ' ' || c == '\n'; });
      return one;
    };
    CHECK(words(text) == words(command_help(command, wide)));
  }
}

TEST_CASE("help: examples are lines that parse") {
  for (const Command& command : commands()) {
    for (const std::string& example : command.examples) {
      CAPTURE(example);
      std::vector<std::string> words;
      std::string word;
      for (const char c : example + " ") {
        if (c != ' ')
          word += c;
        else if (!word.empty())
          words.push_back(std::exchange(word, ""));
      }
      while (!words.empty() && words.front().find('=') != std::string::npos) words.erase(words.begin());  // a variable in front
      const auto pipe = std::find(words.begin(), words.end(), "|");
      words.erase(pipe, words.end());
      REQUIRE(words.at(0) == "distsetup");
      const size_t num_name_words = command.name.find(' ') == std::string::npos ? 1 : 2;
      CHECK(parse(command, {words.begin() + 1 + static_cast<std::ptrdiff_t>(num_name_words), words.end()}).ok());
    }
  }
}

TEST_CASE("explain: every diagnostic code has a page") {
  const char* source = std::getenv("DISTSETUP_SOURCE");
  REQUIRE(source != nullptr);
  const Result<std::string> text = read_file(std::string(source) + "/src/base/diagnostic_codes.h");
  REQUIRE(text.ok());
  std::set<std::string> declared, explained;
  for (size_t at = text->find("\"DS"); at != std::string::npos; at = text->find("\"DS", at + 1))
    declared.insert(text->substr(at + 1, 6));
  for (const PageGroup& group : explanations()) {
    for (const Page& page : group.pages) {
      CAPTURE(page.name);
      CHECK(find_page(page.name) == &page);
      CHECK_FALSE(page.title.empty());
      CHECK_FALSE(page.why.empty());
      if (!group.heading.empty()) continue;  // of the rules of lint
      CHECK((page.wrong.empty() || page.wrong != page.right));
      explained.insert(page.name);
    }
  }
  REQUIRE(declared.size() > 30);
  CHECK(declared == explained);
}

TEST_CASE("exit codes: usage, config, writing, nothing fits") {
  const auto one = [](const char* which, const std::string& file) { return exit_code({error(which, {file}, "")}); };
  CHECK(exit_code({}) == kDone);
  CHECK(exit_code({warning(code::kNothingFits, {}, "")}) == kDone);
  CHECK(one(code::kUnknownFlag, "command line") == kUsage);
  CHECK(one(code::kUnknownValue, "command line") == kUsage);
  CHECK(one(code::kUnknownValue, "run.yaml") == kConfigInvalid);
  CHECK(one(code::kUnknownModel, "command line") == kConfigInvalid);
  CHECK(one(code::kUnwritableFile, "out") == kFailed);
  CHECK(one(code::kFileExists, "out") == kFailed);
  CHECK(one(code::kNothingFits, "") == ExitCode::kNothingFits);
  CHECK(one(code::kEnvironment, "") == kEnvironmentUnusable);
}

TEST_CASE("regression 39: unset flags never override, flags over variables over the run file, for every pair") {
  const std::string path = "test_cli_run.yaml";
  std::ofstream(path) << "version: 1\nmodel: 7B\ntrain:\n  steps: 11\n";
  for (int layers = 0; layers < 8; ++layers) {
    CAPTURE(layers);
    std::vector<std::string> words;
    if ((layers & 1) != 0) words.push_back(path);
    if ((layers & 4) != 0) words.insert(words.end(), {"--steps", "33"});
    std::optional<Variable> variable;
    if ((layers & 2) != 0) variable.emplace("DISTSETUP_STEPS", "22");
    const Result<Arguments> arguments = parsed("config show", words);
    REQUIRE(arguments.ok());
    const Result<Spec> spec = read_spec(*arguments, *open_session(*arguments));
    REQUIRE(spec.ok());
    const std::optional<int64_t> expected = (layers & 4) != 0   ? std::optional<int64_t>(33)
                                            : (layers & 2) != 0 ? std::optional<int64_t>(22)
                                            : (layers & 1) != 0 ? std::optional<int64_t>(11)
                                                                : std::nullopt;
    CHECK(spec->integer("train.steps") == expected);
    CHECK(spec->text("model").has_value() == ((layers & 1) != 0));
  }
  std::remove(path.c_str());
}

TEST_CASE("command line of a header: what does not change the bytes is left out") {
  CHECK(command_words({"emit", "--target", "native", "--output", "run", "--force", "--model=7B", "-q", "--color=never", "-o", "x",
                       "--json"}) == std::vector<std::string>{"emit", "--target", "native", "--model=7B"});
}

TEST_CASE("output paths: a file, a folder, a folder to be") {
  CHECK(output_path("cfg.json", "x").directory == ".");
  CHECK(output_path("cfg.json", "x").file == "cfg.json");
  CHECK(output_path("a/b/cfg.json", "x").directory == "a/b");
  CHECK(output_path("a/b/", "x").file == "x");
  CHECK(output_path(".", "x").file == "x");
}

TEST_CASE("data paths stay the same files when the plan goes to another folder") {
  Plan plan;
  plan.data.root = ".";
  plan.data.files.push_back({"text/a.txt", 1, "", false});
  move_inputs(plan, ".", "runs/one");
  CHECK(plan.data.root == "../..");
  move_inputs(plan, "runs/one", ".");
  CHECK(plan.data.root == ".");
  plan.data.root = "/data";
  move_inputs(plan, ".", "runs/one");
  CHECK(plan.data.root == "/data");
}
