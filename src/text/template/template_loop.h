// The variable `loop` of a for block: it fetches items one by one, so that a condition of the loop is asked when Python would ask it.
#pragma once
#include <functional>

#include "text/template/python_value.h"
#include "text/template/walk.h"

namespace distsetup::jinja {

class HeldLoop : public Held {
 public:
  // accepts: the condition of `for x in items if …`; null where there is none. It is called only while the loop runs.
  HeldLoop(const PyValue& items, std::function<bool(const PyValue&)> accepts);

  bool advance();  // to the next item; false at the end
  const PyValue& current() const { return *current_; }
  void finish() { accepts_ = nullptr; }

  Integer length();
  PyValue attribute(std::string_view name);  // loop.index …; undefined for what a loop does not have
  bool is_changed(const Values& values);     // loop.changed(…)
  Integer index0() const { return index0_; }

 private:
  std::optional<PyValue> fetch();
  const std::optional<PyValue>& peek();
  bool is_sized_;
  Integer size_ = 0;
  Walk walk_;
  std::function<bool(const PyValue&)> accepts_;
  Integer index0_ = -1;
  bool has_peeked_ = false;
  std::optional<PyValue> before_, current_, after_;
  std::optional<Values> rest_;  // what was fetched early to know the length
  size_t rest_position_ = 0;
  std::optional<Values> last_changed_;
};

HeldLoop& loop_of(const PyValue& value);

}  // namespace distsetup::jinja
