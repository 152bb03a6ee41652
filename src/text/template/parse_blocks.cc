#include "text/template/parse_blocks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/names.h"
#include "text/template/hidden_names.h"
#include "text/template/parse_expression.h"

namespace distsetup::jinja {
namespace {

constexpr int kMaxBlocks = 60;  // one in the other
const std::vector<std::string> kTags = {"if",   "for",   "set",        "macro", "call",     "filter",
                                        "with", "print", "generation", "break", "continue", "raw"};

class BlockParser {
 public:
  explicit BlockParser(std::string_view source) : tokens_(tokenize(source)) {}

  Syntax take() {
    Syntax syntax;
    syntax.body = body({});
    syntax.has_generation = has_generation_;
    syntax.hidden_names = hidden_names(syntax.body);
    return syntax;
  }

 private:
  using Ends = std::vector<std::string_view>;

  static Statement statement(StatementKind kind, const Token& at) {
    Statement made;
    made.kind = kind;
    made.line = at.line;
    made.column = at.column;
    return made;
  }

  // Statements up to a block that begins with one of `ends`; that name is the current token then. No ends: up to the end.
  Body body(const Ends& ends) {
    Body out;
    while (tokens_.current().kind != TokenType::kEnd) {
      const Token at = tokens_.take();
      if (at.kind == TokenType::kData) {
        out.push_back(statement(StatementKind::kText, at));
        out.back().text = at.text;
      } else if (at.kind == TokenType::kVariableBegin) {
        out.push_back(statement(StatementKind::kPrint, at));
        out.back().expressions.push_back(parse_expressions(tokens_));
        tokens_.expect(TokenType::kVariableEnd, "'}}'");
      } else {
        const bool is_end = std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return tokens_.is_name(end); });
        if (is_end) return out;
        out.push_back(block(ends));
        tokens_.expect(TokenType::kBlockEnd, "'%}'");
      }
    }
    if (!ends.empty()) tokens_.unexpected(fmt::format("'{{% {} %}}'", fmt::join(ends, " %}' or '{% ")));
    return out;
  }

  // The body of a block behind the rest of its tag, its end name taken; returns that name.
  std::string block_body(Body& to, const Ends& ends) {
    tokens_.skip_sign(":");
    tokens_.expect(TokenType::kBlockEnd, "'%}'");
    to = body(ends);
    return tokens_.take().text;
  }

  Statement block(const Ends& ends) {
    const Token at = tokens_.expect(TokenType::kName, "the name of a block");
    if (++depth_ > kMaxBlocks) fail_at(at.line, at.column, fmt::format("blocks are nested more than {} deep", kMaxBlocks));
    Statement made = named_block(at, ends);
    --depth_;
    return made;
  }

  Statement named_block(const Token& at, const Ends& ends) {
    if (at.text == "if") return if_block(at);
    if (at.text == "for") return for_block(at);
    if (at.text == "set") return set_block(at);
    if (at.text == "macro") return macro_block(at);
    if (at.text == "call") return call_block(at);
    if (at.text == "filter") return filter_block(at);
    if (at.text == "with") return with_block(at);
    if (at.text == "print") return print_block(at);
    if (at.text == "generation") return generation_block(at);
    if (at.text == "break" || at.text == "continue") return loop_control(at);
    unknown_block(at, ends);
  }

  [[noreturn]] void unknown_block(const Token& at, const Ends& ends) {
    if (at.text.substr(0, 3) == "end" || at.text == "else" || at.text == "elif") {
      fail_at(at.line, at.column,
              fmt::format("found '{}', expected {}", at.text,
                          ends.empty() ? "no block to be open here" : fmt::format("'{}'", fmt::join(ends, "' or '"))));
    }
    static constexpr std::string_view kRefused[] = {"include",    "import", "from",  "extends", "block",
                                                    "autoescape", "debug",  "trans", "do"};
    const bool is_refused = std::find(std::begin(kRefused), std::end(kRefused), at.text) != std::end(kRefused);
    fail_at(at.line, at.column, fmt::format("{} '{}'", is_refused ? "chat templates have no block" : "unknown block", at.text),
            fmt::format("blocks are: {}", fmt::join(kTags, ", ")));
  }

