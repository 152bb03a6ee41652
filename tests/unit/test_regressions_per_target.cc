// Mistakes of generators, by number, held against every target there is, so that a new one is held against them too: 2 a flag that the
// started program does not take (lint knows the flags of every launcher), 8 the devices that a scheduler shows renumbered, 9 more
// processes than GPUs, 10 a node's number that is the same on two nodes, 11 another configuration than the one beside the script, 15
// one stream for everything under FSDP, 28 a log folder that nobody makes, 48 a secret in a file, 49 rank 0 on a host that nobody
// chose.
#include <algorithm>
#include <catch2/catch.hpp>
#include <regex>

#include "codegen/job/secrets.h"
#include "codegen/lint/lint.h"
#include "support/every_target.h"

using namespace distsetup;

namespace {

constexpr int kGpus = 8;

bool ends_in(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_plan(const Artifact& file) { return file.path == "plan.json"; }

// The largest number behind `pattern` (one group); 0: it is not there. "$gpus_per_node" and the like count as a node's GPUs.
int number(const std::string& text, const std::string& pattern) {
  int most = 0;
  const std::regex wanted(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), wanted), end; it != end; ++it) {
    const std::string found = (*it)[1];
    most = std::max(most, found.find_first_not_of("0123456789") == std::string::npos ? std::stoi(found) : kGpus);
  }
  return most;
}

}  // namespace

TEST_CASE("regressions per target: every target is held against them") {
  const size_t all = target_names(embedded_templates()).size(), several = emit_every_target(4).size(),
               one = emit_every_target(1).size();
  CHECK(several + refusals_of_targets().size() == all);
  CHECK(one == all);
}

TEST_CASE("regression 2 per target: no launcher is given a flag that it does not take") {
  for (const int nodes : {1, 4}) {
    for (const EmittedTarget& one : emit_every_target(nodes)) {
      std::vector<LintFile> files;
      for (const Artifact& file : one.files) {
        if (!is_plan(file) && is_for_lint(file)) files.push_back({file.path, file.text});
      }
      const LintReport report = lint_files(files, {});
      for (const LintFinding& finding : report.findings) {
        CAPTURE(one.target, finding.diagnostic.code, finding.diagnostic.message, finding.diagnostic.location.line);
        const bool is_error = finding.diagnostic.severity == Severity::kError;
        CHECK_FALSE((is_error && (finding.bites == "parse" || finding.bites == "start")));
      }
    }
  }
}

TEST_CASE("regression 9 per target: as many processes as GPUs") {
  const std::string count = "[= ]\"?([0-9]+|\\$[A-Za-z_{}]+)";
  for (const int nodes : {1, 4}) {
    for (const EmittedTarget& one : emit_every_target(nodes)) {
      for (const Artifact& file : one.files) {
        if (is_plan(file) || ends_in(file.path, ".json")) continue;
        const int tasks = std::max(1, number(file.text, "--(?:ntasks-per-node|ppn|tasks_per_host)" + count));
        const int started = std::max(1, number(file.text, "--nproc[-_]per[-_]node" + count));
        CAPTURE(one.target, file.path, tasks, started);
        CHECK(tasks * started <= kGpus);
      }
    }
  }
}

TEST_CASE("regression 10 per target: a node's number comes from outside") {
  const std::regex fixed("(node[-_]rank|machine[-_]rank|NODE_RANK)[=: ]+\"?[0-9]");
  for (const EmittedTarget& one : emit_every_target(4)) {
    for (const Artifact& file : one.files) {
      if (is_plan(file)) continue;
      std::smatch found;
      std::string text = std::regex_replace(file.text, std::regex("(^|\n)\\s*#[^\n]*"), "$1");  // an example in a comment is none
      if (ends_in(file.path, "accelerate.yaml")) {
        // accelerate wants the key; what starts it says the number over it.
        const bool is_overridden = std::any_of(one.files.begin(), one.files.end(), [](const Artifact& other) {
          return other.text.find("--machine_rank \"$NODE_RANK\"") != std::string::npos;
        });
        CAPTURE(one.target);
        CHECK(is_overridden);
        continue;
      }
      const bool is_fixed = std::regex_search(text, found, fixed);
      CAPTURE(one.target, file.path, is_fixed ? found.str() : "");
      CHECK_FALSE(is_fixed);
      // A number of the task that is expanded before the task exists is the same on every node.
      CHECK_FALSE(std::regex_search(file.text, std::regex("--node[-_]rank=\"?\\$SLURM_(PROCID|NODEID)")));
    }
  }
}

TEST_CASE("regression 28 per target: a folder for logs is made or is not needed") {
  const std::regex log("#(?:SBATCH --(?:output|error)=|PBS -[oe] |BSUB -[oe] )(\\S+)");
  for (const EmittedTarget& one : emit_every_target(4)) {
    for (const Artifact& file : one.files) {
      for (std::sregex_iterator it(file.text.begin(), file.text.end(), log), end; it != end; ++it) {
        CAPTURE(one.target, file.path, (*it)[1].str());
        CHECK((*it)[1].str().find('/') == std::string::npos);  // the scheduler writes before any line of the script runs
      }
    }
  }
}

