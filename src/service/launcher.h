// What a job runs as, one command list for its keeper: here the kinds of launchers differ, and nowhere else.
#pragma once
#include "base/diagnostic.h"
#include "service/job_folder.h"
#include "service/job_record.h"
#include "service/keeper.h"
#include "service/service_settings.h"

namespace distsetup {

// Names of files in a job's folder.
inline constexpr char kRowsFile[] = "rows.jsonl";
inline constexpr char kValidationFile[] = "validation.jsonl";
inline constexpr char kPreparedSet[] = "set";
inline constexpr char kFinalModel[] = "fsdp_dpo_model";  // below the checkpoint folder; inline: dpo_model

std::string final_model_folder(const ServiceSettings& settings, const JobFacts& facts);
// Data, a search for settings where one is asked for, plan, launch, export: what is done already is not done again.
// `master_port`: where the ranks of several nodes meet.
KeeperOrders keeper_orders(const ServiceSettings& settings, const JobRecord& job, const JobFacts& facts, int master_port);

}  // namespace distsetup
