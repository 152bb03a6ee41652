// The shell tokenizer and what a line starts, on the scripts people write.
#include <catch2/catch.hpp>
#include <set>

#include "codegen/lint/lint.h"
#include "codegen/read/document.h"
#include "codegen/shell/expand.h"
#include "codegen/shell/follow.h"
#include "codegen/shell/launch_line.h"
#include "codegen/shell/shell.h"
#include "codegen/tables/kind.h"
#include "codegen/tables/name_table.h"

using namespace distsetup;
using namespace distsetup::foreign;

namespace {

ShellScript shell(std::string_view text) { return follow_shell(parse_shell(text, {0, text.size()})); }

// "a|b|c" of the words of a command.
std::string words(const ShellCommand& command) {
  std::string out;
  for (const ShellWord& word : command.words) out += (out.empty() ? "" : "|") + word.text;
  return out;
}

// What the last command gets, with a bar behind every word.
std::string last_command(const std::string& text) {
  std::string out;
  const ShellScript s = shell(text);
  for (const ShellWord& word : s.commands.back().expanded) out += word.text + "|";
  return out;
}

std::string kind_of(std::string_view path, std::string_view text) {
  const Result<DocumentPointer> document = parse_document(embedded_templates(), std::string(path), text);
  const bool is_known = document.ok() && (*document)->kind != nullptr;
  return is_known ? (*document)->kind->name : "none";
}

}  // namespace

TEST_CASE("lint shell: words quotes and continuations", "[lint]") {
  const ShellScript s = shell("torchrun \\\n  --nnodes=2 'a b' \"c $D\" e\\ f \"x\"'y'z # comment\n");
  REQUIRE(s.commands.size() == 1);
  CHECK(words(s.commands[0]) == "torchrun|--nnodes=2|a b|c $D|e f|xyz");
  const ShellWord& quoted = s.commands[0].words[3];
  REQUIRE(quoted.parts.size() == 1);
  CHECK(quoted.parts[0].quote == ShellQuote::kDouble);
  CHECK(s.text.substr(quoted.parts[0].span.begin, 4) == "c $D");
}

TEST_CASE("lint shell: separators pipes and control words", "[lint]") {
  const ShellScript s = shell("a; b && c || d | e & f\nif g; then h; fi\n{ i; }\n(j)\n");
  std::string all;
  for (const ShellCommand& command : s.commands) all += words(command) + command.ends_with + " ";
  CHECK(all == "a; b&& c|| d| e& f g; h; i; j ");
  CHECK(s.commands[4].reads_pipe);
  CHECK_FALSE(s.commands[5].reads_pipe);
  CHECK(s.commands[6].in_control);
}

TEST_CASE("lint shell: assignments arrays and their use", "[lint]") {
  const std::string text =
      "export A=1 B=\"two\"\nARGS=(--x 1 # c\n --y 'z w')\nOLD=\"--p 3 \\\n --q 4\"\nC=5 run ${ARGS[@]} $OLD --a $A --n ${N:-7}\n";
  const ShellScript s = shell(text);
  const ShellCommand& run = s.commands.back();
  CHECK(words(run) == "run|${ARGS[@]}|$OLD|--a|$A|--n|${N:-7}");
  CHECK(last_command(text) == "run|--x|1|--y|z w|--p|3|--q|4|--a|1|--n|7|");
  CHECK(last_command(text + "run $A/${B}/${N:-7}/$UNKNOWN") == "run|1/two/7/$UNKNOWN|");
  REQUIRE(s.assignment("C") != nullptr);
  CHECK(s.assignment("C")->value.text == "5");
}

