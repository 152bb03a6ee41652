// Receives are posted one action ahead, so that what travels is there when it is needed; a send is waited for when its buffer is
// needed again. The head runs forward with its backward: nothing lies between them, so what it keeps need not be kept for long.
#include "plan/compile_pipeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/check.h"
#include "plan/activation_writer.h"
#include "plan/carried_routes.h"
#include "plan/live.h"
#include "plan/pipeline.h"
#include "plan/unit_compiler.h"

namespace distsetup {
namespace {

// Buffers taken in turn; the transfer that each was last part of.
struct BufferRing {
  std::vector<int> buffers, events;  // event -1: none that nobody has waited for
  size_t next = 0;

  size_t take() { return next++ % buffers.size(); }
};

class PipelineCompiler final : public UnitCompiler {
 public:
  PipelineCompiler(const Plan& plan, Phase phase, int stage, LayoutDetail detail)
      : UnitCompiler(plan, phase, stage, detail),
        stage_(stage),
        chunks_(stage_chunks(plan.model.num_layers, plan.mesh.pp, plan.strategy.virtual_stages, stage)),
        carries_routes_(carried_routes_bytes(s_.programs->embedding, s_.symbols) > 0),
        message_bytes_(message_bytes()) {
    if (has_host_activations(plan) && phase == Phase::kStep) activations_.emplace(static_cast<ScheduleWriter&>(*this), chunks_);
  }

 private:
  const UnitSpan& span(int chunk) const { return chunks_[static_cast<size_t>(chunk)]; }
  bool is_first(int chunk) const { return span(chunk).first == 0; }
  bool is_last(int chunk) const { return span(chunk).last == head(); }
  const ProgramVariant& variant(int u) const { return *s_.variants[s_.unit_variant[u]]; }
  int64_t tensor_bytes(int u, int tensor) const {
    return aligned(bytes_of(*variant(u).tensors[static_cast<size_t>(tensor)].decl, s_.symbols, s_.compute));
  }

  // What travels: the rows between two units, and behind them what their routers have chosen.
  int64_t message_bytes() const {
    const int u = chunks_.front().last;
    return tensor_bytes(u, u == head() ? variant(u).x : variant(u).y) + carried_routes_bytes(s_.programs->embedding, s_.symbols);
  }

  // --- buffers of the step

  int step_buffer(std::string name, int64_t bytes) {
    const int b = add_buffer(std::move(name), BufferClass::kActivation, bytes, s_.compute, BufferLifetime::kStep);
    step_buffers_.push_back(b);
    return b;
  }

  BufferRing make_ring(const std::string& kind, int chunk, int64_t count, int64_t bytes) {
    BufferRing ring;
    for (int64_t n = 0; n < count; ++n)
      ring.buffers.push_back(step_buffer((chunk < 0 ? "" : std::to_string(chunk) + ".") + std::to_string(n) + "/" + kind, bytes));
    ring.events.assign(ring.buffers.size(), -1);
    return ring;
  }

  // --- where parameters are frozen: backward ends at the lowest unit that is trained, also where another stage has it

  bool turns_back(int u) const {
    const NativePrograms& p = *s_.programs;
    return !(u == 0 ? p.embedding : u == head() ? p.head : p.block(u - 1)).backward.empty();
  }
  bool has_backward(int chunk) const { return turns_back(span(chunk).last); }
  bool sends_gradient(int chunk) const { return !is_first(chunk) && turns_back(span(chunk).first - 1); }

  std::vector<PipelineAction> actions() const {
    std::vector<PipelineAction> order =
        pipeline_order(plan_.mesh.pp, static_cast<int>(chunks_.size()), plan_.gradient_accumulation, stage_);
    std::erase_if(order, [&](const PipelineAction& a) { return !a.is_forward && !has_backward(a.chunk); });
    return order;
  }

  // What units of a variant keep: layers have it in common.
  struct KeptTensor {
    int tensor = 0;
    int64_t bytes = 0;
  };
  const std::vector<KeptTensor>& kept_tensors(int u) {
    const auto [known, fresh] = kept_tensors_.try_emplace(s_.unit_variant[u]);
    const ProgramVariant& v = variant(u);
    for (int t = 0; fresh && t < static_cast<int>(v.tensors.size()); ++t)
      if (is_kept_by_stage(v, t, u == head())) known->second.push_back({t, tensor_bytes(u, t)});
    return known->second;
  }

