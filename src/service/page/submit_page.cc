#include "service/page/submit_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/names.h"
#include "service/page/html.h"

namespace distsetup {
namespace {

struct FieldOffer {
  const char* name;
  const char* label;
  const char* preset;
  const char* note;
  enum Kind { kText, kNumber, kChoice, kDataset, kModel } kind;
  bool is_required;
};

constexpr FieldOffer kFields[] = {
    {"method", "Method", "sft", "", FieldOffer::kChoice, true},
    {"model", "Model", "", "a model of this service, or a preset such as quickstart", FieldOffer::kModel, true},
    {"dataset_id", "Data set", "", "", FieldOffer::kDataset, true},
    {"job_uuid", "Name of the job", "", "letters, digits, . _ -", FieldOffer::kText, true},
    {"finetuned_model", "Name of the result", "", "empty: the job's", FieldOffer::kText, false},
    {"n_epochs", "Epochs", "1", "", FieldOffer::kNumber, true},
    {"max_steps_per_epoch", "Most steps an epoch", "0", "0: all", FieldOffer::kNumber, true},
    {"batch_size", "Batch size per GPU", "1", "", FieldOffer::kNumber, true},
    {"gradient_accumulation_steps", "Gradient accumulation", "1", "", FieldOffer::kNumber, true},
    {"learning_rate", "Learning rate", "5e-5", "", FieldOffer::kNumber, true},
    {"dtype", "Precision", "bf16", "", FieldOffer::kChoice, true},
    {"lora_rank", "LoRA rank", "", "empty: all parameters are trained; sft only", FieldOffer::kNumber, false},
    {"beta", "Beta", "0.1", "of the preferences; dpo only", FieldOffer::kNumber, false},
};

struct FormChoice {
  const char* field;
  const char* value;
  const char* text;
};
constexpr FormChoice kChoices[] = {{"method", "sft", "sft: conversations"},
                                   {"method", "dpo", "dpo: preferences"},
                                   {"dtype", "bf16", "bf16"},
                                   {"dtype", "fp32", "fp32"},
                                   {"dtype", "fp16", "fp16"}};

std::string field_text(const FormFields& fields, const char* name) {
  const auto found = fields.find(name);
  if (found != fields.end()) return found->second;
  for (const FieldOffer& field : kFields)
    if (std::string_view(field.name) == name) return field.preset;
  return "";
}

Json field_values(const FieldOffer& field, const SubmitView& view) {
  const std::string value = field_text(view.fields, field.name);
  Json choices = Json::array(), offers = Json::array();
  for (const FormChoice& choice : kChoices)
    if (std::string_view(choice.field) == field.name)
      choices.push_back({{"value", choice.value}, {"text", choice.text}, {"is_chosen", value == choice.value}});
  if (field.kind == FieldOffer::kDataset)
    for (const std::string& dataset : view.datasets) offers.push_back(dataset);
  if (field.kind == FieldOffer::kModel)
    for (const std::string& model : view.models) offers.push_back(model);
  return {{"name", field.name},
          {"label", field.label},
          {"note", field.note},
          {"value", value},
          {"choices", choices},
          {"is_choice", field.kind == FieldOffer::kChoice},
          {"offers", offers},
          {"has_list", !offers.empty()},
          {"is_required", field.is_required},
          {"is_number", field.kind == FieldOffer::kNumber}};
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t n = 0; n < text.size(); ++n) {
    const bool is_code = text[n] == '%' && n + 2 < text.size() && hex_digit(text[n + 1]) >= 0 && hex_digit(text[n + 2]) >= 0;
    if (is_code) {
      out += static_cast<char>(hex_digit(text[n + 1]) * 16 + hex_digit(text[n + 2]));
      n += 2;
    } else {
      out += text[n] == '+' ? ' ' : text[n];
    }
  }
  return out;
}

// A whole number, a number, or what was typed.
Json typed_number(const std::string& text) {
  int64_t whole = 0;
  double number = 0;
  const char* end = text.data() + text.size();
  if (const auto [stop, failed] = std::from_chars(text.data(), end, whole); failed == std::errc() && stop == end) return whole;
  if (const auto [stop, failed] = std::from_chars(text.data(), end, number);
      failed == std::errc() && stop == end && std::isfinite(number))
    return number;
  return text;
}

}  // namespace

