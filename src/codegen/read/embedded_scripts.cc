// Scripts inside structured files (a block scalar, a quoted text, a list of words) keep their places (scalar_script.h): shell does not
// mind the blanks that a block scalar is indented with.
#include "codegen/read/embedded_scripts.h"

#include <algorithm>

#include "codegen/read/manifest.h"
#include "codegen/read/scalar_script.h"
#include "codegen/shell/follow.h"

namespace distsetup::foreign {
namespace {

ShellScript script_in(Document& d, const Value& scalar) {
  const TextSpan range = write_script(d, scalar);
  return parse_shell(*d.script_text, range);
}

// env: [{name: N, value: "2"}]; what a value takes from elsewhere is not known.
std::vector<OuterVariable> variables_of(const Document& d, const TreeNode& env) {
  std::vector<OuterVariable> out;
  if (!env || env.value->kind != Value::Kind::kList) return out;
  for (const Value& item : env.value->items) {
    const TreeNode name = node(item, "name"), value = node(item, "value");
    const bool is_text = name && value && value.value->kind == Value::Kind::kScalar;
    if (is_text && value.text().find_first_of("${<") == std::string::npos)
      out.push_back({name.text(), value.text(), value_span(d, *value.value), true, false, {}});
  }
  return out;
}

// envs: {N: 2} of a task; what is left empty is given when it is started.
void add_entries(const Document& d, const Value& map, std::vector<OuterVariable>& out) {
  for (const auto& [name, value] : map.entries) {
    const bool is_text = value.kind == Value::Kind::kScalar && !value.text.empty() && value.text != "null" && value.text != "~";
    if (is_text && value.text.find_first_of("${<") == std::string::npos)
      out.push_back({name, value.text, value_span(d, value), true, false, {}});
  }
}

// "--nnodes=$(N)": Kubernetes puts the container's variables in.
std::string with_variables(std::string text, const std::vector<OuterVariable>& variables) {
  for (const OuterVariable& one : variables) {
    const std::string reference = "$(" + one.name + ")";
    for (size_t at = text.find(reference); at != std::string::npos; at = text.find(reference, at + one.value.size()))
      text.replace(at, reference.size(), one.value);
  }
  return text;
}

// ["torchrun", "--nproc_per_node=8", "train.py"]; a `bash -c` in it is read as a script.
void add_words(Document& d, const std::vector<const Value*>& items, const std::vector<OuterVariable>& variables) {
  if (items.empty()) return;
  ShellScript script;
  script.text = d.text;
  ShellCommand command;
  bool is_script = false;
  for (const Value* item : items) {
    if (item->kind != Value::Kind::kScalar) return;
    if (is_script) {
      ShellScript inner = script_in(d, *item);
      inner.outer = variables;
      add_script(d, std::move(inner));
      is_script = false;
      continue;
    }
    const bool is_option = item->text.size() > 1 && item->text[0] == '-' && item->text[1] != '-' && item->text.back() == 'c';
    if (is_option && !command.words.empty()) {
      const std::string& shell = command.words[0].text;
      const std::string base = shell.substr(shell.rfind('/') + 1);
      is_script = base == "bash" || base == "sh";
    }
    ShellWord word;
    word.text = with_variables(item->text, variables);
    word.span = value_span(d, *item);
    word.parts = {{ShellQuote::kSingle, word.text, word.span}};
    command.words.push_back(std::move(word));
  }
  script.commands.push_back(std::move(command));
  script.outer = variables;
  add_script(d, std::move(script));
}

void add_environment(Document& d, const Value& list) {
  for (const Value& item : list.items) {
    const TreeNode name = node(item, "name");
    if (!name || name.value->kind != Value::Kind::kScalar) continue;
    EnvironmentSetting one;
    one.name = name.text();
    one.value = text(item, "value");
    one.name_span = value_span(d, *name.value);
    one.span = one.name_span;
    d.environment.push_back(std::move(one));
  }
  for (size_t i = 0; i < list.entries.size(); ++i) {
    const TreeNode at{&list.entries[i].second, &list, i};
    d.environment.push_back({list.entries[i].first, list.entries[i].second.text, key_span(d, at), key_span(d, at)});
  }
}

// What an operator tells torchrun in every container: PET_NPROC_PER_NODE, of kubeflow/trainer (pkg/runtime/framework/plugins/torch)
// and of training-operator (pkg/controller.v1/pytorch/envvar.go).
std::vector<OuterVariable> variables_of_operator(const Document& d, const Value& root) {
  const std::string_view path = processes_of_operator(root);
  const TreeNode processes = path.empty() ? TreeNode{} : node(root, path);
  if (!processes || !number(processes.text())) return {};
  return {{"PET_NPROC_PER_NODE", processes.text(), value_span(d, *processes.value), true, false, {}}};
}

// Containers of a manifest anywhere below: command, args, env.
void find_scripts(Document& d, const Value& value, const std::vector<OuterVariable>& of_operator) {
  std::vector<const Value*> words;
  for (const char* key : {"command", "args"}) {
    const TreeNode list = node(value, key);
    if (!list || list.value->kind != Value::Kind::kList) continue;
    for (const Value& item : list.value->items) words.push_back(&item);
  }
  std::vector<OuterVariable> variables = variables_of(d, node(value, "env"));
  variables.insert(variables.end(), of_operator.begin(), of_operator.end());
  add_words(d, words, variables);
  if (const TreeNode env = node(value, "env")) add_environment(d, *env.value);
  for (const Value& item : value.items) find_scripts(d, item, of_operator);
  for (const auto& entry : value.entries) {
    if (entry.first != "env") find_scripts(d, entry.second, of_operator);
  }
}

void script_environment(Document& d) {
  for (const ScriptPart& part : d.parts) {
    for (const ShellCommand& command : part.script.commands) {
      for (const ShellAssignment& one : command.assignments) {
        if (one.is_array || command.is_dead) continue;
        const TextSpan name{one.span.begin, one.span.begin + one.name.size()};
        d.environment.push_back({one.name, one.known, one.span, name});
      }
    }
    for (const LaunchLine& line : part.lines) {
      for (const LaunchStage& stage : line.stages) {
        for (const LaunchOption& option : stage.options) {
          const bool exports = (stage.program == LaunchProgram::kMpirun && (option.name == "x" || option.name == "genv")) ||
                               (stage.program == LaunchProgram::kSrun && option.name == "export");
          const size_t equals = exports ? option.value.find('=') : std::string::npos;
          if (equals == std::string::npos) continue;
          const size_t comma = option.value.rfind(',', equals) + 1;
          d.environment.push_back(
              {option.value.substr(comma, equals - comma), option.value.substr(equals + 1), option.span, option.span});
        }
      }
    }
  }
}

void settings_of_lines(Document& d) {
  for (size_t at = 0; at < d.text.size();) {
    const size_t end = std::min(d.text.find('\n', at), d.text.size());
    const std::string_view line = std::string_view(d.text).substr(at, end - at);
    const size_t equals = line.find('=');
    if (!line.empty() && line[0] != '#' && equals != std::string_view::npos) {
      std::string_view value = line.substr(equals + 1);
      if (!value.empty() && value.back() == '\r') value.remove_suffix(1);
      size_t begin = line.substr(0, 7) == "export " ? 7 : 0;
      d.environment.push_back(
          {std::string(line.substr(begin, equals - begin)), std::string(value), {at + begin, end}, {at + begin, at + equals}});
    }
    at = end + 1;
  }
}

}  // namespace

void add_script(Document& d, ShellScript script, const ReadSourced& read) {
  ScriptPart part;
  part.script = follow_shell(std::move(script), read);
  part.lines = find_lines(part.script);
  d.parts.push_back(std::move(part));
}

void add_arguments(Document& d) {
  const ShellScript lines = parse_shell(d.text, {0, d.text.size()});
  ShellScript script;
  script.text = d.text;
  ShellCommand command;
  ShellWord program;
  program.text = "arguments.py";
  command.words.push_back(std::move(program));
  for (const ShellCommand& line : lines.commands) command.words.insert(command.words.end(), line.words.begin(), line.words.end());
  script.commands.push_back(std::move(command));
  add_script(d, std::move(script));
}

void find_embedded_scripts(Document& d) {
  if (d.kind != nullptr && d.kind->has_containers) {
    for (const Value& root : d.roots) find_scripts(d, root, variables_of_operator(d, root));
  }
  if (d.kind != nullptr) {
    std::vector<OuterVariable> variables;
    for (const std::string& key : d.kind->environment) {
      if (const TreeNode map = node(d.root, key)) add_entries(d, *map.value, variables);
    }
    for (const std::string& key : d.kind->scripts) {
      const TreeNode value = node(d.root, key);
      if (!value || value.value->kind != Value::Kind::kScalar) continue;
      ShellScript script = script_in(d, *value.value);
      script.outer = variables;
      add_script(d, std::move(script));
    }
    for (const std::string& key : d.kind->environment) {
      if (const TreeNode variables = node(d.root, key)) add_environment(d, *variables.value);
    }
  }
  if (d.is(file_kind::kEnvironment)) settings_of_lines(d);
  script_environment(d);
}

}  // namespace distsetup::foreign
