// Precedence climbing over bash's operators (bash 5.2, "Shell Arithmetic"), in 64 bits that wrap. Left out: assignments, ++ and --,
// which change a variable; they give nothing.
#include "codegen/shell/arithmetic.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace distsetup::foreign {
namespace {

constexpr int kMaxSumDepth = 50;  // brackets inside brackets, variables of variables

struct BinaryOperator {
  std::string_view spelled;
  int rank;  // what binds closer is higher
};
constexpr std::array<BinaryOperator, 19> kBinary = {{{"**", 11},
                                                     {"<<", 8},
                                                     {">>", 8},
                                                     {"<=", 7},
                                                     {">=", 7},
                                                     {"==", 6},
                                                     {"!=", 6},
                                                     {"&&", 2},
                                                     {"||", 1},
                                                     {"*", 10},
                                                     {"/", 10},
                                                     {"%", 10},
                                                     {"+", 9},
                                                     {"-", 9},
                                                     {"<", 7},
                                                     {">", 7},
                                                     {"&", 5},
                                                     {"^", 4},
                                                     {"|", 3}}};

uint64_t bits(int64_t n) { return static_cast<uint64_t>(n); }

std::optional<int64_t> power(int64_t base, int64_t exponent) {
  if (exponent < 0) return std::nullopt;
  uint64_t out = 1, square = bits(base);
  for (; exponent > 0; exponent /= 2, square *= square) out *= exponent % 2 == 1 ? square : 1;
  return static_cast<int64_t>(out);
}

std::optional<int64_t> result_of(std::string_view op, int64_t a, int64_t b) {
  const auto wrapped = [](uint64_t n) { return static_cast<int64_t>(n); };
  if (op == "/" || op == "%") {
    if (b == 0) return std::nullopt;
    if (b == -1) return op == "/" ? wrapped(0 - bits(a)) : 0;
    return op == "/" ? a / b : a % b;
  }
  if (op == "**") return power(a, b);
  if (op == "*") return wrapped(bits(a) * bits(b));
  if (op == "+") return wrapped(bits(a) + bits(b));
  if (op == "-") return wrapped(bits(a) - bits(b));
  if (op == "<<") return wrapped(bits(a) << (bits(b) & 63U));
  if (op == ">>") return a >> (bits(b) & 63U);
  if (op == "<") return a < b;
  if (op == ">") return a > b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "&") return a & b;
  if (op == "^") return a ^ b;
  if (op == "|") return a | b;
  if (op == "&&") return a != 0 && b != 0;
  return a != 0 || b != 0;
}

class ArithmeticReader {
 public:
  ArithmeticReader(std::string_view text, const ValueOfName& value_of, int depth) : text_(text), value_of_(value_of), depth_(depth) {}

  std::optional<int64_t> read() {
    const auto value = choice();
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool takes(std::string_view what) {
    skip();
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }

  // a ? b : c
  std::optional<int64_t> choice() {
    if (++depth_ > kMaxSumDepth) return std::nullopt;
    const auto condition = binary(0);
    std::optional<int64_t> out = condition;
    if (takes("?")) {
      const auto yes = choice();
      if (!takes(":")) return std::nullopt;
      const auto no = choice();
      out = condition ? (*condition != 0 ? yes : no) : std::nullopt;
    }
    --depth_;
    return out;
  }

  const BinaryOperator* next_operator() {
    skip();
    const auto* found = std::find_if(kBinary.begin(), kBinary.end(), [this](const BinaryOperator& one) {
      return text_.substr(at_, one.spelled.size()) == one.spelled;
    });
    return found == kBinary.end() ? nullptr : found;
  }

  std::optional<int64_t> binary(int least_rank) {
    auto left = unary();
    while (const BinaryOperator* op = next_operator()) {
      if (op->rank < least_rank) break;
      const char after = at_ + op->spelled.size() < text_.size() ? text_[at_ + op->spelled.size()] : '\0';
      if (after == '=' && op->rank != 6 && op->rank != 7) return std::nullopt;  // a += b
      at_ += op->spelled.size();
      const auto right = binary(op->spelled == "**" ? op->rank : op->rank + 1);
      left = left && right ? result_of(op->spelled, *left, *right) : std::nullopt;
    }
    return left;
  }

  std::optional<int64_t> unary() {
    if (depth_ > kMaxSumDepth) return std::nullopt;
    for (const char sign : {'!', '~', '-', '+'}) {
      if (!takes(std::string_view(&sign, 1))) continue;
      ++depth_;
      const auto value = unary();
      --depth_;
      if (!value) return std::nullopt;
      return sign == '!' ? (*value == 0) : sign == '~' ? ~*value : sign == '-' ? static_cast<int64_t>(0 - bits(*value)) : *value;
    }
    if (takes("(")) {
      const auto value = choice();
      return takes(")") ? value : std::nullopt;
    }
    return operand();
  }

  std::optional<int64_t> operand() {
    skip();
    const size_t begin = at_;
    const bool is_braced = takes("${");
    if (!is_braced) takes("$");
    const size_t name = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
    const std::string_view word = text_.substr(name, at_ - name);
    if (word.empty() || (is_braced && !takes("}"))) return std::nullopt;
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return name == begin ? number_of(word) : std::nullopt;
    const std::optional<std::string> value = value_of_(word);
    if (!value) return std::nullopt;
    if (value->empty()) return 0;
    return ArithmeticReader(*value, value_of_, depth_ + 1).read();
  }

  // 8, 010 and 0x1f
  static std::optional<int64_t> number_of(std::string_view word) {
    int base = 10;
    if (word.size() > 1 && word[0] == '0') {
      base = word[1] == 'x' || word[1] == 'X' ? 16 : 8;
      word.remove_prefix(base == 16 ? 2 : 1);
    }
    int64_t out = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), out, base);
    if (status != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return out;
  }

  std::string_view text_;
  const ValueOfName& value_of_;
  int depth_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> arithmetic(std::string_view text, const ValueOfName& value_of) {
  return text.size() > 1000 ? std::nullopt : ArithmeticReader(text, value_of, 0).read();
}

std::optional<int64_t> sum_of_expr(std::string_view command, const ValueOfName& value_of) {
  constexpr std::string_view kName = "expr ";
  const std::string_view words = command.substr(std::min(command.find_first_not_of(" \t\n"), command.size()));
  if (!words.starts_with(kName) || words.find_first_of("\"'=<>|&:,?") != std::string_view::npos)
    return std::nullopt;  // texts that it compares
  std::string sum(words.substr(kName.size()));
  std::erase(sum, '\\');
  return arithmetic(sum, value_of);
}

}  // namespace distsetup::foreign
