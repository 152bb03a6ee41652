// Derivation of variants and their liveness. The rules are few:
//   saved    = what backward reads and forward wrote (or x); kept = saved minus dropped; x is always a legal stop when something is
//   dropped recompute: for each backward op in order, walk forward backwards from its dropped reads to kept tensors; taken ops go
//   right before it overlay  = a write takes the bytes of a read that dies at the same op, when the op's table says it may and the
//   sizes agree
#include "plan/program.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"

namespace distsetup {
namespace {

constexpr int kForever = std::numeric_limits<int>::max();

bool is_parameter(std::string_view name) { return name.starts_with("p:"); }
bool is_gradient(std::string_view name) { return name.starts_with("g:"); }

bool runs_in_forward(const Op& op, Pass pass) { return pass == Pass::kEvaluate || !is_of_chunk(op); }

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Names of tensors that forward writes, in order, each once.
std::vector<std::string> written_by_forward(const Program& program, Pass pass) {
  std::vector<std::string> names;
  for (const Op& op : program.forward)
    for (const std::string& w : op.writes)
      if (runs_in_forward(op, pass) && !contains(program.inputs, w) && !contains(names, w)) names.push_back(w);
  return names;
}

struct Planned {
  int op = 0;
  bool recomputed = false;
};

class Deriver {
 public:
  Deriver(const Program& program, const std::set<std::string>& dropped, Pass pass)
      : program_(program), dropped_(dropped), pass_(pass) {
    for (const TensorDecl& t : program.tensors)
      if (t.is_passing) dropped_.insert(t.name);
    out_.program = &program;
    out_.num_own_slots = add_slots(program.parameters, SlotHome::kOwn);
    for (const std::string& slot : program.borrowed_slots) add_slot(slot, SlotHome::kEmbedding);
    add_slots(program.shared_parameters, SlotHome::kShared);
    add_slots(program.expert_parameters, SlotHome::kExperts);
    add_slots(program.frozen_parameters, SlotHome::kFrozen);
    for (const std::string& slot : program.borrowed_frozen_slots) add_slot(slot, SlotHome::kFrozenEmbedding);
    add_slots(program.frozen_expert_parameters, SlotHome::kFrozenExperts);
    add_slots(program.quantized_parameters, SlotHome::kQuantized);
    add_slots(program.reference_parameters, SlotHome::kReference);
    for (const std::string& slot : program.borrowed_reference_slots) add_slot(slot, SlotHome::kReferenceEmbedding);
    forward_names_ = written_by_forward(program, pass);
    if (declares("x")) forward_names_.insert(forward_names_.begin(), "x");
  }

  ProgramVariant run() {
    if (pass_ == Pass::kTrain) find_saved();
    for (const Op& op : program_.forward)
      if (runs_in_forward(op, pass_)) out_.forward.push_back(bind(op, Mode::kForward));
    if (pass_ == Pass::kTrain) {
      for (const Planned& p : backward_order())
        out_.backward.push_back(
            bind(p.recomputed ? program_.forward[p.op] : program_.backward[p.op], p.recomputed ? Mode::kRecompute : Mode::kBackward));
    }
    out_.x = find("x");
    if (out_.x >= 0 && !is_read_by_backward(out_.x)) std::erase(out_.kept, "x");
    out_.y = find("y");
    out_.dy = find("dy");
    out_.dx = find("dx");
    out_.name = program_.name;
    return std::move(out_);
  }

 private:
  enum class Mode { kForward, kRecompute, kBackward };

  // Where no unit below is trained, what is computed again may not need the unit's input.
  bool is_read_by_backward(int tensor) const {
    const auto is_it = [tensor](const Operand& o) { return o.kind == Operand::Kind::kTensor && o.index == tensor; };
    return std::any_of(out_.backward.begin(), out_.backward.end(),
                       [&](const OpInstance& op) { return std::any_of(op.reads.begin(), op.reads.end(), is_it); });
  }

  void add_slot(const std::string& slot, SlotHome home) {
    out_.slots.push_back(slot);
    out_.homes.push_back(home);
  }
  int add_slots(const std::vector<ParameterDecl>& parameters, SlotHome home) {
    const size_t before = out_.slots.size();
    for (const ParameterDecl& p : parameters)
      if (out_.slots.size() == before || out_.slots.back() != p.slot) add_slot(p.slot, home);
    return static_cast<int>(out_.slots.size() - before);
  }

