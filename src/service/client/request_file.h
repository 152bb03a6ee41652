// A request to train, from a file: the body of the API's call, as the documents of Llama Stack have it.
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "base/json.h"

namespace distsetup {

struct RequestFile {
  std::string action;  // "preference-optimize", "supervised-fine-tune"
  Json body;
};

// `path` "-": standard input. `method` "dpo", "sft", or "": as algorithm_config says.
Result<RequestFile> read_request_file(const std::string& path, const std::string& method);
// The body of POST /v1/plan for it.
Json plan_request(const RequestFile& request);
// Rows of a .jsonl or of a .json with a list.
Result<Json> read_rows(const std::string& path);

}  // namespace distsetup