TEST_CASE("lint shell: variables of variables and of defaults", "[lint]") {
  const std::string s(
      "SIZE=${SIZE:-4}\nTRAINER=${TRAINER:-${OTHER:-train.py}}\nDATA=${DATA:-}\nBOTH=$SIZE/"
      "$TRAINER\nNODES=$SLURM_NNODES\nLITERAL='$SIZE'\n"
      "A=${B:-1}\nB=${A:-2}\nDIR='a b'\nMORE=(--seed 1)\nWORDS=(--batch \"$SIZE\" \"${MORE[@]}\" --to \"$DIR\" $DIR)\nrun "
      "\"${WORDS[@]}\"\n");
  CHECK(last_command(s + "show \"$SIZE\" $TRAINER /$DATA/ $DATA \"$DATA\" $BOTH") == "show|4|train.py|//||4/train.py|");
  CHECK(last_command(s + "show \"$NODES\" \"$LITERAL\" ${A} ${B}") == "show|$NODES|$LITERAL|1|1|");
  CHECK(last_command(s + "show \"${SIZE:-${X}\"") == "show|${SIZE:-${X}\"|");  // does not close
  CHECK(last_command(s) == "run|--batch|4|--seed|1|--to|a b|a|b|");
}

TEST_CASE("lint shell: words as the shell hands them on", "[lint]") {
  CHECK(last_command(
            "read -r -d '' JOB <<EOF\nopenrlhf.cli.train_dpo \\\n  --zero_stage $Z \\\n  --bf16\nEOF\ndeepspeed --module $JOB\n") ==
        "deepspeed|--module|openrlhf.cli.train_dpo|--zero_stage|$Z|--bf16|");
  CHECK(last_command("HOST=$(hostname --ip-address)\nrun --master $HOST --port=1\n") ==
        "run|--master|$(hostname --ip-address)|--port=1|");
  CHECK(last_command("N=2\nG=$((N * 4))\nrun $G $((G/N)) $((SLURM_NNODES*8)) $(( N > 1 ? 7 : 9 ))\n") ==
        "run|8|4|$((SLURM_NNODES*8))|7|");
  CHECK(last_command("#SBATCH --nodes=2\nrun $((SLURM_NNODES*8)) $SLURM_NNODES\n") == "run|16|$SLURM_NNODES|");
  CHECK(last_command(": ${TP:=4}\n: \"${PP:=$TP}\"\nrun $TP $PP ${TP:+--x} ${NONE:+--y}\n") == "run|4|4|--x|");
  CHECK(last_command("F=a/b.json\nrun ${F##*/} ${F%.json} ${F/a/c} ${#F} ${F:0:1}\n") == "run|b.json|a/b|c/b.json|8|a|");
  // Values that grow: by themselves, in a branch, and by thousands of lines.
  CHECK(last_command("C=(a b)\nC+=(\"${C[@]}\" c)\nx \"${C[@]}\"\n") == "x|a|b|a|b|c|");
  CHECK(last_command("T=a\nT+='b c'\nT+=' d'\nx $T\n") == "x|ab|c|d|");
  CHECK(last_command("C=(a)\nif [ 1 = 1 ]; then C+=(b); else C+=(c); fi\nx \"${C[@]}\"\n") == "x|a|b|");
  std::string grows = "C=(a)\n";
  for (int i = 0; i < 1500; ++i) grows += "C+=(b)\n";
  CHECK(last_command(grows + "x ${C[0]}\n") == "x|a|");
  CHECK(last_command("C=(torchrun --n 1)\nC=(srun \"${C[@]}\" t.py)\nC+=(--x)\n\"${C[@]}\" ${C[0]} ${#C[@]}\n") ==
        "srun|torchrun|--n|1|t.py|--x|srun|6|");
  CHECK(last_command("IFS=, read -ra L <<< \"a b\"\nrun \"${L[@]}\"\n") == "run|a b|");
  CHECK(last_command("G=0,1,3\nIFS=',' read -ra L <<< \"$G\"\nrun ${#L[@]} ${L[2]}\n") == "run|3|3|");
  CHECK(last_command("IFS=: read -r H P <<< \"n0:29511\"\nread -r A B <<< ' 1  2 3 '\nrun $H $P $A \"$B\" ${C}\n") ==
        "run|n0|29511|1|2 3|${C}|");
  CHECK(last_command("IFS=', '\nread -r A B C D <<< 'a ,b,,c'\nIFS=$(x) read -r H P <<< 'a b'\nrun $A $B /$C/ $D $H\n") ==
        "run|a|b|//|c|$H|");
  CHECK(last_command("X=$(cat <<EOF\n--a 1\nEOF\n)\nrun $X\n") == "run|--a|1|");
  CHECK(last_command("A=1\nf() { A=2; }\nrun $A; f; run $A\n") == "run|2|");
  CHECK(last_command("A=1\n(A=2)\nB=$A; A=3 x\nrun $A $B\n") == "run|1|1|");
  // Branches that nothing decides: what they agree on.
  CHECK(last_command("A='--x 1'\nif $U; then A=\"$A --y\"; fi\nrun $A\n") == "run|--x|1|--y=${A:+}|");
  CHECK(last_command("if $U; then A='--x 1 --y 2 --z'; else A='--z --x 3 --y 2'; fi\nrun $A\n") == "run|--y|2|--z|--x=$A|");
  CHECK(last_command("A=\nif $U; then A=--y; fi\nif $V; then A=\"$A --z\"; fi\nrun $A\n") == "run|--y=${A:+}|--z=${A:+}|");
  CHECK(last_command("A=(--x 1)\ncase $U in a) A+=(--y 2) ;; b) A+=(--y 3 --z) ;; esac\nrun \"${A[@]}\"\n") ==
        "run|--x|1|--y=${A:+}|--z=${A:+}|");
  CHECK(last_command("if $U; then A='srun torchrun'; else A=torchrun; fi\nrun $A\n") ==
        "run|torchrun|");  // and A is said to be undecided
  CHECK(last_command("if $U; then A='a b'; else A=b; fi\nrun $A\n") == "run|$A|");
  CHECK(last_command("if $U; then A=1; else A=2; fi\nrun $A\n") == "run|$A|");
  CHECK(last_command("A=1\nwhile [[ $# -gt 0 ]]; do case $1 in --a) A=$2 ;; esac; shift; done\nrun $A\n") == "run|1|");
  CHECK(last_command("S=7b\ncase $S in 13b) L=40 ;; 7b|8b) L=32 ;; *) L=1 ;; esac\nrun $L\n") == "run|32|");
  CHECK(last_command("for L in 16 32; do x; done\nrun $L\nfor L in 8; do run $L; done\n") == "run|8|");
  // Values that double end.
  std::string doubling = "A='x y'\n";
  for (int i = 0; i < 40; ++i) doubling += "A=\"$A $A\"\n";
  CHECK(last_command(doubling + "run $A\n").size() < 100'000);
}

TEST_CASE("lint shell: files that a script writes", "[lint]") {
  const ShellScript s = shell(
      "J=ds.json\nS=3\ncat <<EOT > $J\n{\"stage\": $S, \"x\": \"\\$HOME\"}\nEOT\necho '{\"a\": 1}' > b.json\ncat <<'E' | tee "
      "c\nx\nE\n");
  REQUIRE(s.files.size() == 3);
  CHECK(s.files[2].path == "c");
  CHECK(s.files[2].text == "x\n");
  CHECK(s.files[0].path == "ds.json");
  CHECK(s.files[0].text == "{\"stage\": 3, \"x\": \"$HOME\"}\n");
  CHECK(s.files[1].text == "{\"a\": 1}");
}

TEST_CASE("lint shell: what bash -n refuses", "[lint]") {
  const auto mistake = [](const std::string& text) {
    const ShellScript s = shell(text);
    return s.mistakes.empty() ? std::string() : std::string(s.text.substr(s.mistakes[0].span.begin, 4));
  };
  CHECK(mistake("a\nb 'c\nd\n") == "'c\nd");
  CHECK(mistake("A=\"x \\\n  --y\nB=\"${C}/d\"\n") == "\"x \\");  // where the text begins that swallows the next quote
  CHECK(mistake("P=<path>\n") == "<pat");
  CHECK(mistake("P=<the path>/vocab.json\n") == "<the");
  CHECK(mistake("if a; then b\n") == "if a");
  CHECK(mistake("a\nfi\n") == "fi\n");
  CHECK(mistake("a > \n") == "> \n");
  CHECK(mistake("a && || b\n") == "|| b");
  CHECK(mistake("a $(b\n") == "$(b\n");
  for (const char* right :
       {"if a; then b; elif c; then d; else e; fi | tee f\n", "case $a in (b|c) d ;; *) ;; esac\n",
        "f() { a; }\nfunction g { b; }\nf && g\n", "for ((i = 0; i < 3; i++)); do a; done > b 2>&1 &\n",
        "[[ $a =~ ^(b|c)$ && ! -f d ]] || { e; }\n", "while read -r a; do b; done < <(c)\n", "cat <<EOF\nit's\nEOF\n",
        "a=$(cat <<EOF\nit's )\nEOF\n)\n", "(( a << 2 ))\n", "echo \"$(echo \"a'b\")\" ${c:-'d'} # it's\n", "a=(b # it's\n c)\n",
        "time { a; }\n", "! a | b\n", "a &>> b; c >&2 2>/dev/null <<< d\n", "echo a\\'b\n", "case a in esac\n", "for a do b; done\n",
        "for a\ndo b; done\n", "select a do b; done\n"}) {
    INFO(right);
    CHECK(mistake(right).empty());
  }
}

TEST_CASE("lint shell: branches that a script's own settings take", "[lint]") {
  const auto run = [](const std::string& condition, const std::string& settings = "A=yes\nE=\n") {
    const ShellScript s = shell(settings + "if " + condition + "; then one; else two; fi\nthree\n");
    std::string out;
    for (const ShellCommand& command : s.commands) {
      if (command.is_dead) continue;
      const std::string name = command.words.empty() ? "" : command.words[0].text;
      if (name == "one" || name == "two" || name == "three") out += name + " ";
    }
    return out;
  };
  CHECK(run("[[ $A == yes ]]") == "one three ");
  CHECK(run("[[ $A == no ]]") == "two three ");
  CHECK(run("[ \"$A\" = yes ]") == "one three ");
  CHECK(run("[ \"$A\" != yes ]") == "two three ");
  CHECK(run("[[ $A == y* ]]") == "one three ");
  CHECK(run("[[ $A == \"y*\" ]]") == "two three ");
  CHECK(run("[[ -n $E ]]") == "two three ");
  CHECK(run("[[ -z $E ]]") == "one three ");
  // What only the running script knows: every branch counts.
  CHECK(run("[[ $UNKNOWN == yes ]]") == "one two three ");
  CHECK(run("[[ $A == yes && $B == 1 ]]") == "one two three ");
  CHECK(run("[[ $A == no && $B == 1 ]]") == "two three ");
  CHECK(run("[ $A = no ] || [[ ( $A == yes ) ]]") == "one three ");
  CHECK(run("! [[ $A == yes ]]") == "two three ");
  CHECK(run("[ \"${PROFILING:-0}\" -eq 1 ]") == "two three ");
  CHECK(run("(( 3 * 2 > 5 ))") == "one three ");
  CHECK(run("[[ $1 != slurm ]]") == "one two three ");
  CHECK(run("grep -q yes file") == "one two three ");
  const auto words_of = [](const std::string& text) {
    std::string out;
    for (const ShellCommand& command : shell(text).commands) out += command.is_dead ? "" : words(command) + ";";
    return out;
  };
  CHECK(words_of("A=2\nif [[ $A == 1 ]]; then a; elif [[ $A == 2 ]]; then b; elif [[ $A == 2 ]]; then c; else d; fi\n").find("b;") !=
        std::string::npos);
  const std::string chain = words_of("A=2\nif [[ $A == 1 ]]; then a; elif [[ $A == 2 ]]; then b; else d; fi\n");
  CHECK(chain.find("a;") == std::string::npos);
  CHECK(chain.find("d;") == std::string::npos);
  const std::string nested = words_of("A=1\nif [[ $A == 2 ]]; then if [[ $A == 1 ]]; then a; fi; else b; fi\n");
  CHECK(nested.find("a;") == std::string::npos);
  CHECK(nested.find("b;") != std::string::npos);
  for (const char* broken : {"fi", "then", "else", "elif x", "if", "if x; then", "fi; fi; if"}) CHECK_NOTHROW(shell(broken));
}

TEST_CASE("lint shell: commands inside bash -c and substitutions keep their places", "[lint]") {
  const std::string text = "srun bash -lc 'cd /x && torchrun --nnodes=2 t.py'\nH=$(scontrol show hostnames \"$L\" | head -n 1)\n";
  const ShellScript s = shell(text);
  std::string all;
  for (const ShellCommand& command : s.commands) {
    if (!command.words.empty()) all += command.words[0].text + std::to_string(command.depth) + (command.in_substitution ? "s " : " ");
  }
  CHECK(all == "cd1 torchrun1 srun0 scontrol1s head1s ");
  CHECK(text.substr(s.commands[1].words[0].span.begin, 8) == "torchrun");
}

TEST_CASE("lint shell: here-documents", "[lint]") {
  const ShellScript s = shell("cat <<EOF >f\n$A line\nEOF\nsrun bash <<-'END'\n\techo $B\n\tEND\nlast\n");
  REQUIRE(s.commands.size() == 4);
  REQUIRE(s.commands[0].here.size() == 1);
  CHECK(s.commands[0].here[0].expands);
  CHECK(s.text.substr(s.commands[0].here[0].body.begin, 7) == "$A line");
  REQUIRE(s.commands[1].here.size() == 1);
  CHECK_FALSE(s.commands[1].here[0].expands);
  CHECK(words(s.commands[2]) == "echo|$B");  // what bash is given is a script too
  CHECK(words(s.commands[3]) == "last");
}

TEST_CASE("lint shell: directives in every spelling", "[lint]") {
  const ShellScript s = shell(
      "#!/bin/bash\n#SBATCH --nodes=2 --exclusive\n#SBATCH -N 4\n#SBATCH -t01:00:00 # one hour\n#SBATCH --gres gpu:8\necho\n#SBATCH "
      "--mem=0\n");
  REQUIRE(s.directives.size() == 6);
  CHECK(s.directive("nodes")->value == "4");
  CHECK(s.directive("time")->value == "01:00:00");
  CHECK(s.directive("gres")->value == "gpu:8");
  CHECK(s.directive("exclusive") != nullptr);
  CHECK(s.directive("mem") == nullptr);
  CHECK(s.directives[5].is_late);
}

TEST_CASE("lint shell: broken text is read to its end", "[lint]") {
  for (const std::string_view text :
       {"'",   "\"$(", "a <<", "a <<EOF\nx",           "${",   "$(",     "(((",      "A=(",     "bash -c '", "`", "\\",
        "a |", "&&",   "<<<",  "bash -c \"bash -c 'x", "a\vb", "a \f b", "A=(b; c)", "A=(< d)", "A=(&"}) {
    INFO(text);
    CHECK_NOTHROW(shell(text));
  }
  CHECK(words(shell(std::string_view("a \0=4 b", 7)).commands.at(0)) == "a|=4|b");
  CHECK(words(shell("a b$[1 + c").commands.at(0)) == "a|b$[1 + c");  // never closed
}

TEST_CASE("lint stages: who starts whom with which options", "[lint]") {
  const auto stages = [](const std::string& text) {
    const ShellScript s = shell(text);
    std::string out;
    for (const LaunchLine& line : find_lines(s)) {
      for (const LaunchStage& stage : line.stages) {
        out += stage.name + "(";
        for (const LaunchOption& option : stage.options) out += option.name + (option.has_value ? "=" + option.value : "") + " ";
        out += ") ";
      }
    }
    return out;
  };
  CHECK(stages("srun -N 2 -n2 --label torchrun --standalone --nproc-per-node 8 train.py --lr 1e-4 --bf16\n") ==
        "srun(N=2 n=2 label ) torchrun(standalone nproc_per_node=8 ) train.py(lr=1e-4 bf16 ) ");
  CHECK(stages("python -m torch.distributed.run --nnodes=1 -m pkg.train --x\n") ==
        "torch.distributed.run(nnodes=1 m ) pkg.train(x ) ");
  CHECK(stages("accelerate launch --config_file a.yaml --use_fsdp train.py -o out\n") ==
        "launch(config_file=a.yaml use_fsdp ) train.py(o=out ) ");
  CHECK(stages("deepspeed --module openrlhf.cli.train_sft --ds.zero_stage 3\n") ==
        "deepspeed(module ) openrlhf.cli.train_sft(ds.zero_stage=3 ) ");
  CHECK(stages("srun \"$PY\" -m torch.distributed.run --nnodes=2 t.py\n") == "srun() torch.distributed.run(nnodes=2 ) t.py() ");
  CHECK(stages("A=\"torchrun --nnodes=2\"\nB=\"t.py --x 1\"\nC=\"$A $B\"\nsrun $C\n") == "srun() torchrun(nnodes=2 ) t.py(x=1 ) ");
  CHECK(stages("A=\"$B\"\nB=\"$A\"\nsrun $A\n") == "srun() ");
  CHECK(stages("N=4\nmpirun -np $N -x A=1 ./run.sh\n") == "mpirun(np=4 x=A=1 ) ./run.sh() ");
  CHECK(stages("echo torchrun t.py\n").empty());  // it is shown
  CHECK(stages("ls -l\n").empty());
  CHECK(stages("python -c 'import torch'\nV=$(python3 -c 'print(1)' --x)\n").empty());  // no training
  CHECK(stages("C='cd /x && torchrun t.py --y 1; echo done'\neval \"$C\" $C\n") == "torchrun() t.py(y=1 ) ");
}

TEST_CASE("lint kinds: files are told apart by what they say", "[lint]") {
  CHECK(kind_of("x.json", "{\"zero_optimization\": {}, \"train_batch_size\": 8}") == "deepspeed");
  CHECK(kind_of("x.json", "{\"train_batch_size\": 8, \"train_batch_size\": 8}") == "deepspeed");
  CHECK(kind_of("x.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n") == "accelerate");
  CHECK(kind_of("x.yaml", "output_dir: o\nper_device_train_batch_size: 1\n") == "trainer");
  CHECK(kind_of("x.json", "{\"version\": 2, \"transformer_layer_cls_to_wrap\": [\"A\"]}") == "trainer-fsdp");
  CHECK(kind_of("x", "[job]\ndump_folder = \"o\"\n") == "torchtitan");
  CHECK(kind_of("x.yaml", "base_model: m\nmicro_batch_size: 1\ndatasets: []\n") == "axolotl");
  CHECK(kind_of("x.yaml", "stage: sft\nfinetuning_type: full\ntemplate: llama3\noutput_dir: o\n") == "llamafactory");
  CHECK(kind_of("x.yaml", "finetuning_type: lora\noutput_dir: o\nlearning_rate: 1.0\nnum_train_epochs: 1\nlogging_steps: 1\n") ==
        "llamafactory");
  CHECK(kind_of("x.yaml", "optimizer:\n  lr: 1.0\nmicro_batch_size: 1\n") == "none");
  CHECK(kind_of("x.yaml", "trainer:\n  devices: 8\n") == "lightning");
  CHECK(kind_of("x.yaml", "distributed:\n  strategy: fsdp2\n") == "automodel");
  CHECK(kind_of("x.yaml", "training:\n  epochs: 3\n") == "config-yaml");  // not torchtitan, which is TOML
  CHECK(kind_of("x.yaml", "training:\n  epochs: 3\ndistributed:\n  use_fsdp: true\n") == "config-yaml");
  CHECK(kind_of("x.yaml", "version: '2'\napis: []\nproviders: {}\n") == "llama-stack");
  CHECK(kind_of("x.yaml", "---\napiVersion: batch/v1\nkind: Job\n") == "kubernetes");
  CHECK(kind_of("x.yaml", "resources:\n  accelerators: H100:8\nrun: |\n  x\n") == "skypilot");
  CHECK(kind_of("job", "#!/bin/bash\n#SBATCH --nodes=2\n") == "sbatch");
  CHECK(kind_of("x.sh", "torchrun train.py\n") == "shell");
  CHECK(kind_of("x", "srun torchrun train.py\n") == "shell");
  CHECK(kind_of("x", "--tensor-model-parallel-size 2\n--bf16\n") == "arguments");
  CHECK(kind_of("hostfile", "a slots=8\nb slots=8\n") == "hostfile");
  CHECK(kind_of(".env", "NCCL_DEBUG=INFO\n") == "environment");
  CHECK(kind_of("requirements.txt", "torch==2.9.0\n") == "requirements");
  CHECK(kind_of("plan.json", "{\"schema_version\": 1, \"verdict\": \"fits\"}") == "plan");
  CHECK(kind_of("x.sbatch", "srun torchrun train.py\n") == "sbatch");
  CHECK(kind_of("x.txt", "Dear reader\n") == "none");
  CHECK(kind_of("x", "") == "none");
}

TEST_CASE("lint kinds: a few keys in common are not enough", "[lint]") {
  CHECK(kind_of("x.yaml", "num_nodes: 2\nblocks: 4\nwidth: 8\n") == "none");  // not a SkyPilot task
  CHECK(kind_of("x.yaml", "train_batch_size: 8\nheads: 4\nwidth: 8\nblocks: 2\n") == "none");
  CHECK(kind_of("x.yaml", "trainer:\n  project: p\n  rollouts: 4\n  devices: 8\n") == "none");  // its section is not Lightning's
  CHECK(kind_of("x.toml", "[project]\nname = \"x\"\n[tool.ruff]\nline-length = 88\n") == "python-project");
  CHECK(kind_of("x.yaml", "model_name_or_path: m\ndataset_name: d\nlearning_rate: 1.0\n") == "trl");
  CHECK(kind_of("x.yaml", "output_dir: o\ndataset_name: d\nmy_key: 1\nlearning_rate: 1.0\n") == "trainer");
  CHECK(kind_of("x.yaml", "step_scheduler:\n  global_batch_size: 8\nrng:\n  seed: 1\nmodel: {}\n") == "automodel");
  CHECK(kind_of("x.yaml", "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n") == "kubernetes");
}

TEST_CASE("lint kinds: formats of other tools are named", "[lint]") {
  CHECK(kind_of("x.yml", "{\n  # stages\n  \"pipe-parallel-size\": 2,\n  \"num-layers\": 4,\n}\n") == "gpt-neox");
  CHECK(kind_of("x.yaml", "out_dir: o\ntrain:\n  epochs: 1\neval:\n  interval: 10\nnum_nodes: 1\n") == "litgpt");
  CHECK(kind_of("x.yaml", "save_folder: s\ndevice_train_microbatch_size: 2\nmax_duration: 10\n") == "olmo");
  CHECK(kind_of("x.yaml", "train_loader: {}\nmax_duration: 1ep\nfsdp_config: {}\n") == "composer");
  CHECK(kind_of("x.yaml", "general: {}\nparallelism:\n  dp: 2\ntokens: {}\n") == "nanotron");
  CHECK(kind_of("x.yaml", "model:\n  model_name: m\ntraining:\n  trainer_type: TRL_SFT\n") == "oumi");
  CHECK(kind_of("x.yaml", "data: {}\nactor_rollout_ref: {}\ntrainer:\n  nnodes: 1\n") == "verl");
  CHECK(kind_of("x.yaml", "model:\n  _component_: a.b\nepochs: 1\n") == "torchtune");
  CHECK(kind_of("x.yaml", "services:\n  web:\n    image: i\n") == "compose");
  CHECK(kind_of("x.yaml", "stage: pt\nfinetuning_type: full\ntensor_model_parallel_size: 2\n") == "llamafactory-mca");
  CHECK(kind_of("x.yaml", "a:\n{{- if .Values.gpu }}\nb: 1\n") == "template");
  CHECK(kind_of("x.yaml", "save_folder: s\ndevice_train_microbatch_size: 4\nmax_duration: 5ba\ntrain_loader: {}\n") == "composer");
  CHECK(kind_of("x.yaml", "save_folder: s\ndevice_train_microbatch_size: 4\nmax_duration: 5\nmodel: {d_model: 8}\n") == "olmo");
  CHECK(kind_of("x.yaml", "language_model: {num_layers: 4}\nvocab_file: v\nmerge_file: m\nsave: s\n") == "megatron-yaml");
  CHECK(kind_of("x.yaml", "_wandb: {value: {}}\narchitectures: {value: a}\nmodel_type: {value: b}\n") == "wandb-run");
  CHECK(kind_of("x.yaml", "model_id_or_path: m\nrun_dir: r\nbatch_size: 1\nmax_steps: 3\nseed: 0\n") == "mistral-finetune");
  const std::vector<LintFile> files = {{"x.yaml", "services:\n  web:\n    image: i\n"}};
  const LintReport report = lint_files(files, {});
  REQUIRE(report.unreadable.size() == 1);
  CHECK(report.unreadable[0].message == "the file is a Compose file of containers, which distsetup does not read");
}

TEST_CASE("lint kinds: the table has every kind that code asks for, and what it names", "[lint]") {
  const FileKinds& kinds = built_in_kinds();
  for (const std::string_view name : file_kind::kAll) {
    INFO(name);
    CHECK(kinds.find(name) != nullptr);
  }
  std::set<std::string> names;
  for (const FileKind& kind : kinds.all) {
    INFO(kind.name);
    CHECK(names.insert(kind.name).second);
    CHECK((kind.within.empty() || kinds.find(kind.within) != nullptr));
    CHECK((kind.names.empty() || load_name_table(embedded_templates(), kind.names).ok()));
    CHECK((kind.has_lint_rules || kind.is_foreign || !kind.instead.empty()));
    const bool is_named =
        ((kind.is_foreign && kind.form == KindForm::kLines) || kind.form == KindForm::kScript) && !kind.file_names.empty();
    const bool is_marked = is_named || !kind.keys.empty() || !kind.decided_by.empty() || !kind.lines.empty() || !kind.words.empty() ||
                           kind.every_line != LineShape::kNone || kind.form == KindForm::kToml || kind.form == KindForm::kArguments;
    CHECK(is_marked);
  }
}

TEST_CASE("lint kinds: a table of one's own adds a kind", "[lint]") {
  TemplateSet templates = embedded_templates();  // shares what was read so far
  for (auto& [path, text] : templates.files) {
    if (path == "_kinds.yaml") text += "  - {name: my-tool, describes: a configuration of mine, form: tree, keys: [ring-size]}\n";
  }
  const Result<DocumentPointer> document = parse_document(templates, "x.yaml", "ring-size: 2\n");
  REQUIRE(document.ok());
  CHECK((*document)->is("my-tool"));
  CHECK(kind_of("x.yaml", "ring-size: 2\n") == "none");
}
