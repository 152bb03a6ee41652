// A shell script as the commands it would run: words with their quoting and place, assignments, pipes, here-documents, and the
// directives of a scheduler (#SBATCH, #PBS, #BSUB). This is the one reader of scripts: lint and convert look at what it returns.
// It runs nothing. parse_shell takes the text apart, as `bash -n` does; follow_shell (follow.h) then says what is known of variables
// and branches: `expanded`, `known` and `is_dead` below are empty until it has run.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distsetup::foreign {

// Bytes of the document's text.
struct TextSpan {
  size_t begin = 0, end = 0;
};

enum class ShellQuote { kNone, kSingle, kDouble };

struct WordPart {
  ShellQuote quote = ShellQuote::kNone;
  std::string text;  // without the quotes; backslashes resolved in kNone
  TextSpan span;     // of the contents
};

struct ShellWord {
  std::string text;  // without quotes; $NAME as written
  TextSpan span;
  std::vector<WordPart> parts;
};

struct HereDocument {
  TextSpan body;
  bool expands = false;   // the delimiter is not quoted
  std::string delimiter;  // EOF
};

struct ShellRedirection {
  std::string how;  // ">", ">>", "<", "<<<" …
  ShellWord target;
};

struct ShellAssignment {
  std::string name;
  ShellWord value;
  std::vector<ShellWord> array;  // NAME=( … )
  bool is_array = false, appends = false;
  TextSpan span;
  std::string known;  // the value with what is known of variables put in
};

struct ShellCommand {
  std::vector<ShellAssignment> assignments;  // before the first word, or all there is
  std::vector<ShellWord> words;
  std::vector<HereDocument> here;
  std::vector<ShellRedirection> redirections;
  std::string ends_with;  // "|", "&", "&&", "||", ";", "" (line end)
  bool reads_pipe = false;
  int depth = 0;  // inside bash -c '…' or $(…)
  bool in_substitution = false;
  bool in_control = false;          // begins behind if, while, until, !
  std::vector<ShellWord> expanded;  // the words with known variables put in, split, empty ones dropped
  bool is_dead = false;             // stands in a branch that the script's own settings do not take
  std::string undecided;            // a variable in it that branches gave different launch lines
};

// What holds commands together: if then elif else fi, while until for do done, case arm ;; esac, { } ( ) function, !; and "open" and
// "close" around the commands of a $( ) or a bash -c.
struct ControlWord {
  std::string word;
  size_t command = 0;            // index of the first command behind it; of "for" and "case" of the command that has their words
  std::vector<ShellWord> words;  // of an arm its patterns, of a function its name
  std::string ends_with;         // behind the last word of a compound command, as with a command
};

// What `bash -n` complains about; it stops at the first.
struct ShellMistake {
  TextSpan span;
  std::string message, help;
};

// A file that the script writes: cat <<EOF > file, echo "…" > file.
struct ScriptFile {
  std::string path, text;  // with known variables put in
  std::string spelled;     // the path where nothing is known of its variable: "$CONFIG"
  TextSpan body;
  bool expands = false;  // the shell puts variables in
};

// A variable that is set before the script starts: the env of a container; of a script that another one starts, what that one exports
// and the arguments it gives ("1", "2", "#"; "@" has all of them as `words`).
struct OuterVariable {
  std::string name, value;
  TextSpan span;                   // of the value; empty: it stands in another file
  bool is_known = true;            // false: it is set, and only the running script knows to what
  bool is_of_script = false;       // set by another script
  std::vector<std::string> words;  // of "@"
};

enum class Scheduler { kSlurm, kPbs, kLsf };

struct Directive {
  std::string name, value;  // long name without dashes: "ntasks-per-node"; of PBS and LSF as it is written: "l", "gpu"
  std::string spelled;      // "--ntasks_per_node"
  TextSpan span;            // of the option, without #SBATCH
  size_t line_end = 0;      // where its line ends
  bool is_late = false;     // behind the first command: SLURM and PBS do not see it
  bool is_of_more = false;  // of a later part of a heterogeneous job, behind `#SBATCH hetjob`
};

struct ShellScript {
  std::string_view text;  // of the whole document
  std::vector<ShellCommand> commands;
  std::vector<ControlWord> controls;
  std::vector<Directive> directives;  // of SLURM
  std::vector<Directive> pbs, lsf;
  TextSpan hetjob;  // `#SBATCH hetjob`, or packjob before 20.02; empty: all nodes of the job are of one kind
  std::string shebang;
  std::vector<OuterVariable> outer;
  std::vector<ShellMistake> mistakes;
  std::vector<ScriptFile> files;  // after follow_shell
  // Files that it sources and nobody has, with the place; after follow_shell.
  std::vector<std::pair<std::string, TextSpan>> not_here;

  const Directive* directive(std::string_view name) const;  // the last one that counts
  // The first NAME=…; nullptr when it is not assigned.
  const ShellAssignment* assignment(std::string_view name) const;
  bool has_outer(std::string_view name) const;  // with a value that is known
  bool has_arguments() const;                   // those it is started with are given
};

// The #SBATCH option whose value SLURM puts into a variable of the job ("SLURM_NNODES": "nodes"); empty: not one of those known here.
std::string_view option_behind(std::string_view variable);

// `range` of `text`. Contents of bash -c '…' and of $(…) are commands too, with depth and places in `text`.
ShellScript parse_shell(std::string_view text, TextSpan range);

}  // namespace distsetup::foreign
