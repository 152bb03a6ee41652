// The table of `distsetup plan --deadline`, `--budget` and `--compare-gpus`.
#pragma once
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cli/line/flags.h"
#include "planner/search/offers.h"

namespace distsetup {

bool asks_for_offers(const Arguments& arguments);
Result<OfferWish> offer_wish(const Arguments& arguments);
std::string offers_text(const std::vector<GpuOffer>& rows, const Problem& problem, int width);
Json offers_json(const std::vector<GpuOffer>& rows);

}  // namespace distsetup
