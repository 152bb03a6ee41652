// Encoders and pairs of encoder and decoder, read by their sizes: as many parameters as the classes of Transformers 5.23 hold when
// they are made of the same file (sum of numel of parameters(), on the meta device, 2026-11-26). The files are cut to what sizes are
// in.
#include <catch2/catch.hpp>

#include <string>

#include "base/value_json.h"
#include "model/approximate.h"
#include "model/count.h"
#include "model/flops.h"
#include "model/hf_config.h"
#include "planner/time/step.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Result<Geometry> read(const std::string& type, const std::string& named, const std::string& sizes) {
  const std::string text = R"({"model_type": ")" + type + R"(", "architectures": [")" + named + R"("], )" + sizes + "}";
  return geometry_from_hf_config(presets(), *parse_json(text, "config.json"), "mine", "");
}

double total(const Geometry& g) { return static_cast<double>(count_parameters(g).total); }

const std::string kBase = R"("hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072)";
const std::string kLarge = R"("hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096)";
const std::string kBert = R"(, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
                             "layer_norm_eps": 1e-12)";
const std::string kRoberta = R"(, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1)";
const std::string kDeberta = R"(, "vocab_size": 128100, "relative_attention": true, "position_buckets": 256, "share_att_key": true,
  "norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p", "max_relative_positions": -1, "max_position_embeddings": 512,
  "position_biased_input": false, "type_vocab_size": 0, "layer_norm_eps": 1e-7, "hidden_act": "gelu")";
const std::string kDistil = R"("dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522, "activation": "gelu",
  "max_position_embeddings": 512, "sinusoidal_pos_embds": false)";

}  // namespace

TEST_CASE("encoders: parameters as their classes hold them") {
  const struct {
    const char *type, *named;
    std::string sizes;
    double parameters;
  } all[] = {
      {"bert", "BertModel", kBase + kBert, 109'482'240},
      {"bert", "BertForMaskedLM", kBase + kBert, 109'514'298},
      {"bert", "BertForPreTraining", kLarge + kBert, 336'226'108},
      {"bert", "BertModel", kLarge + kBert, 335'141'888},
      {"roberta", "RobertaModel", kBase + kRoberta + R"(, "vocab_size": 50265)", 124'645'632},
      {"roberta", "RobertaForMaskedLM", kLarge + kRoberta + R"(, "vocab_size": 50265)", 355'412'057},
      {"xlm-roberta", "XLMRobertaModel", kLarge + kRoberta + R"(, "vocab_size": 250002)", 559'890'432},
      {"distilbert", "DistilBertModel", kDistil, 66'362'880},
      {"distilbert", "DistilBertForMaskedLM", kDistil, 66'985'530},
      {"electra", "ElectraModel", kBase + kBert + R"(, "embedding_size": 768)", 108'891'648},
      {"electra", "ElectraForPreTraining", kBase + kBert + R"(, "embedding_size": 768)", 109'483'009},
      {"electra", "ElectraForPreTraining",
       R"("embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 1024)" +
           kBert,
       13'549'057},
      {"deberta-v2", "DebertaV2Model", kBase + kDeberta, 183'831'552},
      {"deberta-v2", "DebertaV2ForMaskedLM", kLarge + kDeberta, 435'191'908},
      {"deberta", "DebertaModel",
       kBase + R"(, "vocab_size": 50265, "relative_attention": true, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": -1,
                  "max_position_embeddings": 512, "position_biased_input": false, "type_vocab_size": 0, "hidden_act": "gelu")",
       138'601'728},
      {"mpnet", "MPNetForMaskedLM",
       kBase +
           R"(, "vocab_size": 30527, "max_position_embeddings": 514, "layer_norm_eps": 1e-5, "relative_attention_num_buckets": 32)",
       109'518'527},
  };
  for (const auto& one : all) {
    INFO(one.named << " " << one.parameters);
    const Result<Geometry> g = read(one.type, one.named, one.sizes);
    REQUIRE(g.ok());
    CHECK(total(*g) == Approx(one.parameters).epsilon(0.001));
    CHECK_FALSE(g->gated_mlp);
    CHECK(approximation(*g)->parameters == Approx(0.002));
    CHECK(g->learned_positions == 512);  // what a sequence may be long: RoBERTa's first rows are no token's
  }
}

