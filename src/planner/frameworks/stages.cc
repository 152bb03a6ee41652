// The peak of a stage is either at one of its layers, when everything kept is there and that layer runs forward (the newest
// micro-batch) or backward (the oldest), or in the head. Later layers of the same micro-batch have given back what they kept by then,
// so the last layer of each kind decides. Leaves out: chunks of unequal size in interleaved pipelines (their mean is used), vocabulary
// layers on stages of their own.
#include "planner/frameworks/stages.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "model/count.h"
#include "plan/pipeline.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup {
namespace {

int64_t chunks_in_flight(const Setup& s, int rank) {
  const int64_t all = s.gradient_accumulation * s.virtual_stages;
  if (s.pipeline_order == PipelineOrder::kGpipe) return all;
  if (s.virtual_stages == 1) return std::min<int64_t>(all, s.pp - rank);
  return std::min<int64_t>(all, 2 * (s.pp - rank - 1) + int64_t{s.virtual_stages - 1} * s.pp + 1);
}

// What one layer keeps per micro-batch, and the most alive while it runs alone.
struct LayerBytes {
  int64_t kept = 0, peak = 0, forward_peak = 0;
};

LayerBytes layer_bytes(const PartBytes& attention, const PartBytes& mlp, bool whole_layer) {
  LayerBytes layer;
  layer.kept = attention.kept + mlp.kept;
  // A layer that runs again in backward has all its tensors for a moment; a module only its own.
  const int64_t attention_there = whole_layer ? attention.saved : attention.kept;
  layer.forward_peak = std::max(attention.forward_peak, attention.kept + mlp.forward_peak);
  layer.peak = std::max({layer.forward_peak, attention_there + mlp.backward_peak, attention.backward_peak});
  return layer;
}

ModuleSet dropped_modules(const Setup& s) {
  ModuleSet set = 0;
  for (const std::string& name : s.recompute_modules) set |= recompute_module(name);
  if (s.recompute == ActivationRecompute::kAttentionOnly) set |= recompute_module("core_attn");
  return set;
}

// Of n layers, how many run again in full.
int64_t recomputed_layers(const Setup& s, int64_t n) {
  if (s.recompute == ActivationRecompute::kFull) {
    return s.recompute_layers == 0 ? n : std::min<int64_t>(n, int64_t{s.recompute_layers} * s.virtual_stages);
  }
  return s.recompute == ActivationRecompute::kEveryK ? n / std::max(1, s.recompute_every_k) : 0;
}

int64_t norm_elements(const Geometry& g) { return g.norm == Norm::kLayer ? 2 * g.hidden : g.hidden; }

// Norms and biases of a layer on one rank: biases of split outputs are split with them.
int64_t layer_vectors(const Setup& s, bool experts) {
  const Geometry& g = s.model;
  int64_t n = g.norms_per_layer * norm_elements(g);
  if (g.attention == Attention::kLatent) {
    n += g.q_lora_rank + g.kv_lora_rank;
  } else {
    if (g.qkv_bias) n += (g.num_heads + 2 * g.num_kv_heads) * g.head_size / s.tp;
    if (g.qk_norm) n += 2 * g.head_size;
    if (g.qk_norm_wide) n += (g.num_heads + g.num_kv_heads) * g.head_size / s.tp;
  }
  if (g.output_bias) n += g.hidden;
  if (!experts && g.mlp_bias) n += (g.gated_mlp ? 2 : 1) * g.feed_forward / s.tp + g.hidden;
  if (experts && g.shared_expert_gate) n += g.hidden;
  if (experts && g.router_score_bias) n += g.num_experts;
  return n;
}

// The block that crosses a stage's share of the costs is still this stage's (nanotron src/nanotron/models/base.py, build_model).
std::vector<int64_t> layers_by_cost(const Geometry& g, int64_t slots) {
  const auto layer = static_cast<double>(4 * g.num_heads * g.head_size * g.hidden + 3 * g.feed_forward * g.hidden);
  const double share =
      (static_cast<double>(g.num_layers) * layer + static_cast<double>(g.vocabulary * g.hidden)) / static_cast<double>(slots);
  std::vector<int64_t> layers(static_cast<size_t>(slots));
  int64_t slot = 0;
  for (int64_t i = 1; i <= g.num_layers; ++i) {
    ++layers[static_cast<size_t>(slot)];
    if (static_cast<double>(i) * layer > static_cast<double>(slot + 1) * share) ++slot;
  }
  return layers;
}

std::vector<int64_t> layers_of_chunks(const Setup& s, int64_t slots) {
  const LifetimeProgram* program = s.traits().lifetime_programs ? lifetime_program(s.program) : nullptr;
  if (slots > 1 && program != nullptr && program->stages_by_cost) return layers_by_cost(s.model, slots);
  return layers_per_chunk(s.model.num_layers, slots);
}

}  // namespace

