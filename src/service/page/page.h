// The page: HTML of the queue at "/", of a job at "/jobs/{job_uuid}", and the files below "/static/". No state of its own.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace distsetup {

enum class PageKind { kQueue, kJob };

// `data`: for kQueue queue_json(), for kJob job_json() with every detail (job_json.h). Whole HTML documents.
std::string render_page(PageKind kind, const Json& data);

struct StaticFile {
  std::string_view type;  // "text/css; charset=utf-8"
  std::string_view text;
};
std::optional<StaticFile> static_file(std::string_view name);  // "page.css"; nothing: there is none

}  // namespace distsetup
