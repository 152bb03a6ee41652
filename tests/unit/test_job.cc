// Settings of a job: from flags and site.yaml to fields, and what is refused on the way.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/value_yaml.h"
#include "codegen/job/job_fields.h"
#include "codegen/job/program.h"
#include "codegen/job/secrets.h"
#include "codegen/job/site.h"
#include "codegen/job/site_schema.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

std::string job_field(const JobOptions& options, const std::string& name, const Plan* plan = nullptr) {
  const Result<Fields> fields = job_fields(options, "", plan != nullptr ? fields_of(*plan) : no_fields(), plan);
  INFO(messages(fields.diagnostics));
  REQUIRE(fields.ok());
  return field_text(fields->find(name)->second);
}

std::string job_refusal(const JobOptions& options) {
  const Result<Fields> fields = job_fields(options, "", no_fields(), nullptr);
  REQUIRE_FALSE(fields.ok());
  return messages(fields.diagnostics);
}

Diagnostics read_site(JobOptions& options, const std::string& text) {
  const Result<Value> value = parse_yaml(text, "site.yaml");
  REQUIRE(value.ok());
  return apply_site(options, *value, text, "site.yaml");
}

}  // namespace

TEST_CASE("job: the warning before the limit is twice a step and a checkpoint") {
  Plan plan = cluster_plan();  // 4 nodes
  plan.time.step_s = 40;
  plan.memory.checkpoint_bytes = int64_t{4} * 400'000'000'000;  // 400 GB of each node
  JobOptions options;
  options.settings.set("checkpoint_rate", "2GB/s");
  CHECK(job_field(options, "job.signal", &plan) == "USR1@480");  // 2 × (40 + 200)
  options.settings.set("requeue", true);
  CHECK(job_field(options, "job.signal", &plan) == "B:USR1@480");
  JobOptions with_lead = options;
  with_lead.settings.set("signal_lead_s", 60);
  CHECK(job_field(with_lead, "job.signal", &plan) == "B:USR1@60");
  options.settings.set("checkpoint_rate", "1GB/s");
  CHECK(job_field(options, "job.signal", &plan) == "B:USR1@880");
  plan.time.step_s = 1;
  plan.memory.checkpoint_bytes = 1000;
  CHECK(job_field(options, "job.signal", &plan) == "B:USR1@120");  // never less
  plan.time.step_s = 1e6;                                          // longer than the job: half of it, and said
  CHECK(job_field(options, "job.signal", &plan) == "B:USR1@43200");
  CHECK(job_field(options, "job.lead_wanted", &plan) == "2000010");
  CHECK(contains(messages(emit(plan, "slurm", EmitOptions{}).diagnostics), "work since the last checkpoint may be lost"));
}

TEST_CASE("job: GPUs are asked for as the site wants it, and tasks follow the shape") {
  JobOptions options;
  options.settings.set("gpus.type", "h100");
  CHECK(job_field(options, "job.gpus_per_node") == "h100:8");
  CHECK(job_field(options, "job.gres") == "null");
  options.settings.set("gpus.request", "gres");
  CHECK(job_field(options, "job.gres") == "gpu:h100:8");
  CHECK(job_field(options, "job.gpus_per_node") == "null");
  options.settings.set("gpus.request", "none");
  CHECK(job_field(options, "job.gres") == "null");
  CHECK(job_field(options, "job.tasks_per_node") == "8");
  CHECK(job_field(options, "job.cpus_per_task") == "8");
  options.settings.set("shape", "torchrun");  // one launcher on each node, never one in each of its GPUs' tasks
  CHECK(job_field(options, "job.tasks_per_node") == "1");
  CHECK(job_field(options, "job.cpus_per_task") == "64");
}

TEST_CASE("job: names that become file names, hosts or objects are checked") {
  JobOptions options;
  options.settings.set("job_name", "My_Run.7");
  CHECK(job_field(options, "job.dns_name") == "my-run-7");
  options.settings.set("job_name", "../x");
  CHECK(job_field(options, "job.dns_name") == "null");
  CHECK(job_field(options, "job.plain_names") == "false");
  options.settings.set("output_log", "logs/%x.out");
  CHECK(contains(job_refusal(options), "has a '/' in it"));
  options = {};
  for (const char* host : {"-oProxyCommand=id", "a b", "a;b", "$(id)"}) {
    options.settings.set("hosts", Json::array({host}));
    CHECK(contains(job_refusal(options), "--hosts"));
  }
  options.settings.set("hosts", Json::array({"user@node-0.example"}));
  CHECK(job_field(options, "job.hosts") == "user@node-0.example");
  options = {};
  options.settings.set("network.interface", "^lo,docker");  // Gloo knows exact names only
  CHECK(contains(job_refusal(options), "--interface"));
  options = {};
  options.settings.set("array", "0-9");
  CHECK(contains(job_refusal(options), "0-9%1"));
  options.settings.set("array", "0-9%1");
  CHECK(job_field(options, "job.array") == "0-9%1");
  options.settings.set("array", "0-9");
  options.program = {"sweep.py"};
  CHECK(job_field(options, "job.array") == "0-9");
}