std::vector<StageLayers> pipeline_stages(const Setup& s) {
  const int64_t slots = int64_t{s.pp} * s.virtual_stages;
  const std::vector<int64_t> of_slot = layers_of_chunks(s, slots);
  std::vector<StageLayers> stages(static_cast<size_t>(s.pp));
  int64_t at = 0;
  for (int64_t slot = 0; slot < slots; ++slot) {
    StageLayers& stage = stages[static_cast<size_t>(slot % s.pp)];
    for (int64_t i = 0; i < of_slot[static_cast<size_t>(slot)]; ++i, ++at) {
      const bool experts = is_expert_layer(s.model, at);
      ++stage.num_layers;
      stage.num_expert_layers += experts ? 1 : 0;
      stage.last_has_experts = experts;
    }
  }
  stages.front().has_embedding = true;
  stages.back().has_head = true;
  stages.back().mtp_layers = s.mtp_layers;
  for (int rank = 0; rank < s.pp; ++rank) stages[static_cast<size_t>(rank)].in_flight = chunks_in_flight(s, rank);
  return stages;
}

StageParts stage_parts(const Setup& s, const LifetimeProgram& program) {
  StageParts parts;
  if (s.traits().block_programs && lifetime_program(s.program) == nullptr) {
    parts.traced = traced_layers(s);
    CHECK(parts.traced != nullptr, "unknown program '{}'", s.program);
    return parts;
  }
  parts.attention = program.find(s.model.attention == Attention::kLatent ? "latent" : "grouped");
  parts.dense = program.find("dense");
  parts.experts = s.model.num_experts > 0 ? program.find("experts") : nullptr;
  switch (s.loss) {
    case LossHead::kVocabularyParallel:
    case LossHead::kFusedKernel: parts.head = program.find("head_fused"); break;
    case LossHead::kCompiled: parts.head = program.find("head_compiled"); break;
    default: break;
  }
  if (parts.head == nullptr) parts.head = program.find("head");
  CHECK(parts.attention != nullptr && parts.dense != nullptr && parts.head != nullptr, "parts of program {}", program.name);
  CHECK(s.model.num_experts == 0 || parts.experts != nullptr, "program {} has no experts", program.name);
  return parts;
}

namespace {

int64_t sum_of(const std::vector<int64_t>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), int64_t{0}); }

}  // namespace

int64_t head_elements(const StageParts& parts, const LayerSymbols& symbols) {
  return parts.traced ? sum_of(parts.traced->embedding_weights) : weights_of(*parts.head, symbols).elements;
}

StageElements stage_elements(const Setup& s, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage) {
  if (parts.traced) {
    StageElements out;
    out.dense = (stage.num_layers - stage.num_expert_layers) * sum_of(parts.traced->blocks[0].weights) +
                stage.num_expert_layers * sum_of(parts.traced->blocks[1].weights);
    if (stage.has_embedding) out.dense += sum_of(parts.traced->embedding_weights);
    if (stage.has_head) out.dense += sum_of(parts.traced->head_weights);
    return out;
  }
  const PartWeights attention = weights_of(*parts.attention, symbols), dense = weights_of(*parts.dense, symbols);
  const int64_t num_dense = stage.num_layers - stage.num_expert_layers;
  StageElements out;
  out.dense = stage.num_layers * attention.elements + num_dense * (dense.elements + layer_vectors(s, false));
  if (parts.experts != nullptr) {
    const PartWeights experts = weights_of(*parts.experts, symbols);
    out.dense += stage.num_expert_layers * (experts.elements + layer_vectors(s, true));
    out.expert = stage.num_expert_layers * experts.expert_elements;
  }
  const int64_t vocabulary = head_elements(parts, symbols);
  if (stage.has_embedding) {
    out.dense += vocabulary + s.model.learned_positions * s.model.hidden + (s.model.embedding_norm ? norm_elements(s.model) : 0);
    out.vocabulary += vocabulary;
  }
  if (stage.mtp_layers > 0) {  // a block, the projection of two joined vectors, and the embedding that a later stage needs again
    const PartWeights mlp = weights_of(stage.last_has_experts ? *parts.experts : *parts.dense, symbols);
    const int64_t h = s.model.hidden;
    out.dense += stage.mtp_layers * (attention.elements + mlp.elements + layer_vectors(s, stage.last_has_experts) + 2 * h * h);
    out.expert += stage.mtp_layers * mlp.expert_elements;
    if (!stage.has_embedding) out.dense += vocabulary, out.vocabulary += vocabulary;
  }
  if (stage.has_head) {
    const bool shares = s.model.tied_embeddings && stage.has_embedding;
    if (!shares) out.vocabulary += vocabulary;
    out.dense += norm_elements(s.model) + (shares ? 0 : vocabulary) + (s.model.head_bias ? vocabulary / s.model.hidden : 0);
  }
  return out;
}

