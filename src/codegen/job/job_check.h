// What every check of a job's options does: complain about one, or set a field.
#pragma once

#include <string>
#include <string_view>

#include "codegen/tables/target.h"

namespace distsetup {

bool is_name_of(std::string_view text, std::string_view also);  // ASCII letters, digits, and what `also` holds

struct JobCheck {
  Fields fields;
  Diagnostics diagnostics;
  const Location at{"command line", 0, 0};

  void fail(const char* code, std::string message, std::string help = "");
  void set(const char* field, Json value);
  bool one_line(const char* flag, const std::string& value);  // no control characters
  void text(const char* field, const char* flag, const std::string& value);

  // Names that end up where no quoting exists: a host on a command line, a device, a resource.
  void plain(const char* field, const char* flag, const std::string& value, std::string_view also);

  int64_t duration_s(const std::string& value);  // 0 after a complaint
};

// How a job ends (job_ending.cc).
int64_t put_time_limit(JobCheck& check, const JobOptions& options);  // seconds
void put_ending(JobCheck& check, const JobOptions& options, const Plan* plan, int64_t limit_s);

}  // namespace distsetup
