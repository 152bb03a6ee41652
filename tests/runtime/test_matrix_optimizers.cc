// Adafactor and Muon on several ranks: the same training on every mesh, bytes as declared, states that any mesh loads bit for bit.
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include "plan/update_layout.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/load.h"
#include "runtime/tiny.h"
#include "support/temporary_directory.h"

using namespace distsetup;
using namespace distsetup::tiny;

namespace {

Plan plan_with(const std::string& optimizer, TinyOptions options) {
  Plan plan = tiny_plan(options);
  plan.train.optimizer = optimizer;
  plan.train.learning_rate = 1e-2;
  if (optimizer == kMuon) plan.train.momentum = 0.95, plan.train.muon.adam_learning_rate = 3e-3;
  if (optimizer == kAdafactor) plan.train.epsilon = 1.1920929e-7;
  return plan;
}

TinyOptions options_of(Sharding sharding, int replicate, int shard, int pp = 1, int cp = 1) {
  TinyOptions o;
  o.sharding = sharding;
  o.replicate = replicate, o.shard = shard, o.pp = pp, o.cp = cp;
  return o;
}

struct MeshCase {
  const char* name;
  TinyOptions options;
};
std::vector<MeshCase> meshes() {
  return {{"zero3 × 2", options_of(Sharding::kZero3, 1, 2)}, {"zero1 × 3", options_of(Sharding::kZero1, 1, 3)},
          {"ddp × 2", options_of(Sharding::kDdp, 2, 1)},     {"hybrid × 4", options_of(Sharding::kZero3, 2, 2)},
          {"pp 2", options_of(Sharding::kDdp, 1, 1, 2)},     {"zero2 × 2, pp 2", options_of(Sharding::kZero2, 1, 2, 2)},
          {"cp 2", options_of(Sharding::kZero3, 1, 1, 1, 2)}};
}

TEST_CASE("optimizers of whole matrices train alike on every mesh", "[optim]") {
  const std::string optimizer = GENERATE(as<std::string>(), "adafactor", "muon");
  TinyOptions one;
  one.geometry.tied_embeddings = true;
  one.global_batch = 12;
  const RunResult expected = train(plan_with(optimizer, one), 4);
  CHECK(expected.losses.back() < expected.losses.front());
  for (MeshCase c : meshes()) {
    INFO(optimizer << ", " << c.name);
    c.options.geometry.tied_embeddings = true;
    c.options.global_batch = 12;
    EngineOptions poisoned;
    poisoned.poison = true;
    const RunResult found = train(plan_with(optimizer, c.options), 4);
    CHECK(difference(found.losses, expected.losses) < 1e-5);
    CHECK(difference(found.norms, expected.norms) < 1e-3);
    // A last bit of a gradient may be an eighth one where Muon rounds to bf16.
    CHECK(difference(found.parameters, expected.parameters) < (optimizer == kMuon ? 5e-3 : 1e-3));
    CHECK(train(plan_with(optimizer, c.options), 4, poisoned) == found);
  }
}

TEST_CASE("optimizers of whole matrices allocate what is declared", "[optim]") {
  const std::string optimizer = GENERATE(as<std::string>(), "adafactor", "muon");
  CHECK(undeclared_bytes(plan_with(optimizer, {}), *make_self_communicator({})) == "");
}

using Tensors = std::map<std::string, std::vector<float>>;

// Elements of every state by tensor, whatever mesh has them.
void add_states(Engine& engine, Tensors& to) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const StateValues& s : engine.optimizer_states()) {
    for (const StatePiece& piece : state_pieces(engine.layout(), s.name, s.scope, engine.place())) {
      int64_t whole = 1;
      for (const int64_t size : piece.shape) whole *= size;
      std::vector<float>& values = to[piece.name()];
      values.resize(size_t(whole), -1.0f);
      const int64_t width = piece.shape.size() > 1 ? piece.shape[1] : 1, columns = piece.shape.size() > 1 ? piece.box.size[1] : 1;
      for (int64_t i = 0; i < piece.box.numel(); ++i) {
        const int64_t at =
            (piece.box.start[0] + i / columns) * width + (piece.shape.size() > 1 ? piece.box.start[1] : 0) + i % columns;
        values[size_t(at)] = s.values[size_t(piece.box.shard_offset + i)];
      }
    }
  }
}

ShardState state_of(Engine& engine) { return {&engine.layout(), engine.place(), engine.master(), engine.optimizer_states()}; }

// Steps of a run whose states lie in `directory` at `from`, if that is above 0; saved there afterwards.
Tensors run_from(const Plan& plan, const std::string& directory, int64_t from, int64_t steps, RunResult& result) {
  Tensors states;
  std::mutex mutex;
  std::map<std::string, FileDigest> files;
  const int64_t end = from + steps;
  REQUIRE(begin_checkpoint(directory, end).empty());
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    Engine engine(plan, *device, communicator);
    engine.initialize_parameters();
    if (from > 0) {
      const Diagnostics said = load_shard(directory, from, state_of(engine));
      if (!said.empty()) throw std::runtime_error(format_diagnostics(said));
      engine.set_steps_done(from);
    }
    engine.load();
    for (int64_t s = from; s < end; ++s) {
      const Batch batch = rank_batch(plan, global_batch(plan, s), data_index(plan.mesh, communicator.rank()));
      const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, learning_rate(plan.train, s)});
      if (communicator.rank() == 0) result.losses.push_back(stats.loss);
    }
    add_states(engine, states);
    if (!engine.writes_checkpoint()) return;
    collect(plan.model, engine, engine.master(), result.parameters);
    const auto digests = write_rank_files(directory, end, communicator.rank(), state_of(engine));
    const std::lock_guard<std::mutex> lock(mutex);
    files.insert(digests->begin(), digests->end());
  });
  const Layout layout = make_layout(plan);
  const ShardState any = {&layout, {}, {}, [&] {
                            std::vector<StateValues> names;
                            for (const OptimizerState& s : optimizer_states(plan.train)) names.push_back({s.name, {}, s.scope});
                            return names;
                          }()};
  CheckpointMetadata metadata;
  metadata.step = end;
  REQUIRE(commit_checkpoint(directory, any, "", metadata, files).empty());
  return states;
}

TEST_CASE("states of whole matrices load onto any mesh bit for bit, and a run goes on with the same bits", "[optim][all]") {
  const std::string optimizer = GENERATE(as<std::string>(), "adafactor", "muon");
  for (const MeshCase& c : meshes()) {
    const TemporaryDirectory folder, straight;
    TinyOptions writer = c.options;
    writer.global_batch = 12;
    const Plan plan = plan_with(optimizer, writer);
    INFO(optimizer << ", " << c.name);
    RunResult parts, whole;
    const Tensors states = run_from(plan, folder.path(), 0, 2, parts);
    CHECK(states.size() > 10);
    run_from(plan, folder.path(), 2, 2, parts);
    run_from(plan, straight.path(), 0, 4, whole);
    CHECK(parts == whole);
    for (const MeshCase& other : meshes()) {
      INFO("onto " << other.name);
      TinyOptions reader = other.options;
      reader.global_batch = 12;
      Tensors again;
      run_ranks(plan_with(optimizer, reader).mesh, [&](Communicator& communicator) {
        const auto device = make_cpu_device();
        Engine engine(plan_with(optimizer, reader), *device, communicator);
        const Diagnostics said = load_shard(folder.path(), 2, state_of(engine));
        if (!said.empty()) throw std::runtime_error(format_diagnostics(said));
        add_states(engine, again);
      });
      CHECK(again == states);
    }
  }
}

}  // namespace
