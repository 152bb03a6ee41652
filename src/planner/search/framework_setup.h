// A choice as the Setup that the models of other trainers' memory and time take, and what those trainers refuse by themselves.
#pragma once
#include <vector>

#include "planner/frameworks/setup.h"
#include "planner/search/choice.h"

namespace distsetup {

Setup setup_of(const Problem& problem, int nodes, const Choice& choice);
// The same in two steps: what all choices share is copied once.
Setup base_setup(const Problem& problem, int nodes);
void apply(const Problem& problem, const Choice& choice, Setup& setup);

// Whether more tensor ranks than kv heads share them: the search does not propose it, and a user who asks for it of a trainer that has
// it in a later release knows which one runs.
bool copies_kv_heads(const Problem& problem);

// Removes the choices that validate() refuses; returned is what it says to the first of them.
Diagnostics drop_refused(const Problem& problem, int nodes, std::vector<Choice>& choices);

}  // namespace distsetup