  // Where each unit of a chunk keeps what its backward reads. The bytes of all.
  int64_t lay_out_kept(int chunk) {
    int64_t bytes = 0;
    for (int u = span(chunk).first; u <= span(chunk).last; ++u) {
      const ProgramVariant& v = variant(u);
      std::vector<int64_t>& offset = s_.kept_offset[static_cast<size_t>(u)];
      offset.assign(v.tensors.size(), -1);
      for (const KeptTensor& kept : kept_tensors(u)) {
        CHECK(kept.tensor != v.y, "{} keeps its own output", v.name);
        if (kept.tensor == v.x && u == span(chunk).first) continue;  // it has come from another stage
        offset[static_cast<size_t>(kept.tensor)] = bytes;
        bytes += kept.bytes;
      }
    }
    return bytes;
  }

  // Per chunk: micro-batches under way at once, and one more x, which is on its way.
  void make_buffers(const std::vector<int>& in_flight) {
    const bool trains = s_.phase == Phase::kStep;
    if (trains) s_.kept_offset.resize(s_.unit_variant.size());
    bool sends = false, receives = false, takes_gradients = false, sends_gradients = false;
    for (int c = 0; c < static_cast<int>(chunks_.size()); ++c) {
      const int64_t count = has_backward(c) ? in_flight[static_cast<size_t>(c)] : 1;
      const int64_t kept_bytes = trains && has_backward(c) && !activations_.has_value() ? lay_out_kept(c) : 0;
      kept_.push_back(kept_bytes > 0 ? make_ring("kept", c, count, kept_bytes) : BufferRing{});
      x_.push_back(is_first(c) ? BufferRing{} : make_ring("x", c, trains ? count + 1 : 1, message_bytes_));
      sends |= !is_last(c);
      receives |= !is_first(c);
      takes_gradients |= !is_last(c) && has_backward(c);
      sends_gradients |= sends_gradient(c);
    }
    if (sends) y_ = make_ring("y", -1, trains ? 2 : 1, message_bytes_);
    if (sends && runs_reference(s_)) reference_y_ = make_ring("reference_y", -1, trains ? 2 : 1, message_bytes_);
    if (receives && runs_reference(s_)) reference_x_ = make_ring("reference_x", -1, trains ? 2 : 1, message_bytes_);
    if (trains && takes_gradients) dy_ = make_ring("dy", -1, 2, message_bytes_);
    if (trains && sends_gradients) dx_ = make_ring("dx", -1, 2, message_bytes_);
  }

  static int of(const BufferRing& ring, int micro_batch) {
    return ring.buffers.empty() ? -1 : ring.buffers[static_cast<size_t>(micro_batch) % ring.buffers.size()];
  }

  // --- transfers

  int transfer(InstructionOp op, Stream stream, int unit, int micro_batch, int buffer) {
    Instruction& i = emit(op, unit);
    i.micro_batch = micro_batch;
    i.group = Group::kPp;
    i.bytes = message_bytes_;
    i.stream = stream;
    i.uses = {buffer};
    i.signals = new_event();
    return i.signals;
  }

  // What an action reads from another stage, or from the host, is on its way from here on.
  void post(const PipelineAction& a) {
    phase_ = a.is_forward ? "forward" : "backward";
    if (a.is_forward) {
      if (!is_first(a.chunk) && runs_reference(s_)) {  // which goes first
        const int buffer = reference_x_.buffers[reference_x_.take()];
        reference_arriving_ = {transfer(InstructionOp::kRecv, Stream::kFromPrevious, span(a.chunk).first, a.micro_batch, buffer),
                               buffer};
      }
      if (!is_first(a.chunk))
        arriving_ = {transfer(InstructionOp::kRecv, Stream::kFromPrevious, span(a.chunk).first, a.micro_batch,
                              of(x_[static_cast<size_t>(a.chunk)], a.micro_batch)),
                     -1};
    } else if (!is_last(a.chunk)) {
      const int buffer = dy_.buffers[dy_.take()];
      arriving_ = {transfer(InstructionOp::kRecv, Stream::kFromNext, span(a.chunk).last, a.micro_batch, buffer), buffer};
      if (activations_.has_value() && plan_.strategy.prefetch > 0) activations_->raise(span(a.chunk).last, a.micro_batch);
    }
  }

  struct Arrival {
    int event = -1, buffer = -1;
  };
  Arrival take_arrival() { return std::exchange(here_, {}); }

  // A buffer to send from, when the transfer it was last part of is done.
  size_t take_outgoing(Instruction& i, BufferRing& ring) const {
    const size_t at = ring.take();
    if (ring.events[at] >= 0) i.waits.push_back(std::exchange(ring.events[at], -1));
    return at;
  }

