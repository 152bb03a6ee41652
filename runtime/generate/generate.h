// One answer of a trained model, token by token: what `distsetup generate` starts. The request is a file of JSON:
//
//   {"ids": [1, 15043], "max_new_tokens": 100, "temperature": 0.8, "top_k": 0, "top_p": 0.95, "seed": 0, "stop": [2],
//    "checkpoint": "run/checkpoints/checkpoint_100"}         without "checkpoint": the published weights that the plan names
//
// "vocabulary": 46 would leave out ids from 46 on: rows of the model that its tokenizer has no token for. "ids" and "max_new_tokens"
// have to be there.
//
// The answer is a line of JSON for each token as soon as it is there, {"id": 29892}, and one at the end:
//   {"stopped_by": "stop" | "length", "prompt_tokens": 2, "new_tokens": 17, "prompt_s": 0.01, "answer_s": 0.3}
// The token that stopped it is not among the lines.
#pragma once
#include <string>

namespace distsetup {

struct GenerateOptions {
  std::string plan_path;
  std::string request_path;
  int num_threads = 0;  // 0: all cores
};

// Exit codes as run_training's. A failure is one line on stderr.
int run_generate(const GenerateOptions& options);

}  // namespace distsetup
