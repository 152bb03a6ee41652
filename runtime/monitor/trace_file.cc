// See trace_file.h.
#include "runtime/monitor/trace_file.h"

#include <fmt/format.h>

#include <fstream>

#include "base/json.h"
#include "runtime/monitor/failure.h"

namespace distsetup {

TraceFile::TraceFile(Communicator& inner, const std::string& path)
    : tracer_(inner), path_(inner.rank() == 0 ? path : fmt::format("{}.rank{}", path, inner.rank())) {}

void TraceFile::end_step(int64_t step) {
  Json records = Json::array();
  for (const CommunicationRecord& record : tracer_.records()) {
    records.push_back({{"op", record.op},
                       {"group", name(record.group)},
                       {"channel", static_cast<int>(record.channel)},
                       {"bytes", record.bytes},
                       {"event", record.event},
                       {"waited", record.waited}});
  }
  std::ofstream file(path_, is_new_ ? std::ios::trunc : std::ios::app);
  file << Json({{"step", step}, {"records", std::move(records)}}).dump() << '\n';
  if (!file.flush()) throw Failure(kExitFailed, fmt::format("cannot write '{}'", path_));
  is_new_ = false;
}

}  // namespace distsetup
