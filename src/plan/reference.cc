#include "plan/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/diagnostic_codes.h"
#include "plan/frozen.h"

namespace distsetup {
namespace {

void leave_adapters_out(Program& program) {
  std::set<std::string> adapters;  // operands, and what is made of them
  for (const std::vector<ParameterDecl>* list : {&program.parameters, &program.shared_parameters})
    for (const ParameterDecl& p : *list)
      if (is_adapter_name(p.name)) adapters.insert("p:" + p.slot);
  std::erase_if(program.forward, [&](const Op& op) {
    const auto is_of_one = [&](const std::string& r) { return adapters.contains(r); };
    if (std::none_of(op.reads.begin(), op.reads.end(), is_of_one)) return false;
    for (const std::string& w : op.writes)
      if (std::find(op.reads.begin(), op.reads.end(), w) == op.reads.end()) adapters.insert(w);  // not what it adds to
    return true;
  });
}

void read_copies(Program& program) {
  for (std::vector<ParameterDecl>* trained : {&program.parameters, &program.shared_parameters}) {
    program.reference_parameters.insert(program.reference_parameters.end(), trained->begin(), trained->end());
    trained->clear();
  }
  program.borrowed_reference_slots = std::exchange(program.borrowed_slots, {});
}

void keep_logps(Program& head) {
  std::erase_if(head.forward, [](const Op& op) { return op.kernel == "logits_gradient"; });
  for (Op& op : head.forward) {
    if (!op.kernel.starts_with("dpo_")) continue;
    op.kernel = "reference_logps";
    op.reads.resize(1);
    op.writes = {"reference_logps"};
    op.attributes = {};
  }
}

Program reference_of(Program program, bool has_copies) {
  program.name = "reference." + program.name;
  program.backward.clear();
  has_copies ? read_copies(program) : leave_adapters_out(program);
  if (program.kind == UnitKind::kHead) keep_logps(program);
  return program;
}

}  // namespace

std::shared_ptr<const NativePrograms> reference_programs(const NativePrograms& policy, bool has_copies) {
  NativePrograms p = policy;
  p.embedding = reference_of(policy.embedding, has_copies);
  p.head = reference_of(policy.head, has_copies);
  for (Program& block : p.blocks) block = reference_of(std::move(block), has_copies);
  return std::make_shared<const NativePrograms>(std::move(p));
}

Diagnostics check_reference(const Plan& plan) {
  Diagnostics out;
  const TrainPlan& t = plan.train;
  const std::string& reference = t.preference.reference;
  const auto refuse = [&](bool condition, std::string_view code, std::string message, std::string help) {
    if (condition) out.push_back(error(code, {}, std::move(message), std::move(help)));
  };
  refuse(!runs_reference(t.preference) && reference != "cached" && reference != "none", code::kUnknownValue,
         fmt::format("reference is '{}', expected cached, shared, sharded or none", reference), "--reference cached");
  refuse(reference == "shared" && t.finetune == "full", code::kConflict,
         "reference 'shared' is the model without its adapters, and this plan has no adapters",
         "--reference cached or --reference sharded, or adapters: --adapter lora");
  return out;
}

}  // namespace distsetup