  // The next action's become this one's.
  void arrive() { here_ = std::exchange(arriving_, {}), reference_here_ = std::exchange(reference_arriving_, {}); }

  // --- units

  Instruction& program(InstructionOp op, int chunk, int u) {
    Instruction& i = op == InstructionOp::kForward ? emit_program(op, u) : emit_backward(u);
    i.chunk = chunk;
    i.stage.kept = of(kept_[static_cast<size_t>(chunk)], micro_batch_);
    if (u == span(chunk).first) i.stage.x = of(x_[static_cast<size_t>(chunk)], micro_batch_);
    return i;
  }

  void send_routes_along(Instruction& i, int from, int to) const {
    if (carries_routes_) i.stage.routes_in = from, i.stage.routes_out = to;
  }

  static void use_stage_tensors(Instruction& i) {
    for (const int b : {i.stage.kept, i.stage.x, i.stage.y, i.stage.dy, i.stage.dx})
      if (b >= 0) i.uses.push_back(b);
  }

  // Nothing that it makes is kept; its head leaves what the policy's reads next.
  void reference(int chunk, int u) {
    phase_ = u == head() ? "loss" : "forward";
    const auto gather = [&](int unit) {
      if (span(chunk).contains(unit)) ensure_gathered(unit, Reader::kReference);
    };
    for (int k = 0; k <= plan_.strategy.prefetch; ++k) gather(u + k);
    Instruction& i = emit_program(InstructionOp::kForward, u, kReference);
    i.chunk = chunk;
    if (u == span(chunk).first && !is_first(chunk)) {
      const Arrival x = std::exchange(reference_here_, {});
      i.stage.x = x.buffer;
      i.waits.push_back(x.event);
    }
    const bool sends = u == span(chunk).last && !is_last(chunk);
    const size_t at = sends ? take_outgoing(i, reference_y_) : 0;
    if (sends) i.stage.y = reference_y_.buffers[at];
    use_stage_tensors(i);
    for (const int bucket : needs(u, Reader::kReference)) release(i, bucket);
    if (sends) reference_y_.events[at] = transfer(InstructionOp::kSend, Stream::kToNext, u, micro_batch_, reference_y_.buffers[at]);
  }

  void reference(int chunk) {
    for (int u = span(chunk).first; u <= span(chunk).last; ++u) reference(chunk, u);
  }

  void forward(int chunk, int u, int last) {
    phase_ = u == head() ? "loss" : "forward";
    ensure_gathered(u, Reader::kForward);
    for (int k = 1; k <= plan_.strategy.prefetch; ++k) ensure_gathered(u + k <= last ? u + k : -1, Reader::kForward);
    Instruction& i = program(InstructionOp::kForward, chunk, u);
    if (i.stage.x >= 0) i.waits.push_back(take_arrival().event);
    const bool sends = u == span(chunk).last && !is_last(chunk);
    const size_t at = sends ? take_outgoing(i, y_) : 0;
    if (sends) i.stage.y = y_.buffers[at];
    send_routes_along(i, i.stage.x, i.stage.y);
    use_stage_tensors(i);
    const bool is_turn = u == head() && s_.phase != Phase::kEvaluate;  // its backward follows
    const std::vector<int>& again = needs(u, Reader::kBackward);
    for (const int bucket : needs(u, Reader::kForward))
      if (!is_turn || std::find(again.begin(), again.end(), bucket) == again.end()) release(i, bucket);
    if (activations_.has_value()) activations_->forward(u, u != head() && !(u == last && turns_round_));
    if (sends) y_.events[at] = transfer(InstructionOp::kSend, Stream::kToNext, u, micro_batch_, y_.buffers[at]);
  }

  void backward(int chunk, int u) {
    phase_ = "backward";
    ensure_gathered(u, Reader::kBackward);
    for (int k = 1; k <= plan_.strategy.prefetch; ++k)
      ensure_gathered(u - k >= std::max(span(chunk).first, 1) ? u - k : -1, Reader::kBackward);
    for (int k = 0; k <= plan_.strategy.prefetch && activations_.has_value(); ++k)
      if (span(chunk).contains(u - k)) activations_->raise(u - k, micro_batch_);
    Instruction& i = program(InstructionOp::kBackward, chunk, u);
    if (u == span(chunk).last && !is_last(chunk)) {
      const Arrival dy = take_arrival();
      i.stage.dy = dy.buffer;
      i.waits.push_back(dy.event);
    }
    const bool sends = u == span(chunk).first && sends_gradient(chunk);
    const size_t at = sends ? take_outgoing(i, dx_) : 0;
    if (sends) i.stage.dx = dx_.buffers[at];
    send_routes_along(i, i.stage.dy, i.stage.dx);
    use_stage_tensors(i);
    for (const int bucket : needs(u, Reader::kBackward)) release(i, bucket);
    if (activations_.has_value()) activations_->backward(u);
    if (sends) dx_.events[at] = transfer(InstructionOp::kSend, Stream::kToPrevious, u, micro_batch_, dx_.buffers[at]);
  }

