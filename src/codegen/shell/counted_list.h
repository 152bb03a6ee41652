// $(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | wc -l): how many items a list has, as scripts count their GPUs.
#pragma once
#include <optional>
#include <string_view>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// What is counted, and what stands between its items.
struct CountedList {
  ShellWord list;
  char between = ',';
};

// The inside of a $( ) that counts the items of one list: by awk's NF, or by lines of what tr or sed took apart. Nothing of others.
std::optional<CountedList> counted_list(const ShellScript& inside);

}  // namespace distsetup::foreign
