#include <catch2/catch.hpp>

#include "service/body_schema.h"
#include "service/dataset_rows.h"
#include "service/job_plan.h"
#include "service/job_queue.h"
#include "service/request_schemas.h"
#include "service/route_table.h"
#include "service/training_words.h"

#include <set>

using namespace distsetup;

namespace {

// The request of the provider's guide, as it stands there.
constexpr char kGuide[] =
    R"({"job_uuid": "fsdp-dpo-large-model", "model": "meta-llama/Llama-2-7b-hf", "finetuned_model": "llama-2-7b-dpo-fsdp",
 "checkpoint_dir": "./fsdp_checkpoints", "algorithm_config": {"type": "dpo", "reward_scale": 1.0, "reward_clip": 5.0},
 "training_config": {"n_epochs": 3, "max_steps_per_epoch": 100, "learning_rate": 5e-5,
  "data_config": {"dataset_id": "large-dpo-dataset", "batch_size": 4, "shuffle": true}}})";

std::vector<BodyMistake> mistakes_of(const std::string& schema, const std::string& text) {
  std::vector<BodyMistake> out;
  read_body(schema_named(schema), text, out);
  return out;
}

std::string first_mistake(const std::string& text) {
  const std::vector<BodyMistake> all = mistakes_of("PreferenceOptimize", text);
  return all.empty() ? "" : all[0].where + " " + all[0].message;
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kGuide;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("service request: the guide's own is taken whole (regression 000-X19)") {
  CHECK(mistakes_of("PreferenceOptimize", kGuide).empty());
}

TEST_CASE("service request: what is wrong is said with its place") {
  CHECK(first_mistake("") == "body is empty, expected a JSON object");
  CHECK(first_mistake("[]") == "body is a list, expected an object");
  CHECK(first_mistake(with("\"n_epochs\": 3", "\"n_epochs\": \"3\"")) ==
        "training_config.n_epochs is '3', expected a whole number or null");
  CHECK(first_mistake(with("\"n_epochs\": 3", "\"n_epochs\": 0")) == "training_config.n_epochs is 0, expected 1 or more");
  CHECK(first_mistake(with("\"n_epochs\": 3", "\"n_epochs\": 2.5")) ==
        "training_config.n_epochs is 2.5, expected a whole number or null");
  CHECK(first_mistake(with("\"batch_size\"", "\"batchsize\"")) == "training_config.data_config.batchsize is no key of this request");
  CHECK(mistakes_of("PreferenceOptimize", with("\"batch_size\"", "\"batchsize\""))[0].help == "did you mean 'batch_size'");
  CHECK(first_mistake(with("fsdp-dpo-large-model", "../x")).starts_with("job_uuid is '../x', expected text that matches"));
  CHECK(first_mistake(with("\"job_uuid\": \"fsdp-dpo-large-model\", ", "")) == "job_uuid is missing");
  CHECK(first_mistake(with("\"n_epochs\": 3", "\"n_epochs\": 3, \"n_epochs\": 4")).starts_with("body:"));
  CHECK(first_mistake(with("5e-5", "NaN")).starts_with("body:"));
  CHECK(first_mistake(with("5e-5", "1e400")).starts_with("body:"));
  CHECK(first_mistake(std::string(100, '[')) == "body is nested deeper than 64 levels");
}

TEST_CASE("service request: 3.0 is a whole number, and becomes one") {
  std::vector<BodyMistake> mistakes;
  const Json body = read_body(schema_named("PreferenceOptimize"), with("\"n_epochs\": 3", "\"n_epochs\": 3.0"), mistakes);
  REQUIRE(mistakes.empty());
  CHECK(body["training_config"]["n_epochs"].is_number_integer());
}

TEST_CASE("service request: configurations as text, as the client's command line sends them") {
  CHECK(mistakes_of("SupervisedFineTune",
                    R"({"job_uuid": "a", "model": "m", "algorithm_config": "{\"type\": \"LoRA\", \"rank\": 4, \"alpha\": 8}",
                        "training_config": "{\"data_config\": {\"dataset_id\": \"d\"}}", "checkpoint_dir": null})")
            .empty());
}

TEST_CASE("service request: steps of an epoch, and of a run (000-T6, 000-X14)") {
  const auto counts = [](const std::string& training, int64_t rows, int64_t batch) {
    return count_steps(Json::parse("{\"training_config\": " + training + "}"), rows, batch);
  };
  CHECK(counts(R"({"n_epochs": 3})", 1000, 8).held_out_one_in == 10);
  CHECK(counts(R"({"n_epochs": 3})", 1000, 8).steps_per_epoch == 112);  // 900 / 8
  CHECK(counts(R"({"n_epochs": 3})", 1000, 8).steps == 336);
  CHECK(counts(R"({"n_epochs": 3, "max_steps_per_epoch": 100})", 1000, 8).steps == 300);  // of each epoch, not of the run
  CHECK(counts(R"({"n_epochs": 2, "max_steps_per_epoch": 0})", 1000, 8).steps == 224);
  CHECK(counts(R"({"data_config": {"train_split_percentage": 1.0}})", 1000, 8).steps == 125);
  CHECK(counts(R"({"data_config": {"train_split_percentage": 0.8}})", 1000, 8).held_out_one_in == 5);
  CHECK(counts(R"({})", 1, 8).steps == 1);
  CHECK(counts(R"({})", 4, 8).held_out_one_in == 0);
}

TEST_CASE("service request: words of the trainer, and the guide's defaults") {
  ServiceSettings settings;
  settings.ranks_per_node = 2;
  const Json request = Json::parse(kGuide);
  const auto words = [&](const Json& given, const Json& provider, const std::vector<std::string>& fields) {
    std::string text;
    for (const std::string& one : training_words(given, provider, fields, settings, "dpo", PlannedFor::kJob).words) text += one + " ";
    return text;
  };
  const std::string plain = words(request, nullptr, {"micro_batch", "train.learning_rate"});
  CHECK(plain.find("--trainer native --method dpo --nodes 1 --gpus 2 ") == 0);
  CHECK(plain.find("--warmup-ratio 0.1") != std::string::npos);
  CHECK(plain.find("--sharding zero3") != std::string::npos);
  CHECK(plain.find("--learning-rate") == std::string::npos);  // the request has one
  CHECK(words(request, Json{{"dpo_beta", 0.2}, {"use_reference_model", false}}, {}).find("--beta 0.2") != std::string::npos);
  Json asked = request;
  asked["algorithm_config"]["beta"] = 0.3;
  const std::string both = words(asked, Json{{"dpo_beta", 0.2}}, {});
  CHECK(both.find("--beta 0.3") != std::string::npos);  // the request wins
  CHECK(both.find("--beta 0.2") == std::string::npos);
  CHECK(plain.find("--shuffle") == std::string::npos);
  asked["training_config"]["data_config"]["shuffle"] = false;
  CHECK(words(asked, nullptr, {}).find("--shuffle false") != std::string::npos);
}

TEST_CASE("service job: the model that is exported is that of the smallest loss on held-out rows (000-T7)") {
  std::vector<JobArtifact> checkpoints(4);
  CHECK(best_of({}) == nullptr);
  for (size_t i = 0; i < 4; ++i) checkpoints[i].step = static_cast<int64_t>(2 * i + 2);
  CHECK(best_of(checkpoints)->step == 8);  // nothing was held out
  checkpoints[1].validation_loss = 0.5;
  CHECK(best_of(checkpoints)->step == 4);
  checkpoints[0].validation_loss = 0.75;
  checkpoints[2].validation_loss = 0.5;
  checkpoints[3].validation_loss = 0.625;
  CHECK(best_of(checkpoints)->step == 6);  // of equal ones the newest
}

TEST_CASE("service request: settings without a form here are refused by name") {
  Json request = Json::parse(kGuide);
  ServiceSettings settings;
  Json provider;
  const auto refused = [&](const std::string& method = "dpo") {
    std::string text;
    for (const BodyMistake& one : unsupported_settings(request, provider, settings, method)) text += one.where + " ";
    return text;
  };
  CHECK(refused().empty());
  request["training_config"]["optimizer_config"]["lr"] = 1e-4;
  CHECK(refused() == "training_config.learning_rate ");
  request["training_config"]["optimizer_config"]["lr"] = 5e-5;
  CHECK(refused().empty());
  request["algorithm_config"]["loss_type"] = "kto_pair";
  CHECK(refused() == "algorithm_config.loss_type ");
  request["algorithm_config"]["loss_type"] = "ipo";
  Json& data = request["training_config"]["data_config"];
  data["train_on_input"] = true;
  CHECK(refused() == "training_config.data_config.train_on_input ");  // pairs compare answers
  CHECK(refused("sft").empty());
  data["validation_dataset_id"] = "other";
  CHECK(refused("sft").empty());
  data["train_split_percentage"] = 0.9;
  CHECK(refused("sft") == "training_config.data_config.train_split_percentage ");
  data = {{"dataset_id", "d"}, {"shuffle", false}};
  CHECK(refused().empty());
  request["hyperparam_search_config"] = {{"learning_rate", {1e-4, 1e-5}}};
  CHECK(refused().empty());
  settings.launcher = LauncherKind::kSlurm;
  CHECK(refused() == "hyperparam_search_config ");
  settings.launcher = LauncherKind::kLocal;
  provider = {{"chat_template", "{response} to {prompt}"}};
  CHECK(refused() == "chat_template ");
  provider = {{"chat_template", "Q {x}: {prompt}\nA: {response}"}};
  CHECK(refused().empty());
  CHECK(training_words(request, provider, {}, settings, "dpo", PlannedFor::kJob).prompt_format == "Q {{x}}: {}\nA: ");
}

TEST_CASE("service request: what is on the host for a job, and for people who plan") {
  ServiceSettings settings;
  const Json request = Json::parse(kGuide), provider = {{"fsdp_config", {{"cpu_offload", true}}}};
  const auto words = [&](PlannedFor whom) {
    std::string text;
    const TrainingWords all = training_words(request, provider, {}, settings, "dpo", whom);
    for (const std::string& one : all.words) text += one + " ";
    return text + "notes: " + std::to_string(all.notes.size());
  };
  CHECK(words(PlannedFor::kJob).find("--offload-parameters none --offload-optimizer host ") != std::string::npos);
  CHECK(words(PlannedFor::kJob).ends_with("notes: 1"));
  CHECK(words(PlannedFor::kPeople).find("--offload") == std::string::npos);  // the configuration says it, and any trainer may
}

TEST_CASE("service request: a validation set holds out nothing of the other") {
  Json request = Json::parse(kGuide);
  CHECK(count_steps(request, 1000, 8).train_rows == 900);
  request["training_config"]["data_config"]["validation_dataset_id"] = "v";
  CHECK(count_steps(request, 1000, 8).train_rows == 1000);
  CHECK(count_steps(request, 1000, 8).held_out_one_in == 0);
}

TEST_CASE("service request: whole numbers are compared to the last bit") {
  const auto is_good = [](int64_t number) {
    std::vector<BodyMistake> out;
    check_body({{"type", "integer"}, {"maximum", int64_t{9007199254740992}}}, number, "x", out);
    return out.empty();
  };
  CHECK(is_good(9007199254740992));
  CHECK_FALSE(is_good(9007199254740993));  // the same double
}

TEST_CASE("service job: flags that a search has settled are said once") {
  const std::vector<std::string> words = {"plan", "--learning-rate", "1e-3", "--beta", "0.1", "--steps", "8"};
  CHECK(words_with_settings(words, {{"train.learning_rate", "5e-4"}, {"train.beta", "0.3"}}) ==
        std::vector<std::string>{"plan", "--steps", "8", "--set", "train.beta=0.3", "--set", "train.learning_rate=5e-4"});
  CHECK(words_with_settings(words, Json::object()) == words);
}

TEST_CASE("service rows: the first bad row and its field (000-T1)") {
  CHECK(!row_mistake(Json::parse(R"({"prompt": "p", "chosen": "c", "rejected": "r"})"), "dpo"));
  CHECK(*row_mistake(Json::parse(R"({"prompt": "p", "chosen": "c"})"), "dpo") == "'rejected' is missing");
  CHECK(*row_mistake(Json::parse(R"({"prompt": "p", "chosen": "  ", "rejected": "r"})"), "dpo") == "'chosen' is blank");
  CHECK(*row_mistake(Json::parse(R"({"prompt": 3, "chosen": "c", "rejected": "r"})"), "dpo") ==
        "'prompt' is 3, expected text or messages");
  CHECK(!row_mistake(Json::parse(R"({"instruction": "i", "input": "", "chosen": "c", "rejected": "r"})"), "dpo"));
  CHECK(!row_mistake(Json::parse(R"({"messages": [{"role": "user", "content": "x"}]})"), "sft"));
  CHECK(row_mistake(Json::parse(R"({"prompt": "p", "chosen": "c", "rejected": "r"})"), "sft"));
  CHECK(row_mistake(Json::parse(R"({"foo": "p"})"), "sft"));
}

TEST_CASE("service queue: what an attempt comes to (regression 1)") {
  KeeperResult done;
  CHECK(judge_attempt(done, 10, 10, false).state == JobState::kCompleted);
  CHECK(judge_attempt(done, 0, 10, false).state == JobState::kFailed);  // never completed without an optimizer step
  KeeperResult stopped;
  stopped.is_stopped = true;
  CHECK(judge_attempt(stopped, 3, 10, true).state == JobState::kCancelled);
  CHECK(judge_attempt(stopped, 3, 10, false).state == JobState::kQueued);
  KeeperResult failed;
  failed.exit_code = 6;
  failed.phase = "launch";
  CHECK(judge_attempt(failed, 3, 10, false).state == JobState::kFailed);
  CHECK(judge_attempt(failed, 3, 10, false).may_be_retried);
  failed.exit_code = 3;  // a mistake in the configuration stays one
  CHECK(!judge_attempt(failed, 3, 10, false).may_be_retried);
}
