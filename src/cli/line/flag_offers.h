// What a shell can offer behind `distsetup COMMAND`: the flag table as completions and the manual need it.
#pragma once
#include <string>
#include <vector>

#include "cli/line/flags.h"

namespace distsetup {

// What may stand in a place: any of these words, a file, a folder; none of them: anything.
struct Offer {
  std::vector<std::string> words;
  bool files = false, folders = false;
  bool operator==(const Offer&) const = default;
};

struct FlagOffer {
  std::vector<std::string> spellings;  // without dashes; the first is the one that help prints
  char letter = 0;
  std::string help, placeholder;
  bool takes_value = false, may_stand_alone = false, may_repeat = false;
  bool is_shown = true;  // false: another spelling of a key whose usual flag is offered, found when a value is asked for
  Offer value;
};

// Its own flags, those of the keys of a run that it takes, those of every command.
std::vector<FlagOffer> flag_offers(const Command& command);
Offer positional_offer(const Command& command);

}  // namespace distsetup
