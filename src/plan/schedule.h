// Schedule: one phase of training as an explicit list of instructions for one rank class. The simulator walks it for bytes and
// seconds; the trainer executes it. Sharding, hybrid groups, recomputation and accumulation are different lists, not different code.
//
// Two levels. compile_schedule() writes instructions over units with the buffers that cross units (gathered parameters, gradient
// and receive buffers, activations between units). expand() adds the steps: each instruction as the ops of its program, every tensor
// a buffer, and packs all span buffers into one arena by liveness. The unit level alone gives live bytes (simulate); both agree to
// the byte, which a property test holds.
//
// Micro-batches 1 .. n-2 of an accumulation are identical: they are written once, in a segment with a repeat count.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/native_program.h"
#include "plan/plan.h"
#include "plan/program.h"

namespace distsetup {

enum class Phase { kLoad, kStep, kEvaluate, kSave };
enum class InstructionOp {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kWait,
  kForward,
  kLoss,
  kRecompute,
  kBackward,
  kAccumulate,
  kGradNorm,
  kFactorSums,     // Adafactor: squares of the own elements summed over rows and columns
  kFactorMeans,    // Adafactor: means moved on; squares of the update summed
  kMomentum,       // Muon: of a unit, the own elements of what is orthogonalised
  kOrthogonalize,  // Muon: the matrices of a unit that this rank has
  kOptimizerStep,
  kCast,
  kZero,
  kFree,
  kSend,
  kRecv,
  kCopyToHost,
  kCopyToDevice
};
// kToNext to kFromNext are those of pipelines, one for each neighbour and direction: activations go to the next stage, gradients to
// the previous one. kToHost and kToDevice are copies where something is offloaded. kHost is the thread that issues the list: what it
// does itself is done before it issues what comes later, and waits for nothing but its events.
enum class Stream { kCompute, kGather, kReduce, kToNext, kFromPrevious, kToPrevious, kFromNext, kToHost, kToDevice, kHost };
inline constexpr int kNumStreams = 10;
enum class BufferClass {
  kParameterShard,
  kGatheredParameter,
  kGradient,
  kOptimizerState,
  kActivation,
  kLogits,
  kCommunication,
  kWorkspace,
  kCheckpoint
};
// Of a reduction, and of the sums behind it: all at once, or the first or the second of two (node_reduction.h).
enum class Hop : uint8_t { kOnly, kWithinNode, kAcrossNodes };
enum class Place { kDevice, kHost, kHostPinned, kDisk };
enum class BufferLifetime { kRun, kStep, kSpan };
inline constexpr int kNumBufferClasses = 9;

std::string_view name(Phase v);
std::string_view name(InstructionOp v);
std::string_view name(Stream v);
std::string_view name(BufferClass v);
std::string_view name(Hop v);  // "", "within nodes", "across nodes"

struct Buffer {
  std::string name;  // "P3" gathered, "G3" gradient, "A3" gradient accumulator, "R3" received, "N3" sums of a node, "x3", "3/h1", ...
  BufferClass buffer_class = BufferClass::kActivation;
  int64_t bytes = 0;
  Dtype dtype = Dtype::kF32;
  Place place = Place::kDevice;
  BufferLifetime lifetime = BufferLifetime::kSpan;
  int unit = -1, micro_batch = -1;
  // By expand(): steps it lives in, both inclusive; the buffer whose bytes it takes; its place in the arena.
  int first_step = -1, last_step = -1;
  int overlay_of = -1;
  int64_t offset_bytes = -1;  // span buffers only
};

inline bool is_on_device(const Buffer& buffer) { return buffer.place == Place::kDevice; }
// Where the master is the host's: a rank's shard of the parameters in the compute type, of which units are gathered; on the device, or
// the host's as well.
inline constexpr std::string_view kDeviceShard = "parameter_shard";
// The run buffer of what is frozen, in the compute type (layout.h). Programs read it where it is whole on each rank.
inline constexpr std::string_view kFrozenBuffer = "frozen";
// The run buffer of what is held as nf4, in bytes. Programs read it, and what is gathered of it, as records (nf4.h).
inline constexpr std::string_view kQuantizedBuffer = "frozen_nf4";
// Of Adafactor, while a step is taken: what FactoredLayout (update_layout.h) says.
inline constexpr std::string_view kFactorSumsBuffer = "factor_sums", kUpdateSquaresBuffer = "update_squares";
inline bool holds_frozen(const Buffer& buffer) { return buffer.name == kFrozenBuffer || buffer.name == kQuantizedBuffer; }
// Where the state is copied to for a save that training does not wait for: master and moments, one after the other.
inline constexpr std::string_view kCheckpointCopy = "checkpoint_copy";

// What a step's function sees of a buffer.
struct View {
  int buffer = -1;
  int64_t offset_bytes = 0;
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::kF32;
  Group own_of = Group::kSelf;  // another group: this rank's chunk, at its index in the group × chunk
};

// Of what has the rows of all tokens, those that an op sees.
View rows_of_chunk(const Op& op, View all);

struct Step {
  std::string op;      // "down_dw", "AllGather"
  std::string kernel;  // function of the trainer; instructions without a program: the instruction's name
  int instruction = -1;
  int unit = -1;
  bool recomputed = false;
  bool accumulate = false;  // gradient writes add to what is there
  std::vector<View> reads, writes;
  const Op* program_op = nullptr;
};

// Of a pipeline: the buffers of a unit's tensors that outlive the instruction, or that come from another stage or go there. -1: none.
struct StageTensors {
  int kept = -1;  // what forward keeps for backward
  int x = -1, y = -1, dy = -1, dx = -1;
  int routes_in = -1, routes_out = -1;  // messages among them that bring and take the routers' sums (carried_routes.h)
  bool operator==(const StageTensors&) const = default;
};

// Whose parameters an instruction computes with.
inline constexpr std::string_view kPolicy = "policy", kReference = "reference";

struct Instruction {
  InstructionOp op = InstructionOp::kForward;
  int unit = -1;
  std::string program_variant;  // of kForward, kBackward
  std::string model{kPolicy};
  int chunk = 0;
  int micro_batch = -1;
  int bucket = -1;  // unit whose flat buffer moves; native: bucket = unit
  Group group = Group::kSelf;
  int64_t bytes = 0;  // collective: bytes of the full (gathered) message; else 0
  Dtype dtype = Dtype::kF32;
  Stream stream = Stream::kCompute;
  std::vector<int> waits;                   // events
  int signals = -1;                         // event, -1 = synchronous
  std::vector<int> allocates, uses, frees;  // buffers; allocates and frees are span and step buffers
  Hop hop = Hop::kOnly;                     // of kReduceScatter and kAccumulate
  int node_ranks = 0;                       // of two hops: members of the group that share a node
  bool accumulate = false;                  // kAccumulate: add to the target (false: set); kBackward: see gradient_fresh
  int first_step = -1, num_steps = 0;       // by expand()
  StageTensors stage;                       // of kForward and kBackward in a pipeline
  std::string phase;                        // forward | loss | backward | optimizer, for the memory timeline
};

struct Segment {
  int first_instruction = 0, num_instructions = 0;
  int64_t repeat = 1;
};

struct Schedule {
  Phase phase = Phase::kStep;
  std::shared_ptr<const NativePrograms> programs;
  std::vector<std::shared_ptr<const ProgramVariant>> variants;  // of units: embedding, block (one per recompute choice), head
  std::vector<int> unit_variant;                                // per unit; -1: another stage has it
  std::vector<int> reference_variant;                           // per unit, where the reference runs in the list; else empty
  std::shared_ptr<const Layout> layout;
  // Of a pipeline's step, per unit and tensor of its variant: its offset in StageTensors::kept, in bytes; -1: it is not kept.
  std::vector<std::vector<int64_t>> kept_offset;
  Symbols symbols;
  Dtype compute = Dtype::kF32;
  bool deterministic = false;  // TrainPlan::deterministic
  bool is_packed = false;      // DataPlan::packing
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<Segment> segments;  // in order; cover all instructions
  std::vector<int> actions;       // of a pipeline's step: the first instruction of each action, and of what follows the last
  std::vector<Step> steps;        // by expand()
  int num_events = 0;
  // By expand():
  int64_t arena_bytes = 0;  // after packing; of the device, as all below
  int64_t host_arena_bytes = 0;
  int64_t live_peak_bytes = 0;  // span buffers live at once, the lower bound of the arena
  int live_peak_step = -1;
  std::vector<int64_t> live_bytes;  // span bytes during each step
};

inline bool runs_reference(const Schedule& schedule) { return !schedule.reference_variant.empty(); }
inline bool is_reference(const Instruction& instruction) { return instruction.model == kReference; }
// What kForward and kBackward run: its number among the variants, and the variant.
int variant_index(const Schedule& schedule, const Instruction& instruction);
const ProgramVariant& variant_of(const Schedule& schedule, const Instruction& instruction);
// Where a variant that runs for a unit has its parameters: the unit of its slot `slot`, and the slot there.
int slot_unit(const Schedule& schedule, const ProgramVariant& variant, int unit, int slot);
const Slot& slot_of(const Schedule& schedule, const ProgramVariant& variant, int unit, int slot);
// Do programs find this unit's parameters or gradients in the buffer? A buffer that belongs to a unit holds that unit's; a run buffer
// that belongs to none holds those of all units but the shared one, which has buffers of its own, and where it is a rank's shard, but
// those of which the rank has a part alone; kFrozenBuffer and kQuantizedBuffer hold those of frozen ones.
bool holds_unit(const Schedule& schedule, int buffer, int unit);
// The run buffer that holds all of a unit's parameters in the compute type; -1: there is none.
int replica_of(const Schedule& schedule, int unit);
// Units whose parameters an instruction's program reads, and whose gradients it writes.
struct TouchedUnits {
  std::set<int> parameters, gradients;
};
TouchedUnits touched_units(const Schedule& schedule, const Instruction& instruction);
// Of each unit that has a program. Of the reference: nothing where it does not run.
std::vector<TouchedUnits> touched_by_units(const Schedule& schedule, InstructionOp op, std::string_view model = kPolicy);
// Does the instruction read tokens, which are copied to the device before it? In a pipeline several micro-batches are under way, and
// the embedding's backward needs its own again; every program does where rows are packed.
bool reads_tokens(const Schedule& schedule, const Instruction& instruction);
// Does a unit's backward do anything? Not where neither it nor a unit below is trained.
bool has_backward(const Schedule& schedule, int unit);
bool is_program(InstructionOp op);   // runs the program of its unit, forward or backward
bool is_transfer(InstructionOp op);  // kSend, kRecv
// Of a copy between device and host: is it of an activation, and not of a gradient or parameters?
bool moves_activation(const Schedule& schedule, const Instruction& copy);
bool moves_update(const Schedule& schedule, const Instruction& copy);  // of what belongs to the update
// Is it one of those that Adafactor and Muon have between the gradient norm and the optimizer's step (update_writer.h)?
bool belongs_to_update(const Schedule& schedule, const Instruction& instruction);
// Of a stream of transfers: does it bring activations on, or gradients back?
bool carries_activations(Stream stream);
// The stage at the other end of a stream of transfers. After the last stage comes the first, with its next chunk.
int peer_stage(int stage, int stages, Stream stream);
int peer_stage(const Schedule& schedule, Stream stream);
// The ranks that a program exchanges data with while it runs: all axes that its ops do so over, or more; kSelf: none.
Group exchange_group(const ProgramVariant& variant);

int64_t num_bytes(const std::vector<int64_t>& shape, Dtype dtype);  // of kNf4Double: of the matrix's record
int64_t num_bytes(const View& view);                                // of one part: a rank's own chunk, not all of them
// The buffer whose bytes this one takes: itself, or the first of the buffers that it lies over.
int root_buffer(const std::vector<Buffer>& buffers, int buffer);
int64_t run_bytes(const Schedule& schedule);  // all run buffers of the device
int64_t run_bytes(const Schedule& schedule, BufferClass which);
int64_t host_bytes(const Schedule& schedule);  // what it has in the host's memory: run buffers and the arena
int64_t disk_bytes(const Schedule& schedule);  // run buffers on a local disk

}  // namespace distsetup
