// Words that a plan's texts share.
#pragma once
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace distsetup {

std::string_view verdict_words(Verdict verdict);  // "fits", "tight", "does not fit"
// With its probability: "fits (99 %)", "tight (83 %)"; without where there is no doubt.
std::string verdict_words(Verdict verdict, double fit_probability);
// Nothing is wrong on the device: what the host has to hold is more than it has for training.
bool lacks_host_memory(const Plan& plan);
// "43.7 GiB of 79.1 GiB per GPU", or what the host needs where that is what does not fit.
std::string memory_words(const Plan& plan);
std::string_view rank_word(const HardwarePlan& hardware);  // "GPU", or "rank" on CPU
// Verdict, memory, time and the choices in one line: "fits · 68.6 GiB of 79.2 GiB per GPU · 26.9 s per step · zero1 · micro-batch 1".
std::string headline(const Plan& plan);

// When gradients are reduced and parameters gathered, where it is not as usual: " · reduces after backward"; else "".
std::string transfer_words(const Plan& plan);

}  // namespace distsetup
