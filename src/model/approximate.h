// A model of an architecture that is not known, as a transformer of about the same sizes: so that a plan answers within a stated
// uncertainty instead of not at all.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/value.h"
#include "model/geometry.h"

namespace distsetup {

// How such a model was read, and how far 9 of 10 lie at most from what is true. Parameters: of 318 architectures of Transformers 5.23
// and of files published since 2024 (2026-11) a third was held out; rules were written with the others in view. Memory and time: these
// parameters, and what 26 plans of known families differ by when they are read by their sizes (11 % memory, 7 % time). Encoders of
// Transformers: parameters of 16 models as its classes count them; what BERT's layers keep of a token (dropout included) is 14 % more
// than planned, by saved tensors of version 5.23.
struct Approximation {
  std::string_view family;  // as Geometry's
  std::string_view from;
  double parameters, memory, time;
};
inline constexpr Approximation kApproximations[] = {
    {"approximate", "from its sizes", 0.17, 0.20, 0.18},
    {"approximate_encoder", "from its sizes, with an encoder or in BERT's style", 0.49, 0.50, 0.49},
    {"approximate_counted", "counted in its safetensors files", 0, 0.11, 0.07},
    {"approximate_bert", "from its sizes, as Transformers' class counts", 0.002, 0.20, 0.49},
};
// nullptr: the model's family is known.
const Approximation* approximation(const Geometry& geometry);
inline bool is_approximate(const Geometry& geometry) { return approximation(geometry) != nullptr; }

// From the sizes that its config.json states, under the names that families use for them; what is left of `parameters` (0: not known)
// goes into the MLPs. `what_is_not_known` of its model_type is said. Errors: no layers, width or vocabulary.
Result<Geometry> approximate_geometry(const Value& config, const std::string& name, int64_t parameters,
                                      std::string_view what_is_not_known = "model_type");

// A note where the file's class is one that scores no words (…ForSequenceClassification).
void say_without_scores(const Value& config, Diagnostics& said);

}  // namespace distsetup