  Target name_target(const Token& name) {
    Target target;
    target.line = name.line, target.column = name.column;
    target.name = name.text;
    static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), name.text) != std::end(kConstants)) {
      fail_at(name.line, name.column, fmt::format("'{}' cannot be set", name.text));
    }
    return target;
  }

  enum class Attributes { kAllowed, kRefused };
  Target one_target(Attributes attributes) {
    if (tokens_.is_sign("(")) {
      if (++depth_ > kMaxBlocks) tokens_.unexpected("a name");
      tokens_.take();
      Target inner = targets(attributes, "");
      tokens_.expect_sign(")");
      --depth_;
      return inner;
    }
    Target target = name_target(tokens_.expect(TokenType::kName, "a name"));
    if (attributes == Attributes::kAllowed && tokens_.skip_sign("."))
      target.attribute = tokens_.expect(TokenType::kName, "a name").text;
    return target;
  }

  // x or x, y; ends at the name `end`.
  Target targets(Attributes attributes, std::string_view end) {
    Target first = one_target(attributes);
    if (!tokens_.is_sign(",")) return first;
    Target row;
    row.line = first.line, row.column = first.column, row.is_tuple = true;
    row.parts.push_back(std::move(first));
    while (tokens_.skip_sign(",")) {
      const bool is_end = tokens_.is_sign("=") || tokens_.is_sign(")") || tokens_.current().kind == TokenType::kBlockEnd ||
                          (!end.empty() && tokens_.is_name(end));
      if (is_end) break;
      row.parts.push_back(one_target(attributes));
    }
    return row;
  }

  // `loop` is the loop's own, in it and in its names.
  void refuse_loop(const Target& target) const {
    for (const Target& part : target.parts) refuse_loop(part);
    if (target.name == "loop" && target.attribute.empty()) fail_at(target.line, target.column, "'loop' cannot be set in a loop");
  }

  Statement if_block(const Token& at) {
    Statement made = statement(StatementKind::kIf, at);
    std::string end = "elif";
    while (end == "elif") {
      Branch& branch = made.branches.emplace_back();
      branch.condition = parse_expressions(tokens_, Conditional::kLeave);
      end = block_body(branch.body, {"elif", "else", "endif"});
    }
    if (end == "else") block_body(made.otherwise, {"endif"});
    return made;
  }

  Statement for_block(const Token& at) {
    Statement made = statement(StatementKind::kFor, at);
    made.target = targets(Attributes::kRefused, "in");
    refuse_loop(made.target);
    if (!tokens_.skip_name("in")) tokens_.unexpected("'in'");
    made.expression = parse_expressions(tokens_, Conditional::kLeave, "recursive");
    if (tokens_.skip_name("if")) made.condition = parse_expression(tokens_);
    if (tokens_.is_name("recursive")) {
      fail_at(tokens_.current().line, tokens_.current().column, "recursive loops are not read", "write a macro that calls itself");
    }
    ++loops_, ++for_blocks_;
    const std::string end = block_body(made.body, {"endfor", "else"});
    --loops_;
    if (end == "else") block_body(made.otherwise, {"endfor"});
    --for_blocks_;
    return made;
  }

  Statement set_block(const Token& at) {
    Statement made = statement(StatementKind::kSet, at);
    made.target = targets(Attributes::kAllowed, "");
    if (for_blocks_ > 0) refuse_loop(made.target);
    if (tokens_.skip_sign("=")) {
      made.expression = parse_expressions(tokens_);
      return made;
    }
    made.kind = StatementKind::kSetBlock;
    made.expression = parse_filters(tokens_, nullptr);
    block_body(made.body, {"endset"});
    return made;
  }

  void parameters(Statement& to) {
    tokens_.expect_sign("(");
    while (!tokens_.is_sign(")")) {
      if (!to.parameters.empty()) tokens_.expect_sign(",");
      const Token name = tokens_.expect(TokenType::kName, "the name of a parameter");
      MacroParameter parameter;
      parameter.name = name_target(name).name;
      if (tokens_.skip_sign("=")) {
        parameter.absent = parse_expression(tokens_);
      } else if (!to.parameters.empty() && to.parameters.back().absent) {
        fail_at(name.line, name.column, fmt::format("'{}' has no default and stands behind a parameter that has one", name.text));
      }
      to.parameters.push_back(std::move(parameter));
    }
    tokens_.expect_sign(")");
  }

  // The body of something that is called: a loop outside of it cannot be left from inside.
  void called_body(Statement& to, const Ends& ends) {
    const int outer = std::exchange(loops_, 0);
    const size_t begin = tokens_.position();
    block_body(to.body, ends);
    loops_ = outer;
    to.uses_caller = tokens_.has_name_since(begin, "caller");
    to.uses_kwargs = tokens_.has_name_since(begin, "kwargs");
    to.uses_varargs = tokens_.has_name_since(begin, "varargs");
  }

  Statement macro_block(const Token& at) {
    Statement made = statement(StatementKind::kMacro, at);
    made.text = name_target(tokens_.expect(TokenType::kName, "the name of the macro")).name;
    parameters(made);
    called_body(made, {"endmacro"});
    return made;
  }

  Statement call_block(const Token& at) {
    Statement made = statement(StatementKind::kCall, at);
    if (tokens_.is_sign("(")) parameters(made);
    made.expression = parse_expression(tokens_);
    if (made.expression->kind != ExpressionKind::kCall)
      fail_at(made.expression->line, made.expression->column, "expected a call behind 'call'");
    called_body(made, {"endcall"});
    return made;
  }

  Statement filter_block(const Token& at) {
    Statement made = statement(StatementKind::kFilter, at);
    made.expression = parse_filters(tokens_, parse_one_filter(tokens_, nullptr));
    block_body(made.body, {"endfilter"});
    return made;
  }

  Statement with_block(const Token& at) {
    Statement made = statement(StatementKind::kWith, at);
    while (tokens_.current().kind != TokenType::kBlockEnd) {
      if (!made.targets.empty()) tokens_.expect_sign(",");
      made.targets.push_back(one_target(Attributes::kRefused));
      tokens_.expect_sign("=");
      made.expressions.push_back(parse_expression(tokens_));
    }
    block_body(made.body, {"endwith"});
    return made;
  }

  Statement print_block(const Token& at) {
    Statement made = statement(StatementKind::kPrint, at);
    while (tokens_.current().kind != TokenType::kBlockEnd) {
      if (!made.expressions.empty()) tokens_.expect_sign(",");
      made.expressions.push_back(parse_expression(tokens_));
    }
    return made;
  }

  Statement generation_block(const Token& at) {
    Statement made = statement(StatementKind::kGeneration, at);
    has_generation_ = true;
    called_body(made, {"endgeneration"});
    return made;
  }

  Statement loop_control(const Token& at) {
    if (loops_ == 0) fail_at(at.line, at.column, fmt::format("'{}' outside of a loop", at.text));
    return statement(at.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, at);
  }

  TokenReader tokens_;
  int depth_ = 0;
  int loops_ = 0;       // that break and continue may leave
  int for_blocks_ = 0;  // around this place, macros between or not
  bool has_generation_ = false;
};

}  // namespace

Syntax parse_syntax(std::string_view source) { return BlockParser(source).take(); }

}  // namespace distsetup::jinja