TEST_CASE("regression 49 per target: rank 0 is on the host that the plan's files name") {
  // A rendezvous that elects (c10d, etcd) may give rank 0 to any host, and its files are then there.
  const std::regex elected("--rdzv[-_](?:backend|endpoint|id)");
  int with_address = 0;
  for (const EmittedTarget& one : emit_every_target(4)) {
    for (const Artifact& file : one.files) {
      if (is_plan(file)) continue;
      CAPTURE(one.target, file.path);
      CHECK_FALSE(std::regex_search(file.text, elected));
      const bool starts_torchrun = file.text.find("torchrun --nnodes=") != std::string::npos;
      const bool has_address = std::regex_search(file.text, std::regex("--master[-_]addr|MASTER_ADDR|main_process_ip"));
      with_address += has_address ? 1 : 0;
      if (starts_torchrun && file.text.find("--standalone") == std::string::npos) CHECK(has_address);
    }
  }
  CHECK(with_address >= 15);
}

TEST_CASE("regression 8 per target: which devices a rank sees is the scheduler's word") {
  const std::regex renumbered("(^|[\\s\"'])(export +)?(CUDA|HIP|ROCR)_VISIBLE_DEVICES[=:](?!\\$\\{[A-Z]+_VISIBLE_DEVICES:-)");
  for (const int nodes : {1, 4}) {
    for (const EmittedTarget& one : emit_every_target(nodes)) {
      for (const Artifact& file : one.files) {
        CAPTURE(one.target, file.path);
        CHECK_FALSE(std::regex_search(file.text, renumbered));
      }
    }
  }
}

TEST_CASE("regression 11 per target: a script starts with the files beside it") {
  int with_files = 0;
  for (const int nodes : {1, 4}) {
    for (const EmittedTarget& one : emit_every_target(nodes)) {
      std::string scripts;
      for (const Artifact& file : one.files) {
        if (file.executable || ends_in(file.path, ".service")) scripts += file.text + "\n";
      }
      const bool is_in_its_folder = std::regex_search(scripts, std::regex("\ncd (-- )?\"\\$(here|\\()"));
      const std::string commands = std::regex_replace(scripts, std::regex("(^|[ \n])#[^\n]*"), "$1");
      if (scripts.empty()) continue;  // a manifest or a job script that holds everything itself
      for (const Artifact& file : one.files) {
        if (file.executable || is_plan(file) || ends_in(file.path, ".service") || file.path.find('/') != std::string::npos) continue;
        CAPTURE(one.target, file.path);
        const std::string module = file.path.substr(0, file.path.rfind('.'));  // torchtitan names a Python module
        bool is_named = scripts.find(file.path) != std::string::npos || scripts.find(module) != std::string::npos;
        is_named = is_named || file.text.find("--config " + file.path) != std::string::npos;  // says itself what reads it, by hand
        for (const Artifact& other : one.files)
          is_named = is_named || (&other != &file && !is_plan(other) && other.text.find(file.path) != std::string::npos);
        CHECK(is_named);
        // Never by a path from wherever the user happens to be.
        const std::string bare = std::regex_replace(file.path, std::regex("\\."), "\\.");
        if (!is_in_its_folder) CHECK_FALSE(std::regex_search(commands, std::regex("[ =]\"?" + bare + "\"?( |\n)")));
        ++with_files;
      }
    }
  }
  CHECK(with_files >= 30);
}

TEST_CASE("regression 15 per target: CUDA_DEVICE_MAX_CONNECTIONS is written for Megatron alone") {
  for (const int nodes : {1, 4}) {
    for (const EmittedTarget& one : emit_every_target(nodes)) {
      for (const Artifact& file : one.files) {
        CAPTURE(one.target, file.path);
        if (one.target.compare(0, 8, "megatron") != 0) CHECK(file.text.find("CUDA_DEVICE_MAX_CONNECTIONS") == std::string::npos);
      }
    }
  }
}

TEST_CASE("regression 48 per target: no secret is written") {
  const std::string token = "hf_abcdefghijklmnop1234";
  for (const EmittedTarget& one : emit_every_target(4)) {
    for (const Artifact& file : one.files) {
      CAPTURE(one.target, file.path);
      CHECK(secret_in(file.text).empty());
    }
    // Not by a flag either: words of the program, lines before it, variables, the command line in the header.
    const auto is_refused_as_secret = [&one](const EmitOptions& options) {
      const Result<Artifacts> written = emit(one.plan, one.target, options);
      return !written.ok() && std::any_of(written.diagnostics.begin(), written.diagnostics.end(),
                                          [](const Diagnostic& why) { return why.code == code::kSecret; });
    };
    for (const std::string place : {"program", "setup", "exports"}) {
      EmitOptions secret = one.options;
      const std::vector<std::string> texts = {place == "exports" ? "HF_TOKEN=" + token : "echo " + token};
      if (place == "program") {
        secret.job.program = texts;
      } else {
        secret.job.settings.set(place, texts);
      }
      CAPTURE(one.target);
      CHECK(is_refused_as_secret(secret));
    }
    EmitOptions secret = one.options;
    secret.command = "distsetup emit --hf-token=" + token;
    CAPTURE(one.target);
    CHECK(is_refused_as_secret(secret));
  }
}