std::vector<int64_t> dummy_gradient_bytes(const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage) {
  std::vector<WeightShape> shapes;
  shapes.reserve(16);
  collect_dummy_shapes(*parts.attention, symbols, shapes);
  if (stage.num_layers > stage.num_expert_layers) collect_dummy_shapes(*parts.dense, symbols, shapes);
  if (stage.num_expert_layers > 0) collect_dummy_shapes(*parts.experts, symbols, shapes);
  if (stage.has_head) collect_dummy_shapes(*parts.head, symbols, shapes);
  std::vector<int64_t> bytes;
  bytes.reserve(shapes.size());
  for (const WeightShape& shape : shapes) bytes.push_back(2 * shape.rows * shape.columns);
  return bytes;
}

std::vector<int64_t> weight_sizes(const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage, int64_t bytes) {
  std::vector<int64_t> elements;
  const auto append = [&](const std::vector<int64_t>& more) { elements.insert(elements.end(), more.begin(), more.end()); };
  const auto add = [&](const LifetimePart& part) {
    for (const LifetimeWeight& weight : part.weights) {
      const int64_t copies = weight.per_expert ? num_local_experts(symbols) : 1;
      for (int64_t i = 0; i < copies; ++i)
        elements.push_back(weight.rows.evaluate(symbols.values) * weight.columns.evaluate(symbols.values));
    }
  };
  if (parts.traced) {
    if (stage.has_embedding) append(parts.traced->embedding_weights);
    for (int64_t layer = 0; layer < stage.num_layers; ++layer)
      append(parts.traced->blocks[layer >= stage.num_layers - stage.num_expert_layers ? 1 : 0].weights);
    if (stage.has_head) append(parts.traced->head_weights);
  } else if (stage.has_embedding) {
    add(*parts.head);
  }
  for (int64_t layer = 0; !parts.traced && layer < stage.num_layers; ++layer) {
    add(*parts.attention);
    add(layer >= stage.num_layers - stage.num_expert_layers ? *parts.experts : *parts.dense);
  }
  if (stage.has_head && !parts.traced) add(*parts.head);
  double all = 0;
  for (const int64_t n : elements) all += static_cast<double>(n);
  for (int64_t& n : elements) n = static_cast<int64_t>(static_cast<double>(n) / all * static_cast<double>(bytes));
  return elements;
}