// Files that name only what differs from their class's defaults were read as gated MLPs without positions: 27 % too many.
TEST_CASE("encoders: what the file does not say is as the class assumes") {
  const Result<Geometry> bert = read("bert", "BertModel", kBase + R"(, "vocab_size": 30522)");
  REQUIRE(bert.ok());
  CHECK(total(*bert) == Approx(109'482'240).epsilon(0.001));
  const Result<Geometry> roberta = read("camembert", "CamembertForMaskedLM", kBase + R"(, "vocab_size": 32005)");
  REQUIRE(roberta.ok());
  CHECK(total(*roberta) == Approx(110'655'493).epsilon(0.001));
  // Of a type that nobody knows: four times the width is an MLP of two matrices.
  CHECK_FALSE(read("novel", "NovelModel", kBase + R"(, "vocab_size": 30522)")->gated_mlp);
  CHECK(read("novel", "NovelModel", R"("hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 2048, "vocab_size": 30522)")
            ->gated_mlp);
}

// A position of an encoder sees those behind it, too: scores and their weighted sum cost twice what causal ones do.
TEST_CASE("encoders: attention is not causal") {
  const std::string sizes = kLarge + kBert;
  Geometry bert = *read("bert", "BertForMaskedLM", sizes);
  REQUIRE(bert.bidirectional);
  Geometry causal = bert;
  causal.bidirectional = false;
  const double scores = 4.0 * 24 * 1024;  // per key and token: two products over 24 layers of 1,024
  CHECK(token_flops(bert, 512).forward - token_flops(causal, 512).forward == Approx(scores * 256));
  Setup s;
  s.program = "unknown";
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.sequence_length = 32768;
  const auto seconds = [&](const Geometry& g) {
    s.model = g;
    return estimate_time(s).attention_s;
  };
  CHECK(seconds(bert) / seconds(causal) == Approx(2).epsilon(0.05));
  CHECK(read("modernbert", "ModernBertForMaskedLM", sizes)->bidirectional);
  CHECK(read("t5", "T5ForConditionalGeneration", sizes + R"(, "is_encoder_decoder": true)")->bidirectional);
  CHECK_FALSE(read("bert", "BertLMHeadModel", sizes + R"(, "is_decoder": true)")->bidirectional);
  CHECK_FALSE(read("novel", "NovelForCausalLM", sizes)->bidirectional);
}

TEST_CASE("encoders: pairs of encoder and decoder have two tables of positions and three norms in a decoder's layer") {
  const Result<Geometry> bart = read(
      "bart", "BartForConditionalGeneration",
      R"("d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
         "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "vocab_size": 50265, "max_position_embeddings": 1024,
         "activation_function": "gelu", "is_encoder_decoder": true, "tie_word_embeddings": true)");
  REQUIRE(bart.ok());
  CHECK(total(*bart) == Approx(406'291'456).epsilon(0.001));
  const Result<Geometry> whisper =
      read("whisper", "WhisperForConditionalGeneration",
           R"("d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12, "decoder_attention_heads": 12,
         "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "vocab_size": 51865, "max_source_positions": 1500,
         "max_target_positions": 448, "num_mel_bins": 80, "activation_function": "gelu", "is_encoder_decoder": true)");
  REQUIRE(whisper.ok());
  CHECK(total(*whisper) == Approx(241'734'912).epsilon(0.002));
}

TEST_CASE("encoders: what the plan has more than the model is said") {
  const std::string albert = kBase + kBert + R"(, "embedding_size": 128, "num_hidden_groups": 1)";
  const Result<Geometry> shared = read("albert", "AlbertForMaskedLM", albert);
  REQUIRE(shared.ok());
  REQUIRE(shared.diagnostics.size() == 2);
  // AlbertForMaskedLM with this vocabulary: 11,221,680 + 522 · 129 = 11,289,018; read: 512 more, of the norm's width.
  CHECK(shared.diagnostics[1].message.find("12 layers share the parameters of 1, 11,289,530 in all") != std::string::npos);
  CHECK(shared.diagnostics[1].message.find("7.9 times") != std::string::npos);
  const Result<Geometry> classes = read("bert", "BertForSequenceClassification", kBase + kBert);
  REQUIRE(classes.ok());
  CHECK(total(*classes) == Approx(109'483'778).epsilon(0.001));
  REQUIRE(classes.diagnostics.size() == 2);
  CHECK(classes.diagnostics[1].message.find("computes no scores over the vocabulary") != std::string::npos);
}