TEST_CASE("job: regression 48: secrets are refused wherever they would be written") {
  for (const char* text : {"HF_TOKEN=abc", "export WANDB_API_KEY='x'", "A=1 AWS_SECRET_ACCESS_KEY=x cmd", "--hf-token=abc",
                           "DB_PASSWORD=x", "hf_abcdefghijklmnop1234", "x sk-proj-abcdefghijklmno1", "ghp_0123456789abcdefghij"}) {
    INFO(text);
    CHECK_FALSE(secret_in(text).empty());
    JobOptions options;
    options.settings.set("setup", Json::array({text}));
    CHECK(contains(job_refusal(options), "looks like a secret"));
    options = {};
    options.program = {"train.py", text};
    CHECK(contains(job_refusal(options), "looks like a secret"));
  }
  for (const char* text :
       {"TOKENIZERS_PARALLELISM=false", "HF_TOKEN=$HF_TOKEN", "export HF_TOKEN=\"$(cat ~/.token)\"", "HF_TOKEN=", "task-1",
        "--tokens=7", "use_im_patch_token=False", "MAX_TOKEN=512", "token_ratios=[0.5,1]", "SORT_KEY=name", "hf_model", "A=b",
        "--moe-token-dispatcher-type=alltoall", "moe_token_drop_policy=probs"}) {
    INFO(text);
    CHECK(secret_in(text).empty());
  }
}

TEST_CASE("site: flags stand over site.yaml, which stands over what a job begins with") {
  JobOptions options;
  const std::string text =
      "version: 1\npartition: gpu\ncpus_per_task: 12\nmodules: [cuda/12.2, gcc]\nexclusive: true\nlongest_job: 12h\n"
      "gpus: {request: gres}\nexports: [A=1]\n";
  CHECK(read_site(options, text).empty());
  CHECK(options.settings.text("partition") == "gpu");
  CHECK(options.settings.number("cpus_per_task") == 12);
  CHECK(options.settings.list("modules") == std::vector<std::string>{"cuda/12.2", "gcc"});
  CHECK(options.settings.is_on("exclusive"));
  CHECK(options.settings.text("gpus.request") == "gres");
  CHECK(contains(options.site, "site.yaml "));
  CHECK(job_field(options, "job.time_limit") == "12:00:00");
  options.time_limit = "13h";
  CHECK(contains(job_refusal(options), "the site's longest job is 12:00:00"));
  for (const JobSetting& setting : job_settings()) {
    if (setting.flag == "partition") CHECK(set_job_option(options, setting, "other", {}).empty());
  }
  CHECK(options.settings.text("partition") == "other");
}

TEST_CASE("site: mistakes are told together, with their places") {
  JobOptions options;
  const std::string said = messages(read_site(
      options,
      "version: 2\npartion: gpu\nexclusive: yes\ngpus: {request: all}\ncpus_per_task: 0\nlongest_job: 12\ncontainer: pyxis\n"));
  for (const char* part : {code::kUnknownVersion, "did you mean 'partition'", code::kAmbiguousSpelling, code::kUnknownValue,
                           code::kOutOfRange, code::kUnitMissing, code::kWrongType})
    CHECK(contains(said, part));
  CHECK(contains(messages(read_site(options, "partition: gpu\n")), "version: 1"));
}

