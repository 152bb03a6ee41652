// Layers of settings: who is over whom, what is told, and what a tool merely assumes.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "cli/settings/layers.h"

namespace distsetup {
namespace {

Spec spec_with(std::string_view path, std::string_view text) {
  Spec spec;
  REQUIRE(set(spec, path, text, {"test"}).empty());
  return spec;
}

Layer layer(std::string_view name, const Spec& given, const Spec& assumed = {}) {
  return {name, [given, assumed](const Spec&) { return Result<LayerSpec>(LayerSpec{given, assumed}); }};
}

}  // namespace

TEST_CASE("layers: the stronger wins, and what a strong layer assumes is below what a weak one gives") {
  const Result<Spec> spec = merge_layers({layer("strong", spec_with("train.steps", "10"), spec_with("train.seed", "1")),
                                          layer("middle", spec_with("train.steps", "20"), spec_with("train.grad_clip", "0.5")),
                                          layer("weak", spec_with("train.seed", "3"), spec_with("train.grad_clip", "0.25"))});
  REQUIRE(spec.ok());
  CHECK(spec->integer("train.steps") == 10);
  CHECK(spec->integer("train.seed") == 3);
  CHECK(spec->number("train.grad_clip") == 0.25);  // of two assumptions the weaker layer's
}

TEST_CASE("layers: of two settings that exclude each other the stronger layer's stays") {
  const Result<Spec> spec = merge_layers(
      {layer("strong", spec_with("train.global_batch", "8")), layer("weak", spec_with("train.global_batch_tokens", "4096"))});
  REQUIRE(spec.ok());
  CHECK(spec->integer("train.global_batch") == 8);
  CHECK(spec->find("train.global_batch_tokens") == nullptr);
}

TEST_CASE("layers: each sees what is over it, and mistakes of all are told") {
  Spec seen;
  const Layer strong = layer("strong", spec_with("train.steps", "10"));
  const Layer broken = {"broken", [](const Spec&) { return Result<LayerSpec>(error(code::kSyntax, {"a.yaml"}, "first")); }};
  const Layer weak = {
      "weak",
      [&seen](const Spec& stronger) {
        seen = stronger;
        return Result<LayerSpec>(error(code::kSyntax, {"b.yaml"}, "second"));
      },
      [](const Spec& whole) { return Diagnostics{warning(code::kConflict, {}, whole.text("train.steps").value_or("none"))}; }};
  const Result<Spec> spec = merge_layers({strong, broken, weak});
  CHECK_FALSE(spec.ok());
  CHECK(seen.integer("train.steps") == 10);
  REQUIRE(spec.diagnostics.size() == 2);  // what is checked of the whole waits until it is right
  CHECK(spec.diagnostics[0].message == "first");
  CHECK(spec.diagnostics[1].message == "second");
}

TEST_CASE("layers: their order is the documented one") {
  CHECK(
      precedence() ==
      "flags, --set, DISTSETUP_ variables, flags of a script behind --, --distributed, --stage, the run file, named presets, files of "
      "other tools");
}

}  // namespace distsetup
