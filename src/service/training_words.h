// From a request and the provider's configuration to the words of `distsetup plan`. Most keys are read by the tables of
// templates/llama-stack*, with `--from`; here is what those tables leave to the trainer, and the seed's own defaults.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "service/http_message.h"
#include "service/service_settings.h"

namespace distsetup {

struct TrainingWords {
  std::vector<std::string> words;        // "--beta", "0.1", …
  std::vector<std::string> acting_keys;  // of request and configuration that the service itself acts on; "a.*": all below
  std::vector<BodyMistake> idle;         // keys without an effect, and why
  std::vector<std::string> notes;        // what a key comes to here, where that is not all it says
  int64_t log_every = 0;                 // logging_steps; 0: not said
  std::string prompt_format;             // of chat_template; "": none
};

// A plan for people may name any trainer; a job is trained by ours, which keeps parameters on the device.
enum class PlannedFor { kJob, kPeople };

// `fields`: what the tables read, by field (train.learning_rate …). `provider`: the configuration as a tree of JSON.
TrainingWords training_words(const Json& request, const Json& provider, const std::vector<std::string>& fields,
                             const ServiceSettings& settings, const std::string& method, PlannedFor whom);

// Settings that change what would be learned and have no form here: each is a mistake with its key.
std::vector<BodyMistake> unsupported_settings(const Json& request, const Json& provider, const ServiceSettings& settings,
                                              const std::string& method);

struct StepCounts {
  int64_t held_out_one_in = 10;  // 0: none
  int64_t train_rows = 0, steps_per_epoch = 1, epochs = 1, steps = 1;
};
// Steps of an epoch: ⌊rows to train on / global batch⌋, at most max_steps_per_epoch where that is not 0, at least 1.
StepCounts count_steps(const Json& request, int64_t num_rows, int64_t global_batch);

}  // namespace distsetup
