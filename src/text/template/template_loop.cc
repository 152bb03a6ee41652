#include "text/template/template_loop.h"

#include "text/template/compare.h"

namespace distsetup::jinja {

HeldLoop::HeldLoop(const PyValue& items, std::function<bool(const PyValue&)> accepts)
    : is_sized_(!accepts && length_of(items).has_value()), walk_(items), accepts_(std::move(accepts)) {
  if (is_sized_) size_ = static_cast<Integer>(*length_of(items));
  depth = depth_over(items);
}

std::optional<PyValue> HeldLoop::fetch() {
  if (rest_) {
    if (rest_position_ < rest_->size()) return (*rest_)[rest_position_++];
    return std::nullopt;
  }
  while (std::optional<PyValue> one = walk_.next()) {
    if (!accepts_ || accepts_(*one)) return one;
  }
  return std::nullopt;
}

const std::optional<PyValue>& HeldLoop::peek() {
  if (!has_peeked_) after_ = fetch();
  has_peeked_ = after_.has_value();
  return after_;
}

bool HeldLoop::advance() {
  std::optional<PyValue> one = has_peeked_ ? std::exchange(after_, std::nullopt) : fetch();
  has_peeked_ = false;
  if (!one) return false;
  ++index0_;
  before_ = std::exchange(current_, std::move(one));
  return true;
}

Integer HeldLoop::length() {
  if (!is_sized_) {
    Values rest;
    while (std::optional<PyValue> one = fetch()) rest.push_back(std::move(*one));
    size_ = static_cast<Integer>(rest.size()) + index0_ + 1 + (has_peeked_ ? 1 : 0);
    rest_ = std::move(rest);
    rest_position_ = 0;
    is_sized_ = true;
  }
  return size_;
}

PyValue HeldLoop::attribute(std::string_view name) {
  if (name == "index0") return integer(index0_);
  if (name == "index") return integer(index0_ + 1);
  if (name == "first") return boolean(index0_ == 0);
  if (name == "last") return boolean(!peek());
  if (name == "length") return integer(length());
  if (name == "revindex0") return integer(length() - index0_ - 1);
  if (name == "revindex") return integer(length() - index0_);
  if (name == "depth0") return integer(0);
  if (name == "depth") return integer(1);
  if (name == "previtem") return before_ ? *before_ : undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *peek() : undefined("there is no next item");
  return undefined("'LoopContext object' has no attribute '" + std::string(name) + "'");
}

bool HeldLoop::is_changed(const Values& values) {
  if (last_changed_ && equal(tuple(*last_changed_), tuple(values))) return false;
  last_changed_ = values;
  return true;
}

HeldLoop& loop_of(const PyValue& value) { return static_cast<HeldLoop&>(*value.held); }

}  // namespace distsetup::jinja
