#include "service/page/files_page.h"

#include "base/quantity.h"
#include "service/page/html.h"
#include "service/page/json_values.h"

namespace distsetup {

std::string files_page(std::string_view job_id, std::string_view identifier, const Json& files, std::string_view version) {
  Json rows = Json::array();
  int64_t bytes = 0;
  for (const Json& file : list_at(files, "/files")) {
    bytes += whole_at(file, "/bytes");
    rows.push_back(
        {{"name", text_at(file, "/name")}, {"url", text_at(file, "/url")}, {"bytes", format_bytes(whole_at(file, "/bytes"))}});
  }
  return render_html("files", {{"title", std::string(identifier)},
                               {"id", std::string(job_id)},
                               {"version", std::string(version)},
                               {"is_live", false},
                               {"sum", format_bytes(bytes)},
                               {"files", rows}});
}

}  // namespace distsetup
