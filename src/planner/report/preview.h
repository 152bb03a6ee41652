// The preview: a Plan as one page. Everything printed is read off the Plan; nothing is computed again.
#pragma once
#include <string>
#include <vector>

#include "planner/search/make_plan.h"

namespace distsetup {

struct PreviewOptions {
  int width = 80;
  Colour colour = Colour::kOff;
  bool utf8 = true;
  std::vector<SmallestFit> smallest_fits = {};
};
std::string format_preview(const Plan& plan, const PreviewOptions& options = {});

}  // namespace distsetup
