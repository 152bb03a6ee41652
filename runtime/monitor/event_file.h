// The numbers of metrics.jsonl as TensorBoard reads them: a file of events in a folder, appended while the run goes on. Every process
// of a run has a file of its own; its first event says from which step on it counts, so that TensorBoard forgets what an earlier
// process wrote beyond that step.
// Formats: TFRecord (tensorflow/core/lib/io/record_writer.h: length, data, and of each a masked CRC-32C) around messages Event,
// Summary, SessionLog (tensorboard/compat/proto/event.proto, summary.proto).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/json_fwd.h"

namespace distsetup {

// CRC-32C (Castagnoli), RFC 3720 appendix B.4.
uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  EventFile() = default;
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();
  // Makes the folder and a new file in it. `step`: steps from here on are this process's.
  Diagnostics open(const std::string& directory, int64_t step);
  bool is_open() const { return fd_ >= 0; }
  // A line of metrics.jsonl: each number of it but "step" is a scalar, called kind/name: step/loss, evaluation/held_out_loss.
  // Errors (kUnwritableFile): disk full.
  Diagnostics write(const Json& line);

 private:
  Diagnostics append(std::string_view event);

  std::string path_;
  int fd_ = -1;
};

}  // namespace distsetup