  void run_forward(int chunk) {
    CHECK(!is_last(chunk) || turns_round_ || !has_backward(chunk), "the last chunk goes on with another micro-batch");
    if (runs_reference(s_)) reference(chunk);
    const int last = is_last(chunk) ? head() - 1 : span(chunk).last;
    for (int u = span(chunk).first; u <= last; ++u) forward(chunk, u, last);
  }

  void run_backward(int chunk, bool last) {
    if (is_last(chunk)) forward(chunk, head(), head());
    for (int u = span(chunk).last; u >= span(chunk).first && turns_back(u); --u) {
      backward(chunk, u);
      after_program_backward(u, last);
      if (u == head() && s_.layout->units.front().is_copy) after_backward(0, last);
    }
    if (const int shared = s_.layout->shared_unit(span(chunk).last); shared >= 0) after_backward(shared, last);
    finish_gradients(last);
  }

  // --- phases

  void begin(const std::vector<int>& in_flight) {
    make_buffers(in_flight);
    start_loss();
    s_.instructions.back().allocates = step_buffers_;
  }

  void wait_for_sends() {
    std::vector<int> events;
    for (BufferRing* ring : {&reference_y_, &y_, &dx_}) {
      for (int& event : ring->events)
        if (event >= 0) events.push_back(std::exchange(event, -1));
    }
    if (!events.empty()) emit(InstructionOp::kWait, -1).waits = events;
  }

  void end() {
    emit(InstructionOp::kFree, -1).frees = step_buffers_;
    close_segment(1);
  }

  void step() override {
    phase_ = "forward";
    const int64_t m = plan_.gradient_accumulation;
    const std::vector<PipelineAction> order = actions();
    begin(most_in_flight(order, static_cast<int>(chunks_.size())));
    post(order.front());
    for (size_t n = 0; n < order.size(); ++n) {
      arrive();
      if (n + 1 < order.size()) post(order[n + 1]);
      s_.actions.push_back(static_cast<int>(s_.instructions.size()));
      micro_batch_ = order[n].micro_batch;
      const PipelineAction back{false, order[n].chunk, order[n].micro_batch};
      turns_round_ = n + 1 < order.size() && order[n + 1] == back;
      if (order[n].is_forward)
        run_forward(order[n].chunk);
      else
        run_backward(order[n].chunk, order[n].micro_batch + 1 == m);
      micro_batch_ = -1;
    }
    s_.actions.push_back(static_cast<int>(s_.instructions.size()));
    phase_ = "backward";
    wait_for_sends();
    reduce_tied();
    update();
    end();
  }

  // One micro-batch through all stages.
  void evaluate_held_out() override {
    phase_ = "evaluate";
    begin(std::vector<int>(chunks_.size(), 1));
    for (int c = 0; c < static_cast<int>(chunks_.size()); ++c) {
      post({true, c, 0});
      arrive();
      micro_batch_ = 0;
      if (runs_reference(s_)) reference(c);
      for (int u = span(c).first; u <= span(c).last; ++u) forward(c, u, span(c).last);
      micro_batch_ = -1;
    }
    wait_for_sends();
    reduce_loss();
    end();
    for (Instruction& i : s_.instructions) i.phase = "evaluate";
  }

  const int stage_;
  const std::vector<UnitSpan> chunks_;
  const bool carries_routes_;
  const int64_t message_bytes_;
  std::vector<int> step_buffers_;
  std::vector<BufferRing> kept_, x_;                     // per chunk, by micro-batch
  std::map<int, std::vector<KeptTensor>> kept_tensors_;  // by variant
  BufferRing y_, dy_, dx_;
  BufferRing reference_x_, reference_y_;         // of the reference, where it runs
  std::optional<ActivationWriter> activations_;  // where they wait on the host
  Arrival arriving_, here_;                      // of the next action, of this one
  Arrival reference_arriving_, reference_here_;
  bool turns_round_ = false;  // the next action is the backward of this one
};

}  // namespace

Schedule compile_pipeline(const Plan& plan, Phase phase, int stage, LayoutDetail detail) {
  return PipelineCompiler(plan, phase, stage, detail).run();
}

}  // namespace distsetup
