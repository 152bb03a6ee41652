// Logs of many trainers read as curves, and what counts as the same curve.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "cli/compare/compare_runs.h"

namespace distsetup {
namespace {

RunLog log_of(const std::string& text) {
  const Result<RunLog> log = parse_run_log("log", text);
  REQUIRE(log.ok());
  return *log;
}

TEST_CASE("compare: lines as trainers print them", "[compare]") {
  struct Line {
    const char* who;
    const char* text;
    const char* loss_name;
    int64_t step;
    double loss;
  };
  const std::vector<Line> lines = {
      {"Megatron-LM",
       " [2025-04-13 23:41:12] iteration       10/    1000 | consumed samples:          160 | elapsed time per iteration (ms): 1147.6 "
       "| "
       "learning rate: 1.0E-05 | global batch size:    16 | lm loss: 9.876543E+00 | loss scale: 8388608.0 | grad norm: 2.918 |",
       "lm loss", 10, 9.876543},
      {"torchtitan",
       "[rank0]:[titan] 2025-10-30 14:32:58,897 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss:  6.1098  \x1b[36mgrad_norm:  4.6416  "
       "memory:  2.49GiB(3.14%)  \x1b[34mtps: 177,138  tflops: 96.17  mfu: 9.72%\x1b[39m",
       "loss", 2, 6.1098},
      {"Trainer", "{'loss': 1.7423, 'grad_norm': 0.61, 'learning_rate': 4.5e-05, 'epoch': 0.32}", "loss", 1, 1.7423},
      {"torchtune", "Step 25 | loss:1.2301 lr:2e-05 tokens_per_second_per_gpu:512.3 peak_memory_active:12.1", "loss", 25, 1.2301},
      {"OpenRLHF", "Train step of epoch 0:  10%|█         | 10/100 [00:10<01:30,  1.0s/it, gpt_loss=2.25, loss_mean=2.5, lr=1e-6]",
       "gpt_loss", 10, 2.25},
      {"nanoGPT", "iter 250: loss 3.2134, time 123.45ms, mfu 12.34%", "loss", 250, 3.2134},
      {"llm.c",
       "step   17/18865 | loss 7.123456 (+0.12z)| norm 1.2345 (-0.5z)| lr 1.2e-05 | 123.45 ms | 45.6% bf16 MFU | 421,000 tok/s",
       "loss", 17, 7.123456},
      {"litgpt", "Epoch 1 | iter 12 step 3 | loss train: 1.456, val: n/a | iter time: 312.5 ms (step)", "loss train", 3, 1.456},
      {"modded-nanogpt", "step:125/20000 train_loss:4.1234 train_time:6093ms step_avg:48.74ms", "train_loss", 125, 4.1234},
      {"NeMo",
       "Training epoch 0, iteration 4/99 | lr: 1e-05 | global_batch_size: 8 | global_step: 4 | reduced_train_loss: 10.9 | "
       "train_step_timing in s: 1.25",
       "reduced_train_loss", 4, 10.9},
      {"axolotl", " 33%|███▎      | 7/21 [00:14<00:26,  1.92s/it]{'loss': 0.75, 'learning_rate': 0.0002}", "loss", 7, 0.75},
  };
  for (const Line& line : lines) {
    INFO(line.who);
    const RunLog log = log_of(std::string(line.text) + "\n");
    REQUIRE(log.steps.size() == 1);
    CHECK(log.loss_name == line.loss_name);
    CHECK(log.steps[0].step == line.step);
    CHECK(log.steps[0].loss == Approx(line.loss));
  }
  const RunLog megatron = log_of(lines[0].text), titan = log_of(lines[1].text);
  CHECK(*megatron.steps[0].step_s == Approx(1.1476));
  CHECK(*megatron.steps[0].gradient_norm == Approx(2.918));
  CHECK(*titan.steps[0].tokens_per_s == 177138);
  CHECK(*titan.steps[0].memory_bytes == Approx(2.49 * 1073741824));
}

TEST_CASE("compare: lines that are no training step", "[compare]") {
  for (const char* line :
       {"validation loss at iteration 1000 | lm loss value: 3.2 | lm loss PPL: 24",
        "{'eval_loss': 1.2, 'eval_runtime': 12.3, 'epoch': 1.0}", "{'train_runtime': 100.0, 'train_loss': 1.3, 'epoch': 1.0}",
        "step 250: val loss 3.1", "loss scale: 65536.0", "closs: 3", "loss is computed over tokens", "aux loss 0.01", ""}) {
    INFO(line);
    const Result<RunLog> log = parse_run_log("log", line);
    CHECK_FALSE(log.ok());
  }
}

TEST_CASE("compare: files", "[compare]") {
  const RunLog ours = log_of(
      "{\"kind\":\"step\",\"step\":1,\"loss\":5.5,\"gradient_norm\":1.5,\"step_s\":0.25}\n"
      "{\"kind\":\"evaluation\",\"step\":1,\"held_out_loss\":5.6}\n{\"kind\":\"step\",\"step\":2,\"loss\":5.25}\n");
  CHECK(ours.steps.size() == 2);
  CHECK(ours.counts_steps);
  CHECK(*ours.steps[0].gradient_norm == 1.5);
  const RunLog state = log_of(
      "{\"best_metric\": null, \"log_history\": [{\"epoch\": 0.1, \"loss\": 2.5, \"step\": 10}, {\"eval_loss\": 2.4, \"step\": 10},"
      " {\"loss\": 2.25, \"step\": 20}, {\"train_loss\": 2.3, \"train_runtime\": 9.5, \"step\": 20}]}");
  CHECK(state.format == "trainer_state.json");
  CHECK(state.steps.size() == 2);
  CHECK(state.steps[1].step == 20);
  const RunLog csv = log_of("epoch,step,train_loss,val_loss\n0,9,1.5,\n0,9,,1.75\n0,19,1.25,\n");
  CHECK(csv.format == "CSV");
  CHECK(csv.steps.size() == 2);
  CHECK(log_of("step\tloss\n10\t8.46\n20\t7.69\n").steps[1].loss == Approx(7.69));
  // A resumed run does steps again: what it logs then counts.
  const RunLog resumed = log_of("step 1, loss: 5\nstep 2, loss: 4\nstep 3, loss: 3\nstep 2, loss: 4.5\n");
  REQUIRE(resumed.steps.size() == 2);
  CHECK(resumed.steps[1].loss == 4.5);
}

// A curve of n steps as text.
template <class Loss>
RunLog curve(int n, const Loss& loss) {
  std::string text;
  for (int step = 1; step <= n; ++step) text += fmt::format("step {} loss {}\n", step, loss(step));
  return log_of(text);
}

TEST_CASE("compare: what counts as the same", "[compare]") {
  const auto falling = [](int step) { return 2 + 8.0 / step; };
  const auto agree = [](const RunLog& a, const RunLog& b, double threshold) {
    const Result<RunComparison> c = compare_runs(a, b, threshold);
    REQUIRE(c.ok());
    return c->agree;
  };
  const RunLog a = curve(200, falling);
  CHECK(agree(a, a, 0.001));
  CHECK(agree(a, curve(200, [&](int s) { return falling(s) * 1.04; }), 0.05));
  CHECK_FALSE(agree(a, curve(200, [&](int s) { return falling(s) * 1.06; }), 0.05));
  // Other noise in each step, the same curve.
  CHECK(agree(a, curve(200, [&](int s) { return falling(s) * (s > 1 && s < 200 ? 1 + 0.2 * (s % 2 == 0 ? 1 : -1) : 1); }), 0.05));
  // The same first, mean and last loss, and yet they cross: one above the other first, then below.
  const auto bump = [](int s) { return 4 + std::sin(2 * 3.14159265 * (s - 1) / 199); };
  const auto dip = [](int s) { return 4 - std::sin(2 * 3.14159265 * (s - 1) / 199); };
  CHECK_FALSE(agree(curve(200, bump), curve(200, dip), 0.05));
  CHECK_FALSE(agree(a, curve(200, [&](int s) { return s == 150 ? std::nan("") : falling(s); }), 0.05));
  // Only steps that both logged.
  const Result<RunComparison> every_tenth = compare_runs(a, log_of("step 10 loss 2.8\nstep 20 loss 2.4\nstep 201 loss 9\n"), 0.05);
  REQUIRE(every_tenth.ok());
  CHECK(every_tenth->of_a.num_steps == 2);
  CHECK(every_tenth->agree);
  CHECK_FALSE(compare_runs(a, log_of("step 500 loss 2.8\n"), 0.05).ok());
  const Result<RunComparison> odd = compare_runs(a, curve(200, [&](int s) { return s == 9 ? 250.0 : falling(s); }), 0.05);
  REQUIRE(odd.ok());
  CHECK(odd->num_left_out == 1);
  CHECK(odd->agree);
}

}  // namespace
}  // namespace distsetup
