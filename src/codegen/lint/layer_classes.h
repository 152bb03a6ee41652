// Classes of models that FSDP wraps (templates/_layer_classes.yaml).
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace distsetup::lint {

// The class of transformers that `name` is a slip of: another case, or a slip in its last word ("LlamaDecoderLayr"); "" when it is
// known, or near to none.
std::string misspelt_layer_class(std::string_view name);

}  // namespace distsetup::lint