namespace {

// The layers of one kind that a stage holds: as they are, and where they run again in full.
struct LayerKind {
  LayerBytes plain, full;
  int64_t count = 0;
};
using LayerKinds = std::array<LayerKind, 2>;  // dense, with experts

LayerKinds layer_kinds(const Setup& s, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage) {
  LayerKinds kinds;
  kinds[0].count = stage.num_layers - stage.num_expert_layers;
  kinds[1].count = stage.num_expert_layers;
  const auto traced = [](const PartBytes& block) {
    return LayerBytes{block.kept, std::max(block.forward_peak, block.backward_peak), block.forward_peak};
  };
  const ModuleSet modules = dropped_modules(s);
  for (size_t i = 0; i < kinds.size(); ++i) {
    LayerKind& kind = kinds[i];
    if (kind.count == 0) continue;
    if (parts.traced) {
      const TracedBlock& block = parts.traced->blocks[i];
      kind.plain = traced(block.kept_bytes), kind.full = traced(block.again_bytes);
      continue;
    }
    const LifetimePart& mlp = i == 1 ? *parts.experts : *parts.dense;
    kind.plain = layer_bytes(evaluate(*parts.attention, symbols, modules), evaluate(mlp, symbols, modules), false);
    kind.full = layer_bytes(evaluate(*parts.attention, symbols, kWholeLayer), evaluate(mlp, symbols, kWholeLayer), true);
  }
  return kinds;
}

// Of the stage's layers, how many run again in full. A traced program recomputes by its own rules: op-selective and attention-only are
// whole blocks whose trace keeps more.
int64_t full_layers(const Setup& s, const StageParts& parts, const StageLayers& stage) {
  const bool by_block = parts.traced && s.recompute != ActivationRecompute::kNone && s.recompute != ActivationRecompute::kEveryK;
  return by_block && s.recompute_layers == 0 ? stage.num_layers : recomputed_layers(s, stage.num_layers);
}

// By the layers, of all micro-batches in flight.
void count_kept(StageActivations& out, const Setup& s, const LayerKinds& kinds, const StageLayers& stage, int64_t num_full) {
  int64_t kept_of_one = 0, full_left = num_full;
  for (const LayerKind& kind : kinds) {
    const int64_t full = std::min(kind.count, full_left);
    full_left -= full;
    kept_of_one += full * kind.full.kept + (kind.count - full) * kind.plain.kept;
  }
  out.kept = kept_of_one * stage.in_flight / s.virtual_stages;
  if (s.offload.activations != OffloadPlace::kNone) {
    const int64_t of_layer = kept_of_one / std::max<int64_t>(1, stage.num_layers);
    out.offloaded = std::max<int64_t>(0, out.kept - 2 * of_layer);
    out.kept -= out.offloaded;
  }
}

// Megatron recomputes the first layers of a stage (method block), so the last one is plain unless all are recomputed.
void find_layer_peak(StageActivations& out, const LayerKinds& kinds, const StageLayers& stage, int64_t num_full) {
  int64_t after = 0;  // kept by layers that come later
  for (int i = 0; i < 2; ++i) {
    const bool experts = (i == 0) == stage.last_has_experts;
    const LayerKind& kind = kinds[experts ? 1 : 0];
    if (kind.count == 0) continue;
    const LayerBytes& layer = num_full == stage.num_layers ? kind.full : kind.plain;
    const int64_t peak = std::max<int64_t>(0, out.kept - after - layer.kept) + layer.peak;
    if (peak > out.layer_peak) {
      out.layer_peak = peak;
      out.forward_peaks = layer.forward_peak == layer.peak;
    }
    // A stage that mixes both recomputed and plain layers reaches the whole layer's peak with the plain ones gone.
    if (num_full > 0 && num_full < stage.num_layers) {
      const int64_t plain_gone = (stage.num_layers - num_full) * kind.plain.kept;
      out.layer_peak = std::max(out.layer_peak, std::max<int64_t>(0, out.kept - plain_gone - kind.full.kept) + kind.full.peak);
    }
    out.evaluate_peak = std::max(out.evaluate_peak, layer.forward_peak);
    after += kind.count * layer.kept;
  }
}

}  // namespace

StageActivations stage_activations(const Setup& s, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage) {
  const TracedLayers* traced = parts.traced.get();
  const LayerKinds kinds = layer_kinds(s, parts, symbols, stage);
  const int64_t num_full = full_layers(s, parts, stage);
  StageActivations out;
  count_kept(out, s, kinds, stage, num_full);
  if (stage.mtp_layers > 0 && traced == nullptr) {
    const LayerKind& kind = kinds[stage.last_has_experts ? 1 : 0];
    const int64_t joined = 4 * s.model.hidden * s.tokens() / (s.sequence_parallel ? s.tp : 1);
    const int64_t block = num_full == stage.num_layers ? kind.full.kept : kind.plain.kept;
    out.kept += stage.mtp_layers * (block + joined + evaluate(*parts.head, symbols, 0).saved);
  }
  find_layer_peak(out, kinds, stage, num_full);
  if (stage.has_head) {
    const PartBytes head = traced != nullptr ? traced->head_bytes : evaluate(*parts.head, symbols, 0);
    if (traced != nullptr) out.layer_peak += traced->held_bytes;
    out.loss_peak = out.kept + std::max(head.forward_peak, head.backward_peak);
    out.logits_bytes = head.logits_at_peak;
    if (const int64_t reference = kLogitsAtReference * reference_logits_bytes(s, s.tokens()); out.kept + reference > out.loss_peak) {
      out.loss_peak = out.kept + reference;
      out.logits_bytes = reference;
    }
    out.evaluate_peak = std::max(out.evaluate_peak, head.forward_peak);
  }
  return out;
}

}  // namespace distsetup
