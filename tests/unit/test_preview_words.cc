// `explain` answers for every word that a preview prints: previews of many kinds are walked, word by word.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "base/names.h"
#include "cli/commands/explanations.h"
#include "planner/report/preview.h"
#include "planner/search/make_plan.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

// Words of plain English, which mean here what they mean everywhere.
const std::set<std::string> kEnglish = [] {
  std::istringstream text(
      "a above alone all also among an and any another are around as asks at back be before behind below beside between but by called "
      "can "
      "cannot come counted "
      "counts divide does down each end ends every faster few fewest first fit for free from full gain gets give given gives goes "
      "half has have "
      "held here how if in into is it its kept last least less little longest loses lost many means misses more most much names near "
      "nearest "
      "needs no none not nothing now of off on once one only or other others out over own place plans predicted ran rest runs same "
      "say says share so stay sure "
      "some still takes than that the their them then there these they this those tiny to together too travel twice under up us "
      "usable used "
      "was way what "
      "when where which who whole why will wins with within without would yet you states tried larger smaller others d h s ms "
      "appendix else "
      "folder initial ones published random starts stops true "
      "arxiv dpoconfig py tulu");  // of sources
  std::set<std::string> words;
  for (std::string word; text >> word;) words.insert(word);
  return words;
}();

std::vector<std::string> words_of(std::string text) {
  constexpr std::string_view kCut = "…";
  for (size_t at = text.find(kCut); at != std::string::npos; at = text.find(kCut)) {  // what is cut off is no word
    size_t begin = at;
    while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0 || text[begin - 1] == '_')) --begin;
    text.replace(begin, at + kCut.size() - begin, " ");
  }
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
      continue;
    }
    const bool has_letter = std::any_of(word.begin(), word.end(), [](unsigned char d) { return std::isalpha(d) != 0; });
    const bool is_number = !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    if (has_letter && !is_number && word.size() > 1) words.push_back(word);
    word.clear();
  }
  return words;
}

bool is_answered(const std::string& word) {
  if (kEnglish.count(lower(word)) > 0 || find_preset(presets(), "gpus", word) != nullptr) return true;
  return find_page(word) != nullptr || find_page_with(word) != nullptr || find_spec_key(word) != nullptr ||
         find_spec_flag(word) != nullptr;
}

}  // namespace

TEST_CASE("explain answers for every word that a preview prints") {
  std::set<std::string> unanswered;
  for (const Flags& flags : std::vector<Flags>{
           {{"model", "8B"}, {"nodes", "2"}},
           {{"model", "mixtral_8x7b"}, {"nodes", "2"}},
           {{"model", "70B"}, {"nodes", "1"}},
           {{"model", "70B"}, {"nodes", "4"}, {"trainer", "megatron"}},
           {{"model", "70B"}, {"nodes", "4"}, {"trainer", "fsdp2"}, {"tp", "8"}},
           {{"model", "8B"}, {"nodes", "1"}, {"trainer", "deepspeed"}, {"offload-optimizer", "host"}},
           {{"model", "8B"}, {"nodes", "1"}, {"trainer", "fsdp1"}, {"method", "sft"}, {"finetune", "qlora"}, {"lora-dropout", "0.1"}},
           {{"model", "7B"}, {"nodes", "1"}, {"method", "dpo"}},
           {{"model", "8B"}, {"nodes", "4"}, {"gpu-hours-per-failure", "10000"}, {"trainer", "fsdp2"}, {"cp", "2"}},
           {{"model", "tiny"}, {"gpu", "cpu"}, {"gpus", "2"}}}) {
    const Result<Problem> problem = resolved(flags);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    const Result<Plan> plan = make_plan(*problem);
    REQUIRE(plan.ok());
    // Names are looked up with `distsetup list`.
    std::set<std::string> names;
    for (const std::string& name : {plan->model.name, plan->hardware.gpu_name, plan->hardware.price_source, plan->model.hub_id})
      for (const std::string& word : words_of(name)) names.insert(word);
    const std::string preview = format_preview(*plan);
    for (const std::string& word : words_of(preview))
      if (names.count(word) == 0 && !is_answered(word)) unanswered.insert(word);
  }
  CHECK(fmt::format("{}", fmt::join(unanswered, " ")) == "");
}

TEST_CASE("explain: words of a plan that are several") {
  for (const char* word :
       {"on the device", "GPU context", "fits", "does not fit", "peak at", "micro-batch", "in 9 runs of 10", "MFU"}) {
    INFO(word);
    CHECK(find_page(word) != nullptr);
  }
  CHECK(find_page_with("communicators")->name == "communicators");
  CHECK(find_page_with("nonsense") == nullptr);
}

// The words that a plan chooses among have a page each, whether or not a preview that is walked above happens to print them.
TEST_CASE("explain answers for every name of what a plan chooses") {
  std::vector<std::string> words = {"dp",     "dp_replicate", "dp_shard", "tp",      "pp",   "cp",          "ep",          "hpZ",
                                    "bubble", "1f1b",         "gpipe",    "alpha",   "rank", "lora",        "qlora",       "nf4",
                                    "fits",   "tight",        "runs",     "goodput", "MFU",  "micro-batch", "accumulation"};
  for (const Sharding one : {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) words.emplace_back(name(one));
  for (const Recompute one :
       {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull, Recompute::kEveryK})
    words.emplace_back(name(one));
  for (const Verdict one : {Verdict::kFits, Verdict::kTight, Verdict::kDoesNotFit}) words.emplace_back(name(one));
  for (const CpMethod one : {CpMethod::kRing, CpMethod::kAllGather, CpMethod::kUlysses}) words.emplace_back(name(one));
  for (const OffloadPlace one : {OffloadPlace::kHost, OffloadPlace::kNvme}) words.emplace_back(name(one));
  for (int i = 0; i <= static_cast<int>(LearningRateSchedule::kStep); ++i)
    words.emplace_back(name(static_cast<LearningRateSchedule>(i)));
  for (int i = 0; i <= static_cast<int>(BufferClass::kCheckpoint); ++i) words.emplace_back(name(static_cast<BufferClass>(i)));
  for (int i = 0; i <= static_cast<int>(InstructionOp::kCopyToDevice); ++i) words.emplace_back(name(static_cast<InstructionOp>(i)));
  for (const Dtype one : {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8}) words.emplace_back(name(one));
  for (const std::string& trainer : preset_ids(presets(), "trainers")) {
    words.push_back(trainer);
    const Result<Value> facts = read_preset(*find_preset(presets(), "trainers", trainer));
    REQUIRE(facts.ok());
    if (const Value* optimizers = facts->find("optimizers"))
      for (const Value& one : optimizers->items) words.push_back(one.text);
  }
  std::set<std::string> unanswered;
  for (const std::string& word : words)
    if (find_page(word) == nullptr && find_page_with(word) == nullptr) unanswered.insert(word);
  CHECK(fmt::format("{}", fmt::join(unanswered, ", ")) == "");
  REQUIRE(find_page("full") != nullptr);
  REQUIRE(find_page("dp") != nullptr);
  CHECK(find_page("full")->name == "activation");
  CHECK(find_page("dp")->name == "sharding");
}
