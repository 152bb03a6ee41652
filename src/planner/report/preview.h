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
  bool brief = false;  // five lines: model, machines, verdict, strategy, batch
  std::vector<SmallestFit> smallest_fits = {};
};
std::string format_preview(const Plan& plan, const PreviewOptions& options = {});
// The line of the verdict alone, to be repeated below a preview that is longer than the terminal.
std::string verdict_line(const Plan& plan, const PreviewOptions& options = {});

}  // namespace distsetup