  bool declares(std::string_view name) const {
    return std::any_of(program_.tensors.begin(), program_.tensors.end(), [&](const TensorDecl& t) { return t.name == name; });
  }

  void find_saved() {
    std::set<std::string> rewritten;
    for (const Op& op : program_.backward) {
      for (const std::string& r : op.reads)
        if (contains(forward_names_, r) && !rewritten.contains(r) && !contains(out_.saved, r)) out_.saved.push_back(r);
      for (const std::string& w : op.writes) rewritten.insert(w);
    }
    // Rows that are gathered again need what they were gathered from.
    for (const Op& op : program_.forward) {
      const bool again = op.kind == OpKind::kAllGather && contains(out_.saved, op.writes[0]) && dropped_.contains(op.writes[0]);
      if (again && contains(forward_names_, op.reads[0]) && !contains(out_.saved, op.reads[0])) out_.saved.push_back(op.reads[0]);
    }
    for (const std::string& n : out_.saved)
      if (!dropped_.contains(n) || n == "x") out_.kept.push_back(n);
    if (!dropped_.empty() && declares("x") && !contains(out_.kept, "x") && !program_.backward.empty()) out_.kept.push_back("x");
  }

  // Backward with the recomputed forward ops merged in, each just before the first op that needs it.
  std::vector<Planned> backward_order() const {
    std::vector<Planned> order;
    std::set<std::string> have(out_.kept.begin(), out_.kept.end());
    std::set<int> done;
    for (int j = 0; j < static_cast<int>(program_.backward.size()); ++j) {
      std::set<std::string> need;
      for (const std::string& r : program_.backward[j].reads)
        if (contains(out_.saved, r) && !have.contains(r)) need.insert(r);
      std::vector<int> taken;
      for (int i = static_cast<int>(program_.forward.size()) - 1; i >= 0 && !need.empty(); --i) {
        const Op& op = program_.forward[i];
        const bool hit = std::any_of(op.writes.begin(), op.writes.end(), [&](const std::string& w) { return need.contains(w); });
        if (!hit) continue;
        for (const std::string& w : op.writes) need.erase(w);
        for (const std::string& r : op.reads)  // an in-place op asks for its own tensor again: the earlier writer joins
          if (contains(forward_names_, r) && !have.contains(r)) need.insert(r);
        taken.push_back(i);
      }
      CHECK(need.empty(), "op {} needs '{}'", program_.backward[j].name, *need.begin());
      for (auto it = taken.rbegin(); it != taken.rend(); ++it) {
        if (!done.insert(*it).second) continue;
        order.push_back({*it, true});
        for (const std::string& w : program_.forward[*it].writes) have.insert(w);
      }
      order.push_back({j, false});
    }
    return order;
  }

  int instance(const std::string& name, std::string_view base) {
    for (int i = 0; i < static_cast<int>(out_.tensors.size()); ++i)
      if (out_.tensors[i].name == name) return i;
    for (const TensorDecl& t : program_.tensors) {
      if (t.name != base) continue;
      out_.tensors.push_back({name, &t});
      return static_cast<int>(out_.tensors.size()) - 1;
    }
    CHECK(false, "program {}: tensor '{}' is not declared", distsetup::name(program_.kind), base);
    return -1;
  }

  int find(std::string_view name) const {
    for (int i = 0; i < static_cast<int>(out_.tensors.size()); ++i)
      if (out_.tensors[i].name == name) return i;
    return -1;
  }