TEST_CASE("site: what is written reads back, key by key") {
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  for (const JobSetting* key : site_keys()) {
    std::string value = "it's # \"x\"";
    switch (key->type) {
      case JobSettingType::kSwitch: value = "true"; break;
      case JobSettingType::kInt: value = "3"; break;
      case JobSettingType::kDuration: value = "4h"; break;
      case JobSettingType::kBytes: value = "32G"; break;
      case JobSettingType::kRate: value = "2GB/s"; break;
      case JobSettingType::kChoice: value = std::string(key->choices.front()); break;
      default: break;
    }
    values.push_back({std::string(key->site), {value}});
  }
  JobOptions options;
  const std::string text = site_yaml(values);
  INFO(text);
  CHECK(messages(read_site(options, text)).empty());
  CHECK(options.settings.text("partition") == "it's # \"x\"");
  CHECK(options.settings.list("setup") == std::vector<std::string>{"it's # \"x\""});
  CHECK(options.settings.number("cpus_per_task") == 3);
  CHECK(options.settings.is_on("health_gate"));
}

TEST_CASE("site: the schema has every key of the reader and no other") {
  const Json schema = site_schema();
  size_t num_keys = 0;
  for (const auto& [name, value] : schema["properties"].items())
    num_keys += value.contains("properties") ? value["properties"].size() : 1;
  CHECK(num_keys == site_keys().size() + 2);  // version and name
  CHECK(schema["properties"]["gpus"]["properties"]["request"]["enum"].size() == 3);
  CHECK(schema["additionalProperties"] == false);
}

TEST_CASE("site: every setting is used by some target, and has fields that exist") {
  const TemplateSet templates = embedded_templates();
  const Fields fields = no_fields();
  for (const JobSetting& setting : job_settings()) {
    INFO(setting.flag << " " << setting.site);
    if (setting.key == "price") continue;  // of plans: no job has it
    REQUIRE_FALSE(setting.fields.empty());
    for (const std::string& field : setting.fields) CHECK(fields.find(field) != fields.end());
    bool is_used = false;
    for (const std::string& target : target_names(templates)) is_used = is_used || target_uses(templates, target, setting.fields);
    CHECK(is_used);
  }
}

TEST_CASE("settings: a row makes a setting, and mistakes of the table are told at their places") {
  const std::string row =
      "  - {key: switches, type: int, least: 1, most: 8, field: job.switches, placeholder: COUNT, help: leaf switches}\n";
  const Result<std::vector<JobSetting>> one = parse_job_settings("version: 1\nsite:\n" + row, "settings.yaml");
  INFO(messages(one.diagnostics));
  REQUIRE(one.ok());
  REQUIRE(one->size() == 1);
  CHECK(one->front().site == "switches");
  CHECK(one->front().flag == "switches");
  CHECK(one->front().fields == std::vector<std::string>{"job.switches"});
  const auto said = [](const std::string& rows) {
    const Result<std::vector<JobSetting>> read = parse_job_settings("version: 1\njob:\n" + rows, "settings.yaml");
    REQUIRE_FALSE(read.ok());
    return messages(read.diagnostics);
  };
  CHECK(contains(said("  - {key: a, type: txt, field: job.a, help: x}\n"), "did you mean 'text'"));
  CHECK(contains(said("  - {key: a, type: text, help: x}\n"), "neither field nor acts_on"));
  CHECK(contains(said("  - {key: a, type: text, field: train.steps, help: x}\n"), "is none of a job"));
  CHECK(contains(said("  - {key: a, type: choice, field: job.a, help: x}\n"), "choices"));
  CHECK(contains(said("  - {key: a, type: text, field: job.a, hlep: x}\n"), "hlep"));
}

TEST_CASE("job: words of one's own are started as what they are") {
  using Words = std::vector<std::string>;
  CHECK(as_command({"train.py", "a b"}) == Words{"python3", "train.py", "a b"});
  CHECK(as_command({"-m", "my.module"}) == Words{"python3", "-m", "my.module"});
  CHECK(as_command({"python", "train.py"}) == Words{"python", "train.py"});
  CHECK(as_command({"./train", "x.py"}) == Words{"./train", "x.py"});
  CHECK(as_python_script({"train.py"}) == Words{"train.py"});
  CHECK(as_python_script({"python3", "-u", "train.py", "x"}) == Words{"train.py", "x"});
  CHECK(as_python_script({"/usr/bin/python3.12", "-m", "my.module"}) == Words{"-m", "my.module"});
  CHECK(as_python_script({"--no_python", "./train"}) == Words{"--no_python", "./train"});
  CHECK(as_python_script({"./train"}) == Words{"--no_python", "./train"});
  CHECK(as_python_script({"python3", "-c", "print()"}) == Words{"--no_python", "python3", "-c", "print()"});
  CHECK(without_interpreter({"--data", "x"}) == Words{"--data", "x"});
}
