// AdamW's two numbers in one key: a list, several words, or a list that is written into a text.
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

// "0.9 0.95", and "lost" behind them where a key with the word was not carried.
std::string betas(const std::string& name, const std::string& text) {
  INFO(text);
  Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  REQUIRE(read.ok());
  bool is_lost = false;
  for (const Reading& one : *read) {
    for (const LostKey& lost : one.lost) is_lost = is_lost || lost.key.find("betas") != std::string::npos;
  }
  const FileSays file = merged(std::move(*read));
  return file.text("train.beta1") + " " + file.text("train.beta2") + (is_lost ? " lost" : "");
}

std::string deepspeed(const std::string& optimizer) {
  return betas("ds.json",
               R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "optimizer": )" + optimizer + "}");
}

std::string openrlhf(const std::string& words) {
  return betas("a.sh", "deepspeed --module openrlhf.cli.train_sft --pretrain a/b --micro_train_batch_size 1 --train_batch_size 8 " +
                           words + "\n");
}

}  // namespace

TEST_CASE("betas: two settings of a plan, however they are written", "[read]") {
  CHECK(deepspeed(R"({"type": "AdamW", "params": {"betas": [0.8, 0.95]}})") == "0.8 0.95");
  CHECK(deepspeed(R"x({"type": "AdamW", "params": {"betas": "(0.8, 0.95)"}})x") == "0.8 0.95");
  CHECK(openrlhf("--adam_betas 0.8 0.95") == "0.8 0.95");
  CHECK(openrlhf("--adam_betas \"(0.8, 0.95)\"") == "0.8 0.95");
  CHECK(openrlhf("--adam_betas '[0.8,0.95]'") == "0.8 0.95");
}

TEST_CASE("betas: what is no pair of them is told, and not carried", "[read]") {
  CHECK(deepspeed(R"({"type": "AdamW", "params": {"betas": [0.8]}})") == "  lost");
  CHECK(deepspeed(R"({"type": "AdamW", "params": {"betas": [0.8, 1.95]}})") == "  lost");
  CHECK(deepspeed(R"({"type": "Lion", "params": {"betas": [0.8, 0.95]}})") == "  lost");  // not Adam's
  CHECK(openrlhf("--adam_betas \"(0.8, x)\"").ends_with(" lost"));
}
