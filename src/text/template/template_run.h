// One rendering: the names in sight, what has been written, what it has cost.
#pragma once
#include <ctime>
#include <memory>

#include "text/template/chat_template.h"
#include "text/template/syntax.h"

namespace distsetup::jinja {

// Names of a block that has its own: a loop's turn, a macro's call, with, set-block, generation. Found from the inside out.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, PyValue>> names;
};
using ScopePointer = std::shared_ptr<Scope>;

PyValue* find_name(Scope& scope, std::string_view name);  // in this scope alone
void set_name(Scope& scope, const std::string& name, PyValue value);
ScopePointer inner_scope(ScopePointer outer);

struct CallArguments {
  Values positional;
  std::vector<std::pair<std::string, PyValue>> keywords;
};

// kCallable: a macro (or the body of a call block) with the scope that it was written in, a method with its object, or a function.
struct HeldCallable : Held {
  std::string name;
  PyValue self;                      // of a method; undefined: none
  const Statement* macro = nullptr;  // kMacro, kCall
  ScopePointer scope;
};
const HeldCallable& callable_of(const PyValue& value);
PyValue function(std::string name);
PyValue method(PyValue self, std::string_view name);

class TemplateRun {
 public:
  TemplateRun(const RenderLimits& limits, const std::tm& now, PyValue values);
  ~TemplateRun();  // frees cycles through namespaces and macros without recursion
  TemplateRun(const TemplateRun&) = delete;
  TemplateRun& operator=(const TemplateRun&) = delete;

  const RenderLimits limits;
  const std::tm now;
  const PyValue values;        // a dict: what the caller gave
  std::string output;          // of the innermost capture; at the end, the text
  int captures = 0;            // how many outputs are kept aside
  bool is_generating = false;  // inside of a generation block
  std::vector<ByteRange> spans;
  std::optional<std::pair<int, int>> lost_span;  // line, column of a generation block whose place in the text is not known
  int depth = 0;                                 // of nested blocks, expressions and calls

  void write(std::string_view text);
  PyValue make_namespace(Entries entries);
  PyValue make_macro(const Statement& macro, const std::string& name, ScopePointer scope);

 private:
  Values namespaces_;
  std::vector<ScopePointer> closures_;
};

// One level deeper while it lives; fails beyond what the stack allows.
class Deeper {
 public:
  explicit Deeper(TemplateRun& run);
  ~Deeper() { --run_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  TemplateRun& run_;
};

// What is written while it lives is kept aside.
class Capture {
 public:
  explicit Capture(TemplateRun& run) : run_(run), outer_(std::exchange(run.output, "")) { ++run.captures; }
  ~Capture() {
    --run_.captures;
    run_.output = std::move(outer_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string take() { return std::move(run_.output); }

 private:
  TemplateRun& run_;
  std::string outer_;
};

}  // namespace distsetup::jinja
