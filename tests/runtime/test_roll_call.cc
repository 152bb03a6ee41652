// What is said about ranks that keep others waiting, and the text of the scrape.
#include <catch2/catch.hpp>

#include "runtime/monitor/open_metrics.h"
#include "runtime/monitor/roll_call.h"

using namespace distsetup;

namespace {

RankStand at(int64_t beat, std::string where, std::string waits, int64_t begun) {
  return {beat, "training step 12", std::move(where), std::move(waits), 3.5, {{"reduce data", begun}}};
}

}  // namespace

TEST_CASE("a stand survives its text, and what is none has no beat") {
  const RankStand stand = at(7, "instruction 4: Forward 1", "AllReduce over data", 31);
  const RankStand back = stand_from_text(to_text(stand));
  CHECK((back.beat == 7 && back.phase == stand.phase && back.at == stand.at && back.waits == stand.waits && back.since_s == 3.5));
  CHECK(back.begun == stand.begun);
  for (const char* text : {"", "{", "[]", "{\"beat\": 3}", "null"}) CHECK(stand_from_text(text).beat == 0);
}

TEST_CASE("who has not come is told from who gives no sign of life") {
  const std::string sum = "instruction 9: AllReduce over data", compute = "instruction 4: Forward 1";
  const std::vector<RankStand> earlier = {at(5, sum, "AllReduce over data", 31), at(5, sum, "AllReduce over data", 31),
                                          at(5, compute, "", 30), at(2, compute, "", 30)};
  std::vector<RankStand> later = earlier;
  for (int r : {0, 1, 2}) later[static_cast<size_t>(r)].beat += 3;
  const Awaited awaited = {"AllReduce over data", "reduce data", 31, {0, 1, 2, 3}};
  CHECK(waiting_line(0, 12, awaited, earlier, later) ==
        "rank 0 has waited 12.0 s in AllReduce over data (training step 12, instruction 9: AllReduce over data): ranks 2, 3 of 4 not "
        "come: "
        "training step 12, instruction 4: Forward 1; no sign of life from rank 3");
  CHECK(roll_call(earlier, later) ==
        "roll call of 4 ranks\n"
        "  ranks 0, 1: training step 12, instruction 9: AllReduce over data, waits in AllReduce over data\n"
        "  rank 2: training step 12, instruction 4: Forward 1\n"
        "  rank 3: training step 12, instruction 4: Forward 1; no sign of life since then\n");
  for (RankStand& stand : later) stand.begun["reduce data"] = 31;
  CHECK(waiting_line(1, 12, awaited, earlier, later).find(": all 4 ranks have come to it; no sign of life from rank 3") !=
        std::string::npos);
}

TEST_CASE("addresses to scrape at") {
  CHECK(metrics_address_from("127.0.0.1:9400")->port == 9400);
  CHECK(metrics_address_from(":9400")->host == "127.0.0.1");
  CHECK(metrics_address_from("[::1]:80")->host == "::1");
  CHECK(metrics_address_from("node-3:65535")->host == "node-3");
  for (const char* text : {"", "9400", ":", ":0", ":65536", "a:b", "::1:80", "[]:80", "a b:80", "http://a:80", "a:80 "})
    CHECK_FALSE(metrics_address_from(text).has_value());
  RunNumbers numbers;
  numbers.model = "a \"b\"\n";
  const std::string text = open_metrics_text(numbers);
  CHECK(text.find("distsetup_run_info{model=\"a \\\"b\\\"\\n\"} 1\n") != std::string::npos);
  CHECK(text.find("distsetup_loss") == std::string::npos);  // not known yet
  CHECK(text.substr(text.size() - 6) == "# EOF\n");
}
