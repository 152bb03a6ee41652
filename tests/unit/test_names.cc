// Near names: what is suggested, and that nothing is suggested when nothing is near.
#include "base/names.h"

#include <catch2/catch.hpp>

using namespace distsetup;
using Names = std::vector<std::string>;

TEST_CASE("one slip of any kind finds the name", "[names]") {
  const Names known = {"sequence_length", "global_batch", "gradient_accumulation", "micro_batch", "learning_rate"};
  CHECK(nearest_name("gradient_acumulation", known) == "gradient_accumulation");  // one letter missing
  CHECK(nearest_name("global_bacth", known) == "global_batch");                   // neighbours swapped
  CHECK(nearest_name("micro_batchh", known) == "micro_batch");                    // one too many
  CHECK(nearest_name("learning_rste", known) == "learning_rate");                 // one wrong
}

TEST_CASE("case and separators do not count", "[names]") {
  CHECK(nearest_name("Micro-Batch", Names{"micro_batch"}) == "micro_batch");
  CHECK(nearest_name("microbatch", Names{"micro_batch"}) == "micro_batch");
  CHECK(nearest_name("H100SXM", Names{"h100_sxm", "a100_sxm"}) == "h100_sxm");
}

TEST_CASE("the limit is one slip and one more for every four letters", "[names]") {
  CHECK(nearest_name("abc", Names{"abd"}) == "abd");
  CHECK(nearest_name("abc", Names{"ade"}).empty());         // 2 > 1 + 3/4
  CHECK(nearest_name("abcde", Names{"abcfg"}) == "abcfg");  // 2 = 1 + 5/4
  CHECK(nearest_name("abcde", Names{"abfgh"}).empty());
}

TEST_CASE("of a short name two letters are half of it, and its number is another thing", "[names]") {
  CHECK(nearest_name("gb10", Names{"a10"}).empty());
  CHECK(nearest_name("abcd", Names{"abef"}).empty());
  CHECK(nearest_name("zero4", Names{"zero0", "zero3"}).empty());
  CHECK(nearest_name("bf61", Names{"bf16"}) == "bf16");
  CHECK(nearest_name("zer3", Names{"zero0", "zero3"}) == "zero3");
  CHECK(nearest_name("qwen2_7b", Names{"qwen2_8b"}) == "qwen2_8b");
}

TEST_CASE("a name that a program wrote is misspelt by one letter, and no number", "[names]") {
  const Names known = {"minimax_m2", "llama", "falcon", "qwen3_vl_text", "qwen3", "qwen2_moe"};
  for (const char* other : {"minimax", "falcon_h1", "qwen3_5_text", "qwen2", "lama4", "gpt"})
    CHECK(misspelt_name(other, known).empty());
  CHECK(misspelt_name("llamma", known) == "llama");
  CHECK(misspelt_name("Qwen2-MoE", known) == "qwen2_moe");
}

TEST_CASE("a swap of neighbours costs one", "[names]") {
  CHECK(nearest_name("ab", Names{"ba"}) == "ba");
  CHECK(nearest_name("abc", Names{"bac"}) == "bac");
}

TEST_CASE("names without a letter in common are not near", "[names]") {
  CHECK(nearest_name("x", Names{"y"}).empty());
  CHECK(nearest_name("", Names{"a", "b"}).empty());
  CHECK(nearest_name("tp", Names{}).empty());
}

TEST_CASE("the nearest wins, the first among equals", "[names]") {
  CHECK(nearest_name("llama3_8b", Names{"llama2_7b", "llama3_7b", "llama3_8b"}) == "llama3_8b");
  CHECK(nearest_name("pp", Names{"tp", "dp"}) == "tp");
}

TEST_CASE("suggest says the near name or lists the known ones", "[names]") {
  CHECK(suggest("optimiser", Names{"optimizer", "steps"}) == "did you mean 'optimizer'");
  CHECK(suggest("zzzzzz", Names{"b", "a"}) == "known: b, a");
  CHECK(suggest("x", Names{}).empty());
  Names many;
  for (int i = 0; i < 12; ++i) many.push_back("name" + std::to_string(i));
  CHECK(suggest("zzzzzzzz", many).find("more") == std::string::npos);
  many.push_back("last");
  CHECK(suggest("zzzzzzzz", many) ==
        "known: name0, name1, name2, name3, name4, name5, name6, name7, name8, name9, name10, name11 and 1 more");
}

TEST_CASE("same_name folds case and separators, nothing else", "[names]") {
  CHECK(same_name("Global-Batch", "global_batch"));
  CHECK_FALSE(same_name("globalbatch", "global_batch"));
  CHECK_FALSE(same_name("global", "global_batch"));
  CHECK(same_name("", ""));
}

TEST_CASE("lower leaves bytes outside ASCII alone", "[names]") { CHECK(lower("FULL_SHARD \xc3\x89") == "full_shard \xc3\x89"); }
