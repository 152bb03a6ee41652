// What a command reads at its start is what everything behind it uses.
#include <catch2/catch.hpp>

#include "cli/commands/commands.h"
#include "cli/settings/read_files.h"
#include "cli/settings/session.h"
#include "support/temporary_directory.h"

namespace distsetup {
namespace {

constexpr char kMegatron[] =
    "pretrain_gpt.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2\n";

}  // namespace

TEST_CASE("session: chunks of a pipeline's stage follow from a model of --presets") {
  const TemporaryDirectory directory;
  directory.write("models/mine.yaml", "{num_layers: 12, hidden: 32, num_heads: 4, feed_forward: 96, vocabulary: 256}");
  Arguments arguments;
  arguments.command = find_command("plan");
  arguments.values["presets"] = directory.path();
  const Result<Session> session = open_session(arguments);
  REQUIRE(session.ok());
  const Result<std::vector<Reading>> readings = read_config(session->templates, kMegatron, "train.sh");
  REQUIRE(readings.ok());
  const Result<ReadFields> fields = merge_readings(*readings);
  REQUIRE(fields.ok());
  Spec stronger;
  REQUIRE(set(stronger, "model", "mine", {"command line"}).empty());
  const auto chunks = [&](const Presets& presets) {
    ReadFields settled = *fields;
    settle_by_model(settled, presets, stronger);
    const auto it = settled.find("strategy.virtual_stages");
    return it == settled.end() ? std::string() : field_text(it->second.value);
  };
  CHECK(chunks(session->presets) == "3");
  CHECK(chunks(*load_presets()).empty());
}

TEST_CASE("session: folders that are not there are told at once") {
  Arguments arguments;
  arguments.command = find_command("plan");
  arguments.values["presets"] = "no/such/presets";
  arguments.values["templates"] = "no/such/templates";
  const Result<Session> session = open_session(arguments);
  REQUIRE_FALSE(session.ok());
  CHECK(session.diagnostics.size() == 2);
}

TEST_CASE("session: folders named behind the dashes count, and flags of a script are read there") {
  const TemporaryDirectory directory;
  directory.write("models/mine.yaml", "{num_layers: 12, hidden: 32, num_heads: 4, feed_forward: 96, vocabulary: 256}");
  Arguments arguments;
  arguments.command = find_command("plan");
  arguments.passed_on = {"--from-scratch", "--batch-size", "4", "--presets", directory.path()};
  const Result<Session> session = open_session(arguments);
  REQUIRE(session.ok());
  CHECK(find_preset(session->presets, "models", "mine") != nullptr);
  CHECK_FALSE(session->script_flags.table.empty());
}

}  // namespace distsetup
