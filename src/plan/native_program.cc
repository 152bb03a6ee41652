// The op tables. Each list is the whole truth about a unit: what is computed, what is read, what may be overwritten.
#include "plan/native_program.h"

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "model/approximate.h"

namespace distsetup {
namespace {

using Init = ParameterDecl::Init;

Op op(std::string name, OpKind kind, std::string kernel, std::vector<std::string> reads, std::vector<std::string> writes,
      std::vector<Overlay> over = {}, std::string flops = "") {
  return {std::move(name),  kind,        std::move(kernel), std::move(reads), std::move(writes), std::move(over),
          std::move(flops), Group::kSelf};
}

Program embedding_program() {
  Program p;
  p.kind = UnitKind::kEmbedding;
  p.parameters = {{"model.embed_tokens.weight", "wte", {"V", "h"}, true, Init::kNormal}};
  p.inputs = {"ids"};
  p.tensors = {{"y", {"T", "h"}}, {"dy", {"T", "h"}}};
  p.forward = {op("embed", OpKind::kEmbedding, "embedding_forward", {"ids", "p:wte"}, {"y"})};
  p.backward = {op("embed_dw", OpKind::kEmbedding, "embedding_backward", {"ids", "dy"}, {"g:wte"})};
  return p;
}

std::vector<ParameterDecl> block_parameters(const Geometry& g) {
  std::vector<ParameterDecl> p = {{"input_layernorm.weight", "n1", {"h"}, false, Init::kOnes},
                                  {"self_attn.q_proj.weight", "wqkv", {"a*d", "h"}, true, Init::kNormal},
                                  {"self_attn.k_proj.weight", "wqkv", {"kv*d", "h"}, true, Init::kNormal},
                                  {"self_attn.v_proj.weight", "wqkv", {"kv*d", "h"}, true, Init::kNormal}};
  if (g.qkv_bias) {
    p.push_back({"self_attn.q_proj.bias", "bqkv", {"a*d"}, false, Init::kZeros});
    p.push_back({"self_attn.k_proj.bias", "bqkv", {"kv*d"}, false, Init::kZeros});
    p.push_back({"self_attn.v_proj.bias", "bqkv", {"kv*d"}, false, Init::kZeros});
  }
  if (g.qk_norm) {
    p.push_back({"self_attn.q_norm.weight", "qn", {"d"}, false, Init::kOnes});
    p.push_back({"self_attn.k_norm.weight", "kn", {"d"}, false, Init::kOnes});
  }
  p.push_back({"self_attn.o_proj.weight", "wo", {"h", "a*d"}, true, Init::kScaledNormal});
  p.push_back({"post_attention_layernorm.weight", "n2", {"h"}, false, Init::kOnes});
  p.push_back({"mlp.gate_proj.weight", "w13", {"f", "h"}, true, Init::kNormal});
  p.push_back({"mlp.up_proj.weight", "w13", {"f", "h"}, true, Init::kNormal});
  p.push_back({"mlp.down_proj.weight", "w2", {"h", "f"}, true, Init::kScaledNormal});
  return p;
}

std::vector<TensorDecl> block_tensors(const Geometry& g) {
  const Dtype f32 = Dtype::kF32;
  std::vector<TensorDecl> t = {{"x", {"T", "h"}},     {"h1", {"T", "h"}},       {"r1", {"T"}, f32},     {"qkv", {"T", "(a+2*kv)*d"}},
                               {"att", {"T", "a*d"}}, {"lse", {"T", "a"}, f32}, {"x2", {"T", "h"}},     {"h2", {"T", "h"}},
                               {"r2", {"T"}, f32},    {"gu", {"T", "2*f"}},     {"m", {"T", "f"}},      {"y", {"T", "h"}},
                               {"dy", {"T", "h"}},    {"dm", {"T", "f"}},       {"dgu", {"T", "2*f"}},  {"dh2", {"T", "h"}},
                               {"dx2", {"T", "h"}},   {"ws2", {"h"}, f32},      {"datt", {"T", "a*d"}}, {"dqkv", {"T", "(a+2*kv)*d"}},
                               {"dh1", {"T", "h"}},   {"dx", {"T", "h"}},       {"ws1", {"h"}, f32}};
  if (g.qk_norm) {
    t.push_back({"qk", {"T", "(a+kv)*d"}});
    t.push_back({"rqk", {"T", "a+kv"}, f32});
    t.push_back({"dqk", {"T", "(a+kv)*d"}});
    t.push_back({"ws_qk", {"2*d"}, f32});
  }
  if (g.qkv_bias) t.push_back({"ws_b", {"(a+2*kv)*d"}, f32});
  return t;
}

std::vector<Op> block_forward(const Geometry& g) {
  std::vector<Op> ops = {op("norm1", OpKind::kNorm, "rms_norm", {"x", "p:n1"}, {"h1", "r1"}),
                         op("qkv", OpKind::kGemm, "linear", {"h1", "p:wqkv"}, {"qkv"}, {}, "2*T*h*(a+2*kv)*d")};
  if (g.qkv_bias) ops.push_back(op("bias", OpKind::kElementwise, "bias_add", {"qkv", "p:bqkv"}, {"qkv"}));
  const std::string rotated = g.qk_norm ? "qk" : "qkv";
  if (g.qk_norm) ops.push_back(op("qk_norm", OpKind::kNorm, "qk_norm", {"qkv", "p:qn", "p:kn"}, {"qk", "rqk"}));
  ops.push_back(op("rope", OpKind::kElementwise, "rope", {rotated, "cos", "sin"}, {rotated}));
  if (g.qk_norm) {
    ops.push_back(op("attention", OpKind::kAttention, "attention_split", {"qk", "qkv"}, {"att", "lse"}, {}, "2*T*S*a*d"));
  } else {
    ops.push_back(op("attention", OpKind::kAttention, "attention", {"qkv"}, {"att", "lse"}, {}, "2*T*S*a*d"));
  }
  ops.push_back(op("out", OpKind::kGemm, "linear_add", {"att", "p:wo", "x"}, {"x2"}, {{0, 2}}, "2*T*h*a*d"));
  ops.push_back(op("norm2", OpKind::kNorm, "rms_norm", {"x2", "p:n2"}, {"h2", "r2"}));
  ops.push_back(op("up", OpKind::kGemm, "linear", {"h2", "p:w13"}, {"gu"}, {}, "4*T*h*f"));
  ops.push_back(op("swiglu", OpKind::kElementwise, "swiglu", {"gu"}, {"m"}));
  ops.push_back(op("down", OpKind::kGemm, "linear_add", {"m", "p:w2", "x2"}, {"y"}, {{0, 2}}, "2*T*h*f"));
  return ops;
}

std::vector<Op> block_backward(const Geometry& g) {
  std::vector<Op> ops = {
      op("down_dw", OpKind::kGemm, "linear_dw", {"dy", "m"}, {"g:w2"}, {}, "2*T*h*f"),
      op("down_dx", OpKind::kGemm, "linear_dx", {"dy", "p:w2"}, {"dm"}, {}, "2*T*h*f"),
      op("swiglu_b", OpKind::kElementwise, "swiglu_backward", {"dm", "gu"}, {"dgu"}, {{0, 1}}),
      op("up_dw", OpKind::kGemm, "linear_dw", {"dgu", "h2"}, {"g:w13"}, {}, "4*T*h*f"),
      op("up_dx", OpKind::kGemm, "linear_dx", {"dgu", "p:w13"}, {"dh2"}, {}, "4*T*h*f"),
      op("norm2_b", OpKind::kNorm, "rms_norm_backward", {"dh2", "x2", "r2", "p:n2", "dy"}, {"dx2", "g:n2", "ws2"}, {{0, 4}}),
      op("out_dw", OpKind::kGemm, "linear_dw", {"dx2", "att"}, {"g:wo"}, {}, "2*T*h*a*d"),
      op("out_dx", OpKind::kGemm, "linear_dx", {"dx2", "p:wo"}, {"datt"}, {}, "2*T*h*a*d")};
  // Backward of attention recomputes the scores: 2.5 × the forward's FLOPs (FlashAttention-2, arXiv 2307.08691, section 4.1).
  if (g.qk_norm) {
    ops.push_back(op("attention_b", OpKind::kAttention, "attention_split_backward", {"datt", "qk", "qkv", "att", "lse"},
                     {"dqk", "dqkv"}, {}, "5*T*S*a*d"));
    ops.push_back(op("rope_b", OpKind::kElementwise, "rope_backward", {"dqk", "cos", "sin"}, {"dqk"}));
    ops.push_back(op("qk_norm_b", OpKind::kNorm, "qk_norm_backward", {"dqk", "qkv", "rqk", "p:qn", "p:kn", "dqkv"},
                     {"dqkv", "g:qn", "g:kn", "ws_qk"}));
  } else {
    ops.push_back(
        op("attention_b", OpKind::kAttention, "attention_backward", {"datt", "qkv", "att", "lse"}, {"dqkv"}, {}, "5*T*S*a*d"));
    ops.push_back(op("rope_b", OpKind::kElementwise, "rope_backward", {"dqkv", "cos", "sin"}, {"dqkv"}));
  }
  if (g.qkv_bias) ops.push_back(op("bias_b", OpKind::kElementwise, "bias_backward", {"dqkv"}, {"g:bqkv", "ws_b"}));
  ops.push_back(op("qkv_dw", OpKind::kGemm, "linear_dw", {"dqkv", "h1"}, {"g:wqkv"}, {}, "2*T*h*(a+2*kv)*d"));
  ops.push_back(op("qkv_dx", OpKind::kGemm, "linear_dx", {"dqkv", "p:wqkv"}, {"dh1"}, {}, "2*T*h*(a+2*kv)*d"));
  ops.push_back(op("norm1_b", OpKind::kNorm, "rms_norm_backward", {"dh1", "x", "r1", "p:n1", "dx2"}, {"dx", "g:n1", "ws1"}, {{0, 4}}));
  return ops;
}

Program block_program(const Geometry& g) {
  Program p;
  p.kind = UnitKind::kBlock;
  p.inputs = {"cos", "sin"};
  p.parameters = block_parameters(g);
  p.tensors = block_tensors(g);
  p.forward = block_forward(g);
  p.backward = block_backward(g);
  return p;
}

Program head_program(const Geometry& g) {
  const std::string head = g.tied_embeddings ? "wte" : "wh";
  Program p;
  p.kind = UnitKind::kHead;
  p.inputs = {"targets", "loss_scale", "loss"};
  p.parameters = {{"model.norm.weight", "nf", {"h"}, false, Init::kOnes}};
  if (g.tied_embeddings) {
    p.borrowed_slots = {"wte"};
  } else {
    p.parameters.push_back({"lm_head.weight", "wh", {"V", "h"}, true, Init::kNormal});
  }
  p.tensors = {{"x", {"T", "h"}},
               {"h", {"T", "h"}},
               {"r", {"T"}, Dtype::kF32},
               {"z", {"T", "V"}, Dtype::kCompute, true},
               {"dz", {"T", "V"}, Dtype::kCompute, true},
               {"dh", {"T", "h"}},
               {"dx", {"T", "h"}},
               {"ws", {"h"}, Dtype::kF32}};
  p.forward = {op("normf", OpKind::kNorm, "rms_norm", {"x", "p:nf"}, {"h", "r"}),
               op("logits", OpKind::kGemm, "linear", {"h", "p:" + head}, {"z"}, {}, "2*T*h*V"),
               op("loss", OpKind::kLoss, "cross_entropy", {"z", "targets", "loss_scale", "loss"}, {"dz", "loss"}, {{0, 0}})};
  p.backward = {op("logits_dw", OpKind::kGemm, "linear_dw", {"dz", "h"}, {"g:" + head}, {}, "2*T*h*V"),
                op("logits_dx", OpKind::kGemm, "linear_dx", {"dz", "p:" + head}, {"dh"}, {}, "2*T*h*V"),
                op("normf_b", OpKind::kNorm, "rms_norm_backward_first", {"dh", "x", "r", "p:nf"}, {"dx", "g:nf", "ws"}, {{0, 0}})};
  return p;
}

}  // namespace

NativePrograms native_programs(const Geometry& geometry) {
  return {embedding_program(), block_program(geometry), head_program(geometry)};
}

Diagnostics check_native(const Geometry& g) {
  Diagnostics out;
  const auto refuse = [&](bool condition, std::string_view what) {
    if (!condition) return;
    out.push_back(error(code::kUnsupportedFeature, {}, fmt::format("the native trainer cannot run model '{}' yet: {}", g.name, what),
                        "--trainer fsdp2, or choose a model of the Llama family (Llama, Mistral, Qwen 2/3)"));
  };
  refuse(is_approximate(g), "an architecture that is not known");
  refuse(g.num_experts > 0, fmt::format("{} experts; it runs dense blocks", g.num_experts));
  refuse(g.attention != Attention::kGrouped, "latent attention (MLA)");
  refuse(g.norm != Norm::kRms, "layer norm; it runs RMSNorm");
  refuse(!g.gated_mlp, "a two-matrix MLP; it runs SwiGLU");
  refuse(g.parallel_block, "a parallel attention and MLP block");
  refuse(g.norms_per_layer != 2, fmt::format("{} norms per layer; it runs 2", g.norms_per_layer));
  refuse(g.qk_norm_wide, "a qk-norm over all heads");
  refuse(g.output_bias || g.mlp_bias || g.head_bias, "biases outside q, k and v");
  refuse(g.learned_positions > 0, "learned positions; it runs RoPE");
  refuse(g.learned_positions == 0 && g.rotary_fraction != 1,
         g.rotary_fraction == 0 ? "positions by ALiBi" : fmt::format("rotary positions on {} of a head", g.rotary_fraction));
  refuse(g.activation != "silu", fmt::format("activation '{}'; it runs silu", g.activation));
  refuse(g.family.starts_with("gemma"), "Gemma's scaled embedding, GeGLU and (1 + w) norms");
  return out;
}

Symbols native_symbols(const Geometry& g, int64_t micro_batch, int64_t sequence_length) {
  return {{"T", micro_batch * sequence_length},
          {"S", sequence_length},
          {"B", micro_batch},
          {"h", g.hidden},
          {"f", g.feed_forward},
          {"a", g.num_heads},
          {"kv", g.num_kv_heads},
          {"d", g.head_size},
          {"V", g.vocabulary}};
}

std::vector<std::string> dropped_tensors(const Geometry& g, Recompute policy) {
  switch (policy) {
    case Recompute::kNone: return {};
    case Recompute::kSelective:  // norms and SwiGLU: cheap to compute, wide to keep
      return {"h1", "h2", "m", "r1", "r2"};
    case Recompute::kFull:
    case Recompute::kEveryK: {
      std::vector<std::string> all = {"att", "gu", "h1", "h2", "lse", "m"};
      if (g.qk_norm) all.push_back("qk");
      all.push_back("qkv");
      all.push_back("r1");
      all.push_back("r2");
      if (g.qk_norm) all.push_back("rqk");
      all.push_back("x2");
      return all;
    }
  }
  return {};
}

}  // namespace distsetup
