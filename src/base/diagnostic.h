// One thing to tell the user: where, what, what to do. A mistake is a value (Result), never an exception.
// Codes are permanent: `DSnnnn`, listed once in diagnostic_codes.h. Messages are lower case without a full stop; they say what was
// found and what was expected, the user's spelling in single quotes.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distsetup {

// A place in a file, on the command line (file = "command line") or in an environment variable. line and column are 1-based;
// 0 means not known.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
  bool operator==(const Location&) const = default;
};

enum class Severity { kError, kWarning, kNote };

struct Diagnostic {
  std::string code;  // "DS0104"
  Severity severity = Severity::kError;
  Location location;
  int length = 1;  // columns the caret line underlines
  std::string message;
  std::string help;         // an action to paste; empty = none
  std::string replacement;  // text that would be right at `location`; empty = none
  bool operator==(const Diagnostic&) const = default;

  // Compiled once, in diagnostic.cc: every function that returns a Result copies and destroys diagnostics.
  Diagnostic();
  Diagnostic(const Diagnostic&);
  Diagnostic(Diagnostic&&) noexcept;
  Diagnostic& operator=(const Diagnostic&);
  Diagnostic& operator=(Diagnostic&&) noexcept;
  ~Diagnostic();
};

using Diagnostics = std::vector<Diagnostic>;

}  // namespace distsetup

extern template class std::vector<distsetup::Diagnostic>;  // compiled once, in diagnostic.cc

namespace distsetup {

Diagnostic error(std::string_view code, Location location, std::string message, std::string help = "");
Diagnostic warning(std::string_view code, Location location, std::string message, std::string help = "");
Diagnostic note(std::string_view code, Location location, std::string message, std::string help = "");

bool has_error(const Diagnostics& diagnostics);

// All diagnostics as text, sorted by position, errors last:
//   error[DS0104]: unknown key 'gradient_acumulation'
//     --> run.yaml:12:3
//      |
//   12 |   gradient_acumulation: 8
//      |   ^^^^^^^^^^^^^^^^^^^^
//   help: did you mean 'gradient_accumulation'
// Source lines are read from `location.file` when it is readable, else left out. `colour` adds ANSI codes.
enum class Colour { kOff, kOn };
std::string format_diagnostics(const Diagnostics& diagnostics, Colour colour = Colour::kOff);

// A value, or errors; warnings may come with a value.
template <class T>
struct Result {
  std::optional<T> value;
  Diagnostics diagnostics;

  Result() = default;
  Result(T v) : value(std::move(v)) {}                  // NOLINT: implicit by design
  Result(Diagnostic d) : diagnostics{std::move(d)} {}   // NOLINT
  Result(Diagnostics d) : diagnostics(std::move(d)) {}  // NOLINT
  Result(T v, Diagnostics d) : value(std::move(v)), diagnostics(std::move(d)) {}

  bool ok() const { return value.has_value() && !has_error(diagnostics); }
  explicit operator bool() const { return ok(); }
  T& operator*() { return *value; }
  const T& operator*() const { return *value; }
  T* operator->() { return &*value; }
  const T* operator->() const { return &*value; }
};

void append(Diagnostics& to, Diagnostics from);

}  // namespace distsetup
