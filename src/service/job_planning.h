// A request becomes a plan: read by the tables of `distsetup convert`, completed with the service's own settings, planned by
// `distsetup plan`. The request wins over the provider's configuration; what differs between them is a warning.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "service/http_message.h"
#include "service/job_folder.h"
#include "service/service.h"
#include "service/training_words.h"

namespace distsetup {

struct PlanningInput {
  Json request;  // as the client sent it
  std::string method;
  std::string model;               // a folder, or a preset's name
  std::string provider_text;       // "": none
  Json provider;                   // the same as a tree
  int64_t num_rows = 0;            // 0: not known, steps are not counted
  std::vector<std::string> over;   // words that win over all others: a /v1/plan's hardware
  bool takes_any_trainer = false;  // what the bundled one cannot run is planned with the first that can; the plan names it
};

struct PlanningOutcome {
  std::optional<HttpAnswer> refused;  // nothing was planned
  std::vector<std::string> words;     // of `distsetup plan`, without data and output, for the folder of the files
  Json plan;                          // plan_shape(), with not_supported, warnings, recommendation
  StepCounts counts;
  int64_t log_every = 0, tune_steps = 0;  // as of JobFacts
  std::string prompt_format;
  bool does_fit = false;
};

// Writes request.json, run.yaml and provider.yaml into `folder`, and asks `distsetup`.
PlanningOutcome plan_training(Service& service, const std::string& folder, const PlanningInput& input);

// The rule of thumb for the plan's model beside what its memory says: {rule, recommended, agrees, why}.
Json recommendation(const std::string& folder, const PlanningOutcome& outcome);

// The service's configuration file without its section `serve`, lines kept; "": nothing is left. And as a tree.
std::string provider_text_of(const ServiceSettings& settings);
Json provider_tree_of(const ServiceSettings& settings);

}  // namespace distsetup
