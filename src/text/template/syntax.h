// A template as a tree. Nesting is at most kMaxNesting, so walking and freeing it need little stack.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/python_value.h"

namespace distsetup::jinja {

inline constexpr int kMaxNesting = 200;

enum class ExpressionKind {
  kConstant,    // value
  kName,        // name
  kList,        // parts
  kTuple,       // parts
  kDict,        // parts: key, value, key, value …
  kAttribute,   // parts[0].name
  kItem,        // parts[0][parts[1]]
  kSlice,       // parts: start, stop, step, each may be null; only as parts[1] of kItem
  kCall,        // parts[0](call)
  kFilter,      // parts[0] | name(call); parts[0] is null in `{% filter %}` and `{% set x | filter %}`
  kTest,        // parts[0] is name(call)
  kNot,         // parts[0]
  kNegative,    // -parts[0]
  kPositive,    // +parts[0]
  kArithmetic,  // parts[0] name parts[1]; name one of + - * / // % **
  kConcat,      // parts joined as text: ~
  kCompare,     // parts[0] operators[0] parts[1] operators[1] parts[2] …: == != < <= > >= in, not in
  kAnd,
  kOr,           // parts[0], parts[1]
  kConditional,  // parts: condition, value, other (may be null)
};

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

struct CallSyntax {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> keywords;
  ExpressionPointer star, double_star;  // *list, **dict
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 1, column = 1;
  int nesting = 1;  // 1 + that of its deepest part
  std::string name;
  PyValue value;
  std::vector<ExpressionPointer> parts;
  std::vector<std::string> operators;
  CallSyntax call;
};

// Where a value is stored: x, ns.x, or (a, b).
struct Target {
  int line = 1, column = 1;
  std::string name;
  std::string attribute;      // of a namespace
  std::vector<Target> parts;  // of a tuple: then name is empty
  bool is_tuple = false;
};

struct MacroParameter {
  std::string name;
  ExpressionPointer absent;  // null: undefined
};

enum class StatementKind {
  kText,        // text
  kPrint,       // expressions
  kIf,          // branches, otherwise
  kFor,         // target, expression, condition (may be null), body, otherwise
  kSet,         // target = expression
  kSetBlock,    // target = body, through expression (a kFilter) where there is one
  kMacro,       // name, parameters, body
  kCall,        // expression (a kCall) with the parameters and body as `caller`
  kFilter,      // body through expression
  kWith,        // targets, expressions, body
  kGeneration,  // body: what an assistant wrote
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<Statement>;

struct Branch;

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 1, column = 1;
  std::string text;  // kText; kMacro: its name
  Target target;
  ExpressionPointer expression, condition;
  std::vector<ExpressionPointer> expressions;
  std::vector<Target> targets;
  std::vector<MacroParameter> parameters;
  std::vector<Branch> branches;
  Body body, otherwise;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;  // kMacro, kCall: names that its body reads
};

struct Branch {
  ExpressionPointer condition;
  Body body;
};

struct Syntax {
  Body body;
  std::vector<std::string> hidden_names;  // names that are undefined until the template sets them, whatever the values have
  bool has_generation = false;
};

}  // namespace distsetup::jinja
