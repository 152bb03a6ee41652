#include "runtime/generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/native_program.h"
#include "plan/plan_json.h"
#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/load_weights.h"
#include "runtime/engine/threads.h"
#include "runtime/generate/decoder.h"
#include "runtime/generate/next_token.h"
#include "runtime/monitor/failure.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

struct Request {
  std::vector<int64_t> ids, stop;
  int64_t max_new_tokens = 0, vocabulary = 0;
  Sampling sampling;
  uint64_t seed = 0;
  std::string checkpoint;
};

Request read_request(const std::string& path) {
  const Result<std::string> text = read_file(path);
  throw_on_error(text.diagnostics, kExitBadEnvironment);
  try {
    const Json json = Json::parse(*text);
    Request r;
    r.ids = json.at("ids").get<std::vector<int64_t>>();
    r.stop = json.value("stop", std::vector<int64_t>{});
    r.max_new_tokens = json.at("max_new_tokens").get<int64_t>();
    r.vocabulary = json.value("vocabulary", int64_t{0});
    r.sampling = {json.value("temperature", 0.0), json.value("top_k", int64_t{0}), json.value("top_p", 1.0)};
    r.seed = json.value("seed", uint64_t{0});
    r.checkpoint = json.value("checkpoint", std::string());
    return r;
  } catch (const Json::exception& failure) {
    throw Failure(kExitBadEnvironment, fmt::format("'{}' is no request: {}", path, failure.what()));
  }
}

void check_request(const Request& r, const Plan& plan) {
  if (r.ids.empty() || r.max_new_tokens < 1) throw Failure(kExitBadEnvironment, "a prompt has at least one token, and an answer too");
  for (const int64_t id : r.ids) {
    if (id < 0 || id >= plan.model.vocabulary)
      throw Failure(kExitBadEnvironment, fmt::format("the prompt has token {}, the model's vocabulary {}", id, plan.model.vocabulary),
                    "give the tokenizer that the model was trained with: --tokenizer DIR");
  }
  const LongestSequence longest = longest_sequence(plan.model);
  const int64_t prompt = static_cast<int64_t>(r.ids.size()), most = prompt + r.max_new_tokens;
  if (longest.tokens > 0 && most > longest.tokens)
    throw Failure(kExitBadEnvironment,
                  fmt::format("prompt and answer are {} tokens, too many for model '{}': {}", most, plan.model.name, longest.why),
                  fmt::format("--max-new-tokens {}", std::max<int64_t>(1, longest.tokens - prompt)));
}

void load(Decoder& decoder, const Plan& plan, const Request& r, const std::string& plan_directory) {
  const ShardState state = decoder.state();
  if (r.checkpoint.empty()) {
    const Result<WeightsFolder> folder = open_weights(plan, plan_directory);
    throw_on_error(folder.diagnostics, kExitBadEnvironment);
    throw_on_error(load_weights(*folder, state), kExitBadEnvironment);
  } else {
    throw_on_error(load_parameters(r.checkpoint, state), kExitBadEnvironment);
  }
  decoder.load();
}

void say_line(const Json& json) {
  fmt::print("{}\n", json.dump());
  std::fflush(stdout);
}

void answer(Decoder& decoder, const Request& r) {
  std::mt19937_64 random(r.seed);
  const double begin_s = now_s();
  const int64_t known = r.vocabulary > 0 ? std::min(r.vocabulary, decoder.vocabulary()) : decoder.vocabulary();
  std::span<const float> logits = decoder.read(r.ids);
  const double read_s = now_s();
  int64_t made = 0;
  bool is_stopped = false;
  while (made < r.max_new_tokens) {
    const int64_t token = next_token(logits.first(static_cast<size_t>(known)), r.sampling, random);
    is_stopped = std::find(r.stop.begin(), r.stop.end(), token) != r.stop.end();
    if (is_stopped) break;
    say_line({{"id", token}});
    if (++made < r.max_new_tokens) logits = decoder.read({&token, 1});
  }
  say_line({{"stopped_by", is_stopped ? "stop" : "length"},
            {"prompt_tokens", r.ids.size()},
            {"new_tokens", made},
            {"prompt_s", read_s - begin_s},
            {"answer_s", now_s() - read_s}});
}

void generate(const GenerateOptions& options) {
  const Result<std::string> text = read_file(options.plan_path);
  throw_on_error(text.diagnostics, kExitBadPlan);
  const Result<Plan> plan = plan_from_json(*text, options.plan_path);
  throw_on_error(plan.diagnostics, kExitBadPlan);
  throw_on_error(check_native(plan->model), kExitBadPlan);
  if (!tuning_of(plan->train).trains_all())
    throw Failure(kExitBadPlan, "the run trained adapters or a part of its model: its checkpoints do not hold the rest",
                  "distsetup checkpoint export RUN --output DIR (with adapters: --merge), then distsetup generate DIR");
  const Request request = read_request(options.request_path);
  check_request(request, *plan);
  set_compute_threads(options.num_threads > 0 ? options.num_threads : compute_threads(1));
  Decoder decoder(*plan, static_cast<int64_t>(request.ids.size()) + request.max_new_tokens);
  load(decoder, *plan, request, fs::path(options.plan_path).parent_path().string());
  answer(decoder, request);
}

}  // namespace

int run_generate(const GenerateOptions& options) {
  try {
    generate(options);
    return kExitDone;
  } catch (const Failure& failure) {
    fmt::print(stderr, "{}{}\n", failure.what(), failure.help().empty() ? "" : fmt::format("\n  help: {}", failure.help()));
    return failure.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "out of memory\n");
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}\n", failure.what());
  }
  return kExitFailed;
}

}  // namespace distsetup
