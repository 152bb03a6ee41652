#include "text/template/walk.h"

#include <fmt/format.h>

#include "text/template/characters.h"
#include "text/template/steps.h"
#include "text/template/template_loop.h"

namespace distsetup::jinja {
namespace {

PyValue entry_at(const HeldView& view, size_t i) {
  const auto& [key, value] = entries_of(view.dict)[i];
  return view.of == ViewOf::kItems ? tuple({key, value}) : view.of == ViewOf::kKeys ? key : value;
}

}  // namespace

bool is_iterable(const PyValue& value) {
  switch (value.type) {
    case Type::kUndefined:
    case Type::kText:
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
    case Type::kView:
    case Type::kRange:
    case Type::kIterator:
    case Type::kLoop: return true;
    default: return false;
  }
}

std::optional<size_t> length_of(const PyValue& value) {
  switch (value.type) {
    case Type::kUndefined: return 0;
    case Type::kText: return num_characters(text_of(value));
    case Type::kList:
    case Type::kTuple: return items_of(value).size();
    case Type::kDict: return entries_of(value).size();
    case Type::kView: return entries_of(view_of(value).dict).size();
    case Type::kRange: return static_cast<size_t>(range_of(value).length);
    case Type::kLoop: return static_cast<size_t>(loop_of(value).length());
    default: return std::nullopt;
  }
}

Walk::Walk(const PyValue& value) : value_(value) {
  if (!is_iterable(value)) fail(fmt::format("'{}' cannot be walked item by item", type_name(value)));
  if (value.is(Type::kLoop)) fail("the loop itself cannot be walked item by item here");
  if (value.is(Type::kText)) characters_ = characters_of(text_of(value));
  count_steps(characters_.size());
  if (!value.is(Type::kIterator)) size_ = value.is(Type::kText) ? characters_.size() : *length_of(value);
}

std::optional<PyValue> Walk::next() {
  count_steps(1);
  if (value_.is(Type::kIterator)) {
    HeldIterator& held = iterator_of(value_);
    if (held.position < held.items->size()) return (*held.items)[held.position++];
    if (held.failure) throw TemplateError(*held.failure);
    return std::nullopt;
  }
  const size_t i = position_++;
  if (i >= size_) return std::nullopt;
  switch (value_.type) {
    case Type::kText: return text(std::move(characters_[i]));
    case Type::kDict: return entries_of(value_)[i].first;
    case Type::kView: return entry_at(view_of(value_), i);
    case Type::kRange: return integer(range_of(value_).start + static_cast<Integer>(i) * range_of(value_).step);
    default: return items_of(value_)[i];
  }
}

Values all_items(const PyValue& value) {
  Values items;
  for (Walk walk(value); std::optional<PyValue> one = walk.next();) items.push_back(std::move(*one));
  return items;
}

}  // namespace distsetup::jinja
