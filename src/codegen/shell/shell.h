// A shell script as the commands it would run: words with their quoting and place, assignments, pipes, here-documents, and the
// directives of a scheduler (#SBATCH, #PBS, #BSUB). Good enough to reason about launch scripts, no shell: what depends on running the
// script (conditions, loops, values of variables that are not literals) is taken as written, every branch counts.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distsetup::lint {

// Bytes of the document's text.
struct Span {
  size_t begin = 0, end = 0;
};

enum class Quote { kNone, kSingle, kDouble };

struct WordPart {
  Quote quote = Quote::kNone;
  std::string text;  // without the quotes; backslashes resolved in kNone
  Span span;         // of the contents
};

struct ShellWord {
  std::string text;  // without quotes; $NAME as written
  Span span;
  std::vector<WordPart> parts;
};

struct HereDocument {
  Span body;
  bool expands = false;  // the delimiter is not quoted
};

struct Assignment {
  std::string name;
  ShellWord value;
  std::vector<ShellWord> array;  // NAME=( … )
  bool is_array = false, appends = false;
  Span span;
};

struct ShellCommand {
  std::vector<Assignment> assignments;  // before the first word, or all there is
  std::vector<ShellWord> words;
  std::vector<HereDocument> here;
  std::string ends_with;  // "|", "&", "&&", "||", ";", "" (line end)
  bool reads_pipe = false;
  int depth = 0;  // inside bash -c '…' or $(…)
  bool in_substitution = false;
  bool in_control = false;  // begins behind if, while, until, !
};

// if, then, elif, else, fi and !, outside of $( ) and bash -c.
struct Keyword {
  std::string word;
  size_t command = 0;  // index of the first command behind it
};

enum class Scheduler { kSlurm, kPbs, kLsf };

struct Directive {
  std::string name, value;  // long name without dashes: "ntasks-per-node"; of PBS and LSF as it is written: "l", "gpu"
  std::string spelled;      // "--ntasks_per_node"
  Span span;                // of the option, without #SBATCH
  size_t line_end = 0;      // where its line ends
  bool is_late = false;     // behind the first command: the scheduler does not see it
};

struct ShellScript {
  std::string_view text;  // of the whole document
  std::vector<ShellCommand> commands;
  std::vector<Keyword> keywords;
  std::vector<Directive> directives;  // of SLURM
  std::vector<Directive> pbs, lsf;
  std::string shebang;

  const Directive* directive(std::string_view name) const;  // the last one that counts
  // The first NAME=…; nullptr when it is not assigned.
  const Assignment* assignment(std::string_view name) const;
};

// `range` of `text`. Contents of bash -c '…' and of $(…) are commands too, with depth and places in `text`.
ShellScript parse_shell(std::string_view text, Span range);

// The words of a command with variables of known value spliced in: $ARGS, ${ARGS[@]}; places are those of the assignment.
std::vector<ShellWord> expand_words(const ShellScript& script, const std::vector<ShellWord>& words);
// The text with $NAME and ${NAME} replaced where NAME has a literal value, or one of such variables; ${NAME:-x} is x when it has none.
std::string literal(const ShellScript& script, std::string_view text);
// Without the commands of branches that cannot be taken with the script's own settings: if [[ $A == b ]] (also =, !=, -n, -z, of [ ]
// too) where A has a known value. What else a condition asks leaves all its branches in.
ShellScript taken_branches(const ShellScript& script);
// The options of a directive's line, `options` being what follows the mark (#SBATCH).
std::vector<Directive> read_directives(std::string_view text, Span options, Scheduler scheduler);
// Names that the text expands, with where; single-quoted parts are left out.
std::vector<std::pair<std::string, size_t>> expansions(std::string_view text, Span range);

}  // namespace distsetup::lint
