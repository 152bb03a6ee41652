// What handlers work on. One Service per process; everything in it may be used from any thread.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "service/dataset_store.h"
#include "service/event_log.h"
#include "service/job_store.h"
#include "service/node_book.h"
#include "service/service_settings.h"

namespace distsetup {

class JobQueue;

struct ServiceCounters {
  std::atomic<int64_t> requests{0}, refused{0}, failed{0};  // all; 4xx; 5xx
  std::atomic<int64_t> streams{0};                          // event streams that are open
};

struct Service {
  ServiceSettings settings;
  EventLog* log = nullptr;
  JobStore* jobs = nullptr;
  DatasetStore* datasets = nullptr;
  JobQueue* queue = nullptr;
  ServiceCounters counters;
  NodeBook nodes;
  TimeMs started_ms = 0;
  std::atomic<bool> is_stopping{false};
  std::atomic<bool> is_remote_healthy{true};  // of a front, which looks now and then
};

}  // namespace distsetup
