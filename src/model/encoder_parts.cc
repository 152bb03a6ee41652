// Source: src/transformers/models/<model_type>/configuration_*.py and modeling_*.py of Transformers 5.23 (2026-11). The sums equal
// what these classes hold when they are made on the meta device (tests/unit/test_encoders.cc). Leaves out: patch embeddings and
// convolutions of models of pictures.
#include "model/encoder_parts.h"

#include <algorithm>
#include <string>

namespace distsetup {
namespace {

constexpr EncoderKind kEncoders[] = {
    {"bert", 512, 2, 0, true},           {"albert", 512, 2, 0, true},        {"distilbert", 512, 0, 0, false},
    {"electra", 512, 2, 0, false},       {"deberta", 512, 0, 0, false},      {"deberta-v2", 512, 0, 0, false},
    {"roberta", 512, 2, 2, true},        {"camembert", 512, 2, 2, true},     {"xlm-roberta", 512, 2, 2, true},
    {"xlm-roberta-xl", 514, 1, 2, true}, {"data2vec-text", 512, 2, 2, true}, {"mpnet", 512, 0, 2, true},
    {"megatron-bert", 512, 2, 0, true},  {"ernie", 513, 2, 0, true},         {"big_bird", 4096, 2, 0, true},
    {"esm", 1026, 0, 2, true},
};

double real(int64_t value) { return static_cast<double>(value); }

double square(double width) { return width * width + width; }  // with its bias

// The head of the class that the file names; the matrix over the vocabulary is the embeddings' own.
double head_parameters(const ConfigSizes& s, const EncoderKind& kind, double hidden, double embedding, double vocabulary) {
  const std::string_view named = model_class(s);
  const auto ends = [&](std::string_view part) { return named.ends_with(part); };
  const double over_vocabulary = hidden * embedding + embedding + 2 * embedding + vocabulary, two_labels = 2 * hidden + 2;
  if (ends("ForMaskedLM")) return over_vocabulary;
  if (ends("ForPreTraining"))
    return kind.model_type == "electra" ? square(hidden) + hidden + 1 : over_vocabulary + square(hidden) + two_labels;
  if (ends("ForTokenClassification") || ends("ForQuestionAnswering")) return two_labels;
  if (ends("ForSequenceClassification") || ends("ForMultipleChoice")) return square(hidden) + two_labels;
  return kind.has_pooler ? square(hidden) : 0;
}

// DeBERTa (arXiv 2006.03654, section 3.1): a table of distances in place of one of positions, and projections of it in each layer
// where they are not the layer's own.
double distance_parameters(const ConfigSizes& s, const Geometry& g) {
  const double h = real(g.hidden);
  const int64_t farthest = s.first({"max_relative_positions"}, g.max_positions), buckets = s.first({"position_buckets"}, farthest);
  double total = 2 * real(buckets) * h - (s.text({"position_biased_input"}) == "false" ? real(g.learned_positions) * h : 0);
  if (s.has({"norm_rel_ebd"})) total += 2 * h;
  if (s.is_true({"share_att_key"})) return total;
  std::string kinds = s.text({"pos_att_type"});
  if (const Value* list = s.find({"pos_att_type"}); list != nullptr)
    for (const Value& item : list->items) kinds += item.text + " ";
  for (const char* one : {"c2p", "p2c"})
    if (kinds.find(one) != std::string::npos) total += real(g.num_layers) * h * h;
  return total;
}

// BART, Marian, Whisper: both halves have positions and a norm of their own, and attention to the encoder has biases and a norm.
double decoder_parameters(const ConfigSizes& s, const Geometry& g, const LayerParts& parts) {
  if (parts.decoders == 0 || g.norm != Norm::kLayer) return 0;
  const double h = real(g.hidden), mel = real(s.first({"num_mel_bins"}));
  double total = real(parts.decoders) * (2 * h + 4 * h);
  if (parts.is_lone_decoder) return total;
  total += 2 * h + h * real(s.first({"max_source_positions"}, g.learned_positions));
  if (mel > 0) total += 3 * h * (mel + h) + 2 * h;  // two convolutions over time
  return total;
}

}  // namespace

const EncoderKind* encoder_kind(const ConfigSizes& s) {
  const std::string type = s.text({"model_type"});
  const auto* found =
      std::find_if(std::begin(kEncoders), std::end(kEncoders), [&](const EncoderKind& kind) { return kind.model_type == type; });
  return found == std::end(kEncoders) ? nullptr : found;
}

std::string_view model_class(const ConfigSizes& s) {
  const Value* named = s.find({"architectures"});
  return named == nullptr || named->items.empty() ? std::string_view{} : std::string_view(named->items.front().text);
}

bool scores_vocabulary(const ConfigSizes& s) {
  const std::string_view named = model_class(s);
  const auto ends = [&named](const char* part) { return named.ends_with(part); };
  const auto has = [&named](const char* part) { return named.find(part) != std::string_view::npos; };
  if (ends("Classification") || ends("QuestionAnswering") || ends("MultipleChoice") || ends("RewardModel")) return false;
  if (named == "ElectraForPreTraining") return false;  // which finds tokens that were replaced
  // The model alone (Qwen2Model, T5EncoderModel). ChatGLM and models with pictures have a head under such names.
  const bool has_head = has("LMHead") || has("DoubleHeads") || has("ChatGLM") || has("Chat") || has("_D_");
  return !ends("Model") || has_head;
}

double parameters_beside_layers(const ConfigSizes& s, const Geometry& g, const LayerParts& parts) {
  const double h = real(g.hidden), embedding = real(s.first({"embedding_size", "input_embedding_size"}, g.hidden));
  double total = decoder_parameters(s, g, parts);
  if (s.has({"decoder_bias", "classifier_bias"}) && scores_vocabulary(s) && model_class(s).ends_with("ForMaskedLM"))
    total += h * h + h + (s.text({"decoder_bias"}) == "false" ? 0 : real(g.vocabulary));  // ModernBERT
  const EncoderKind* kind = encoder_kind(s);
  if (kind == nullptr) return total;
  const int64_t types = s.has({"type_vocab_size"}) ? s.first({"type_vocab_size"}) : kind->token_types;
  total += real(types + kind->first_position) * embedding - real(g.learned_positions) * (h - embedding);
  if (s.is_true({"relative_attention"})) total += distance_parameters(s, g);
  if (kind->model_type == "mpnet") total += real(s.first({"relative_attention_num_buckets"}, 32) * g.num_heads);
  return total + head_parameters(s, *kind, h, embedding, real(g.vocabulary));
}

}  // namespace distsetup