  Operand operand(const std::string& name, Mode mode, bool write) {
    using Kind = Operand::Kind;
    if (is_parameter(name) || is_gradient(name)) {
      const auto it = std::find(out_.slots.begin(), out_.slots.end(), name.substr(2));
      CHECK(it != out_.slots.end(), "program {}: no slot '{}'", distsetup::name(program_.kind), name);
      return {is_parameter(name) ? Kind::kParameter : Kind::kGradient, static_cast<int>(it - out_.slots.begin())};
    }
    const auto input = std::find(program_.inputs.begin(), program_.inputs.end(), name);
    if (input != program_.inputs.end()) return {Kind::kInput, static_cast<int>(input - program_.inputs.begin())};
    if (mode == Mode::kForward || !contains(forward_names_, name)) return {Kind::kTensor, instance(name, name)};
    const bool kept = contains(out_.kept, name);
    if (mode == Mode::kBackward) {
      CHECK(!write, "backward op rewrites the forward tensor '{}'", name);
      return {Kind::kTensor, instance(kept ? name : name + ".r", name)};
    }
    if (!kept) return {Kind::kTensor, instance(name + ".r", name)};
    return {Kind::kTensor, instance(write ? name + ".dead" : name, name)};
  }

  OpInstance bind(const Op& op, Mode mode) {
    OpInstance bound{&op, mode == Mode::kRecompute, {}, {}};
    for (const std::string& r : op.reads) bound.reads.push_back(operand(r, mode, false));
    for (const std::string& w : op.writes) bound.writes.push_back(operand(w, mode, true));
    return bound;
  }

  const Program& program_;
  std::set<std::string> dropped_;
  const Pass pass_;
  std::vector<std::string> forward_names_;
  ProgramVariant out_;
};

// One pass as lifetimes over its ops.
class PassLiveness {
 public:
  PassLiveness(const ProgramVariant& variant, const std::vector<OpInstance>& ops, std::vector<int64_t> bytes)
      : variant_(variant), ops_(ops), bytes_(std::move(bytes)), lives_(variant.tensors.size()) {
    for (int j = 0; j < num_ops(); ++j) {
      for (const Operand& r : ops[j].reads) touch(r, j);
      for (const Operand& w : ops[j].writes) touch(w, j);
    }
  }
  int num_ops() const { return static_cast<int>(ops_.size()); }

  void alive_at_entry(int tensor) {
    if (tensor >= 0) lives_[tensor].first = -1, lives_[tensor].last = std::max(lives_[tensor].last, -1), lives_[tensor].used = true;
  }
  void alive_at_exit(int tensor) {
    if (tensor >= 0 && lives_[tensor].used) lives_[tensor].last = kForever;
  }

  PassProfile run() {
    overlay();
    PassProfile out;
    std::vector<int64_t> live_bytes(ops_.size(), 0);
    for (size_t t = 0; t < lives_.size(); ++t) {
      const Life& life = lives_[t];
      if (!life.used || life.root >= 0) continue;
      if (life.first < 0) out.entry_bytes += bytes_[t];
      if (life.last == kForever) out.exit_bytes += bytes_[t];
      for (int j = std::max(life.first, 0); j < num_ops() && j <= life.last; ++j) live_bytes[j] += bytes_[t];
    }
    const int born = first_gradient_write();
    for (int j = 0; j < num_ops(); ++j) {
      int64_t& peak = j < born ? out.peak_bytes : out.late_peak_bytes;
      peak = std::max(peak, live_bytes[j]);
    }
    return out;
  }

 private:
  struct Life {
    int first = 0, last = -1, root = -1;
    bool used = false;
  };

  void touch(const Operand& o, int j) {
    if (o.kind != Operand::Kind::kTensor) return;
    Life& life = lives_[o.index];
    if (!life.used) life.first = j, life.used = true;
    life.last = j;
  }

  int root(int t) const {
    while (lives_[t].root >= 0) t = lives_[t].root;
    return t;
  }

  void overlay() {
    for (int j = 0; j < num_ops(); ++j) {
      for (const Overlay& over : ops_[j].op->over) {
        const Operand w = ops_[j].writes[over.write], r = ops_[j].reads[over.read];
        if (w.kind != Operand::Kind::kTensor || r.kind != Operand::Kind::kTensor) continue;
        const int from = root(r.index);
        if (lives_[w.index].root >= 0) continue;  // it lies over an earlier operand already
        if (lives_[w.index].first != j || lives_[from].last != j || bytes_[from] != bytes_[w.index]) continue;
        lives_[w.index].root = from;
        lives_[from].last = lives_[w.index].last;
      }
    }
  }

