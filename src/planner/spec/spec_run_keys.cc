// See spec_run_keys.h.
#include "planner/spec/spec_run_keys.h"

#include "plan/plan.h"
#include "planner/spec/spec_key_makers.h"

namespace distsetup {

void add_run_keys(std::vector<SpecKey>& keys) {
  using Type = SettingType;
  const std::vector<SpecKey> rows = {
      typed(Type::kList, text_key("data.paths", {{"data", ""}, {"data-path", ""}, {"data-paths", ""}, {"train-data", ""}}, "none",
                                  "text files or directories, comma-separated")),
      typed(Type::kSources,
            text_key("data.sources", {{"sources", ""}, {"dataset", ""}}, "none",
                     "files or folders of conversations, pairs or text, made into token ids first (bundled trainer); in a "
                     "file also {path, weight, format, fields}")),
      typed(Type::kList, text_key("data.weights", {{"data-weights", ""}, {"dataset-probs", ""}}, "none",
                                  "a mixture: how much of training comes from each of the sources")),
      typed(Type::kList,
            text_key("data.fields", {{"data-fields", ""}}, "none", "how rows of the sources call their keys: text=content")),
      number(Type::kInt, "data.synthetic", {{"synthetic", ""}}, "none", "sequences", {1, 1e9},
             "so many sequences of random token ids in place of data, to try a run out (bundled trainer)"),
      text_key("data.tokenizer", {{"tokenizer", ""}}, "the model's",
               "a folder or file with the tokenizer of the sources; text in data.paths is read as bytes"),
      text_key("data.prompt_format", {{"prompt-format", ""}}, "none",
               "words around the prompts of the sources, with {} for the prompt: 'Question: {}'"),
      text_key("data.template", {{"chat-template", ""}}, "the tokenizer's", "the chat template of conversations in the sources"),
      text_key("data.cache", {{"data-cache", ""}}, "~/.cache/distsetup", "the folder that token ids of sources are kept in"),
      number(Type::kInt, "data.held_out", {{"held-out", ""}}, "20", "files", {0, 1e9},
             "one file in so many, or of sources one sample, is held out for evaluation; 0: none"),
      typed(Type::kBool, text_key("data.packing", {{"packing", "true"}, {"packing-samples", "true"}}, "false",
                                  "several samples of a prepared set in one row, which do not see each other (bundled trainer)")),
      typed(Type::kBool, text_key("data.shuffle", {{"shuffle", "true"}, {"no-shuffle", "false"}}, "true",
                                  "every epoch has an order of its own; false: that of the data (bundled trainer)")),
      text_key("checkpoint.directory", {{"checkpoint-directory", ""}, {"checkpoint-dir", ""}}, "checkpoints", "where checkpoints go"),
      number(Type::kInt, "checkpoint.every_steps",
             {{"checkpoint-every", ""}, {"checkpoint-interval", ""}, {"save-interval", ""}, {"save-steps", ""}}, "0", "steps",
             {0, 1e15}, "steps between checkpoints; 0: at the end only"),
      number(Type::kInt, "checkpoint.keep", {{"keep-checkpoints", ""}, {"save-total-limit", ""}}, "3", "checkpoints", {1, 1e6},
             "how many of the newest are kept"),
      number(Type::kInt, "checkpoint.keep_every", {{"keep-every", ""}}, "none", "steps", {1, 1e12},
             "checkpoints of every so many steps are kept as well (bundled trainer)"),
      number(Type::kInt, "checkpoint.keep_best", {{"keep-best", ""}, {"save-top-k", ""}}, "0", "checkpoints", {0, 1e6},
             "so many of the best are kept as well (bundled trainer)"),
      choice("checkpoint.metric", {{"checkpoint-metric", ""}, {"metric-for-best-model", ""}},
             {{"held_out_loss", {"eval_loss", "val_loss"}, "the loss of held-out data", ""},
              {"loss", {"train_loss"}, "the loss of the step", ""}},
             "held_out_loss", "what makes a checkpoint the best: the smallest"),
      typed(Type::kBool, text_key("checkpoint.async", {{"async-save", "true"}, {"checkpoint-async", "true"}}, "false",
                                  "training goes on while a copy of its state is written (bundled trainer)")),
      number(Type::kDuration, "checkpoint.save_time", {{"checkpoint-save-time", ""}}, "not known", "", {1},
             "how long a save stops training; with it the preview says how often to save"),
      number(Type::kDouble, "checkpoint.failure_hours", {{"gpu-hours-per-failure", ""}}, "50,700, Llama 3's", "GPU-hours", {1, 1e12},
             "how long GPUs run, all together, until one stops the job"),

      text_key("launch.target", {{"launch-target", ""}}, kNative, "what the plan is written for"),
      text_key("launch.via", {{"via", ""}}, "none", "what starts the target's files: slurm, kubernetes, ssh and the like"),
      text_key("launch.site", {{"site", ""}}, "none", "a site file (distsetup init --site): partition, account, modules"),
      number(Type::kDuration, "launch.time_limit", {{"time-limit", ""}, {"time", ""}}, "none", "", {1}, "longest run: 4h, 48:00:00"),
      number(Type::kDuration, "launch.init_timeout", {{"init-timeout", ""}}, "5m", "", {1},
             "how long ranks wait for each other at the start"),
      number(Type::kDuration, "launch.collective_timeout", {{"collective-timeout", ""}, {"timeout", ""}}, "10m", "", {1},
             "how long a collective may take before the run is given up"),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

}  // namespace distsetup
