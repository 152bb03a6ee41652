// family_check FOLDER [--gpu]: one step of the bundled trainer on a model as Transformers saved it, against what Transformers
// computed. FOLDER (tests/integration/families.py makes it): config.json; weights/NAME.f32, logits.f32, gradients/NAME.f32 as raw
// fp32; tokens.txt (sequences, length, then ids and targets); own_errors.txt. Prints one line with the largest differences, each over
// the largest magnitude of its tensor. Exit 1 when one is above 2e-6 and, of a gradient, above four times what Transformers' own fp32
// misses by too: gradients that nearly cancel (of k's bias, of norms over heads) are not known better in fp32. With --gpu on the first
// GPU of this host, whose bound is 1e-5: cuBLAS adds in other orders.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "base/end_process.h"
#include "model/presets.h"
#include "plan/published_order.h"
#include "runtime/device/plugin.h"
#include "runtime/tiny.h"

namespace distsetup {
namespace {

double bound = 2e-6;

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    std::cerr << "cannot open " << path << "\n";
    std::exit(2);
  }
  std::vector<float> values(size_t(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), std::streamsize(values.size() * sizeof(float)));
  return values;
}

double difference(const std::vector<float>& found, const std::vector<float>& expected) {
  double worst = found.size() == expected.size() ? 0 : 1e9, largest = 1e-30;
  for (const float e : expected) largest = std::max(largest, std::abs(double(e)));
  for (size_t i = 0; i < found.size() && i < expected.size(); ++i) {
    const double d = std::abs(double(found[i]) - double(expected[i]));
    worst = d <= 1e9 ? std::max(worst, d) : 1e9;  // NaN too
  }
  return worst / largest;
}

struct Check {
  std::string folder;
  std::unique_ptr<Device> device;
  Geometry geometry;
  Plan plan;
  std::vector<int64_t> ids, targets;
  std::vector<float> logits;
  std::map<std::string, double> own_errors;  // of Transformers' fp32 gradients

  void read_own_errors() {
    std::ifstream file(folder + "/own_errors.txt");
    std::string name;
    for (double error = 0; file >> name >> error;) own_errors[name] = error;
  }

  void read_tokens() {
    std::ifstream file(folder + "/tokens.txt");
    int64_t sequences = 0, length = 0;
    file >> sequences >> length;
    ids.resize(size_t(sequences * length));
    targets.resize(ids.size());
    for (int64_t& i : ids) file >> i;
    for (int64_t& t : targets) file >> t;
    tiny::TinyOptions options;
    options.geometry = geometry;
    options.global_batch = sequences;
    options.sequence_length = length;
    plan = tiny::tiny_plan(options);
    plan.train.grad_clip = 0;
    plan.hardware.accelerator = device->accelerator();
  }

  // What the loss is computed of: logits, multiplied and capped as the op says.
  void take_logits(const Step& step, const Call& call) {
    if (step.kernel != "cross_entropy") return;
    std::vector<float> z(size_t(numel(call.reads[0])));
    device->copy_to_host(z.data(), call.reads[0].data, num_bytes(call.reads[0]));
    const OpAttributes& a = *call.attributes;
    for (const float value : z) {
      const double s = double(value) * a.multiplier;
      logits.push_back(float(a.soft_cap > 0 ? a.soft_cap * std::tanh(s / a.soft_cap) : s));
    }
  }

  int run() {
    const Diagnostics refused = validate(plan);
    if (has_error(refused)) {
      std::cerr << format_diagnostics(refused);
      return 2;
    }
    double worst_gradient = 0, loss = 0;
    bool failed = false;
    std::string worst_name;
    run_ranks(plan.mesh, [&](Communicator& communicator) {
      EngineOptions options;
      options.watch = [&](const Step& step, const Call& call) { take_logits(step, call); };
      Engine engine(plan, *device, communicator, options);
      each_parameter(
          engine,
          [&](const Parameter& p, float* at) {
            const std::vector<float> published = read_floats(folder + "/weights/" + p.name + ".f32");
            for (int64_t i = 0; i < p.numel; ++i) at[i] = published.at(size_t(published_element(p, geometry, i)));
          },
          engine.master());
      engine.load();
      loss = engine.step({ids, targets, int64_t(targets.size()), 0.0}).loss;
      std::vector<float> gradient(engine.gradient().begin(), engine.gradient().end());
      each_parameter(
          engine,
          [&](const Parameter& p, float* at) {
            if (!p.trains) return;
            const std::vector<float> expected = read_floats(folder + "/gradients/" + p.name + ".f32");
            std::vector<float> found(expected.size());
            for (int64_t i = 0; i < p.numel; ++i) found.at(size_t(published_element(p, geometry, i))) = at[i];
            const double d = difference(found, expected);
            if (d >= worst_gradient) worst_gradient = d, worst_name = p.name;
            failed = failed || d > std::max(bound, 4 * own_errors.at(p.name));
          },
          gradient);
    });
    const double worst_logit = difference(logits, read_floats(folder + "/logits.f32"));
    std::printf("%-12s loss %.6f, logits %.1e, gradients %.1e (%s)\n", geometry.family.c_str(), loss, worst_logit, worst_gradient,
                worst_name.c_str());
    return worst_logit <= bound && !failed ? 0 : 1;
  }

  template <class F, class Span>
  void each_parameter(const Engine& engine, const F& f, Span&& values) const {
    for (const UnitLayout& unit : engine.layout().units)
      for (const Parameter& p : unit.parameters) f(p, values.data() + unit.shard_offset + p.offset);
  }
};

}  // namespace
}  // namespace distsetup

namespace {

int run(int argc, char** argv) {
  using namespace distsetup;
  const bool gpu = argc == 3 && std::string(argv[2]) == "--gpu";
  if (argc != 2 && !gpu) {
    std::cerr << "usage: family_check FOLDER [--gpu]\n";
    return 2;
  }
  Check check;
  check.device = gpu ? load_cuda_device(0) : make_cpu_device();
  if (gpu) bound = 1e-5;
  check.folder = argv[1];
  const Result<Geometry> geometry = resolve_model(*load_presets(), check.folder);
  if (!geometry.ok()) {
    std::cerr << format_diagnostics(geometry.diagnostics);
    return 2;
  }
  check.geometry = *geometry;
  std::ifstream config(check.folder + "/config.json");
  check.geometry.expert_capacity = nlohmann::json::parse(config).value("expert_capacity", 0.0);  // no key of Transformers
  check.read_tokens();
  check.read_own_errors();
  return check.run();
}

}  // namespace

int main(int argc, char** argv) { return distsetup::end_process(run(argc, argv)); }
