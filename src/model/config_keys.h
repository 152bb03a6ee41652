// Keys of a config.json by a path, and what families say of them: private to src/model.
#pragma once
#include <string_view>

#include "base/value.h"

namespace distsetup {

// The value at "a.b": key b of the map a; nullptr where there is none. Whether null counts is the caller's to say.
const Value* value_at(const Value& config, std::string_view path);
const Value* stated_at(const Value& config, std::string_view path);  // null is as if it were not there
// "alibi": it is true, a number that is not 0, or some text; "not bias": false is meant; "activation = relu". The value that is so,
// nullptr where it is otherwise or not there.
const Value* stated_as(const Value& config, std::string_view condition);

}  // namespace distsetup
