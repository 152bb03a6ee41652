// What the reference makes of each preference pair: found once, by the weights that training starts from, before the first step. Kept
// in a file beside the checkpoints, so that a run that goes on does not need those weights again.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/corpus.h"
#include "runtime/engine/engine.h"

namespace distsetup {

// Log-probabilities of the windows of a corpus, in order: chosen, rejected. The same on every rank.
struct ReferenceLogps {
  std::vector<float> training, held_out;
};

struct ReferenceTask {
  const Plan& plan;
  const Corpus& corpus;
  std::string checkpoint_directory;
  bool goes_on = false;              // from a checkpoint: what was kept is used
  std::function<void()> load_start;  // puts what training starts from into the engine
};
// As the plan says: none; nothing, where the reference runs in each step; or what was kept; or found now, and kept. Every rank takes
// part.
ReferenceLogps settle_reference(const ReferenceTask& task, Engine& engine, Communicator& communicator);

// Zeros: every sequence is as likely as any other.
ReferenceLogps no_reference(const Corpus& corpus);
// By the engine's parameters as they are. Every rank takes part.
ReferenceLogps find_reference(Engine& engine, Communicator& communicator, const Corpus& corpus, const Plan& plan);

// Of what the numbers depend on: data, sequence length, the weights or the seed that training starts from, the compute type.
std::string reference_digest(const Plan& plan, const Corpus& corpus);
std::string reference_path(const std::string& checkpoint_directory);
// An existing file is replaced; one rank calls it.
Diagnostics write_reference(const std::string& path, const ReferenceLogps& logps, const std::string& digest);
// Errors: no such file, a broken one, one of another run. Every rank reads it.
Result<ReferenceLogps> read_reference(const std::string& path, const Corpus& corpus, const std::string& digest);

// Of the sequences of a batch; `own`: Batch::own.
std::vector<float> logps_of(const std::vector<float>& table, const std::vector<int64_t>& own);

}  // namespace distsetup