std::string submit_page(const SubmitView& view, std::string_view version) {
  Json values = {{"title", "New job"},
                 {"version", std::string(version)},
                 {"is_live", false},
                 {"has_problems", !view.problems.empty()},
                 {"problem_title", view.problems.size() == 1 ? "This cannot be run:" : "This cannot be run, for these reasons:"},
                 {"problems", Json::array()},
                 {"fields", Json::array()},
                 {"has_plan", !view.plan_lines.empty()},
                 {"plan_lines", view.plan_lines},
                 {"verdict", view.verdict},
                 {"can_submit", view.verdict == "fits" || view.verdict == "tight"}};
  for (const FormProblem& one : view.problems)
    values["problems"].push_back({{"where", one.where}, {"message", one.message}, {"help", one.help}});
  for (const FieldOffer& field : kFields) values["fields"].push_back(field_values(field, view));
  return render_html("submit", values);
}

FormFields read_form(std::string_view body) {
  FormFields fields;
  while (!body.empty()) {
    const std::string_view pair = body.substr(0, body.find('&'));
    body.remove_prefix(std::min(body.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    const std::string name = decoded(pair.substr(0, equals));
    if (!name.empty()) fields[name] = equals == std::string_view::npos ? "" : decoded(pair.substr(equals + 1));
  }
  return fields;
}

std::string encode_form_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain =
        is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_' || c == '~';
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string_view action_of_form(const FormFields& fields) {
  return field_text(fields, "method") == "dpo" ? "preference-optimize" : "supervised-fine-tune";
}

Json request_of_form(const FormFields& fields) {
  const auto text = [&fields](const char* name) { return field_text(fields, name); };
  const bool is_preference = text("method") == "dpo";
  Json request = {{"job_uuid", text("job_uuid")},
                  {"model", text("model")},
                  {"hyperparam_search_config", Json::object()},
                  {"logger_config", Json::object()}};
  if (!text("finetuned_model").empty()) request["finetuned_model"] = text("finetuned_model");
  request["training_config"] = {
      {"n_epochs", typed_number(text("n_epochs"))},
      {"max_steps_per_epoch", typed_number(text("max_steps_per_epoch"))},
      {"gradient_accumulation_steps", typed_number(text("gradient_accumulation_steps"))},
      {"dtype", text("dtype")},
      {"data_config",
       {{"dataset_id", text("dataset_id")},
        {"batch_size", typed_number(text("batch_size"))},
        {"shuffle", true},
        {"data_format", "instruct"}}},
      {"optimizer_config",
       {{"optimizer_type", "adamw"}, {"lr", typed_number(text("learning_rate"))}, {"weight_decay", 0.01}, {"num_warmup_steps", 0}}}};
  if (is_preference) {
    request["algorithm_config"] = {{"type", "dpo"}, {"beta", typed_number(text("beta"))}, {"loss_type", "sigmoid"}};
  } else if (!text("lora_rank").empty()) {
    const Json rank = typed_number(text("lora_rank"));
    request["algorithm_config"] = {
        {"type", "LoRA"},
        {"rank", rank},
        {"alpha", rank.is_number_integer() && rank.get<int64_t>() < (1 << 20) ? Json(2 * rank.get<int64_t>()) : rank},
        {"lora_attn_modules", {"q_proj", "k_proj", "v_proj", "output_proj"}},
        {"apply_lora_to_mlp", true},
        {"apply_lora_to_output", false}};
  }
  return request;
}

}  // namespace distsetup
