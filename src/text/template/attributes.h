// object.name, object[key], object[a:b]: jinja2 tries attribute and key one after the other, and answers undefined where both fail. A
// dict has methods that win over keys of the same name (schema.items), and a missing key gives the method (message['items']).
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

struct Slice {
  PyValue start, stop, step;
};

PyValue attribute_of(const PyValue& object, std::string_view name);
PyValue item_of(const PyValue& object, const PyValue& key);
PyValue slice_of(const PyValue& object, const Slice& slice);
// "a.0.b": what filters take as attribute=; item by item, digits as an index. `absent`, where it is given, stands for each that is
// undefined.
PyValue path_of(PyValue object, const PyValue& path, const PyValue* absent = nullptr);

}  // namespace distsetup::jinja
