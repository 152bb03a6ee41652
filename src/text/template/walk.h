// Walking a value item by item, as a loop of Python would: characters of a text, keys of a dict, what is left of an iterator.
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

bool is_iterable(const PyValue& value);
std::optional<size_t> length_of(const PyValue& value);  // as len(); none where Python has none

class Walk {
 public:
  explicit Walk(const PyValue& value);  // fails for what cannot be walked
  std::optional<PyValue> next();

 private:
  PyValue value_;
  std::vector<std::string> characters_;
  size_t size_ = 0, position_ = 0;
};

// All (remaining) items.
Values all_items(const PyValue& value);

}  // namespace distsetup::jinja