  // Of the unit's own slots: borrowed ones live in another unit's buffer.
  int first_gradient_write() const {
    for (int j = 0; j < num_ops(); ++j)
      for (const Operand& w : ops_[j].writes)
        if (w.kind == Operand::Kind::kGradient && w.index < variant_.num_own_slots) return j;
    return num_ops();
  }

  const ProgramVariant& variant_;
  const std::vector<OpInstance>& ops_;
  const std::vector<int64_t> bytes_;
  std::vector<Life> lives_;
};

}  // namespace

std::string_view name(UnitKind kind) {
  switch (kind) {
    case UnitKind::kEmbedding: return "embedding";
    case UnitKind::kBlock: return "block";
    case UnitKind::kHead: return "head";
    case UnitKind::kShared: return "shared";
    case UnitKind::kExperts: return "experts";
    case UnitKind::kFrozen: return "frozen";
  }
  return "?";
}

std::string parameter_prefix(const Program& program, int64_t layer) {
  constexpr std::string_view kLayer = "{layer}";
  std::string prefix = program.prefix;
  if (const size_t at = prefix.find(kLayer); at != std::string::npos) prefix.replace(at, kLayer.size(), std::to_string(layer));
  return prefix;
}

std::span<const AttributeField> attribute_fields() {
  static constexpr AttributeField kFields[] = {{"epsilon", &OpAttributes::epsilon},
                                               {"weight_offset", &OpAttributes::weight_offset},
                                               {"multiplier", &OpAttributes::multiplier},
                                               {"scale", &OpAttributes::scale},
                                               {"soft_cap", &OpAttributes::soft_cap},
                                               {"window", &OpAttributes::window},
                                               {"ring_step", &OpAttributes::ring_step},
                                               {"column", &OpAttributes::column},
                                               {"low_column", &OpAttributes::low_column},
                                               {"normalized", &OpAttributes::normalized},
                                               {"groups", &OpAttributes::groups},
                                               {"groups_chosen", &OpAttributes::groups_chosen},
                                               {"tensor_ranks", &OpAttributes::tensor_ranks},
                                               {"chosen", &OpAttributes::chosen},
                                               {"first_row", &OpAttributes::first_row},
                                               {"limit", &OpAttributes::limit},
                                               {"alpha", &OpAttributes::alpha},
                                               {"beta", &OpAttributes::beta},
                                               {"label_smoothing", &OpAttributes::label_smoothing}};
  return kFields;
}

ProgramVariant derive(const Program& program, const std::set<std::string>& dropped, Pass pass) {
  return Deriver(program, dropped, pass).run();
}

std::vector<int64_t> shape_of(const TensorDecl& decl, const Symbols& symbols) {
  std::vector<int64_t> shape;
  for (const std::string& e : decl.shape) shape.push_back(evaluate(e, symbols));
  return shape;
}

int64_t bytes_of(const TensorDecl& decl, const Symbols& symbols, Dtype compute) {
  int64_t n = size_bytes(decl.dtype == Dtype::kCompute ? compute : decl.dtype);
  for (const std::string& e : decl.shape) n *= evaluate(e, symbols);
  return n;
}

VariantProfile profile(const ProgramVariant& variant, const Symbols& symbols, Dtype compute, const std::set<int>& elsewhere) {
  std::vector<int64_t> bytes;
  for (const TensorInstance& t : variant.tensors) bytes.push_back(aligned(bytes_of(*t.decl, symbols, compute)));
  for (const int t : elsewhere) bytes[static_cast<size_t>(t)] = 0;
  const auto index = [&](const std::string& name) {
    for (size_t i = 0; i < variant.tensors.size(); ++i)
      if (variant.tensors[i].name == name) return static_cast<int>(i);
    return -1;
  };
  VariantProfile out;
  PassLiveness forward(variant, variant.forward, bytes);
  forward.alive_at_entry(variant.x);
  for (const std::string& n : variant.kept) forward.alive_at_exit(index(n));
  forward.alive_at_exit(variant.y);
  out.forward = forward.run();
  if (variant.backward.empty()) return out;
  PassLiveness backward(variant, variant.backward, bytes);
  for (const std::string& n : variant.kept) backward.alive_at_entry(index(n));
  backward.alive_at_entry(variant.dy);
  backward.alive_at_exit(variant.dx);
  out.backward = backward.run();
  return out;
}

}  // namespace distsetup
