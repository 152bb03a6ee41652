// Every page that `distsetup explain` can show, in one store: the files of templates/_explain (messages; a further file needs no code)
// and the rules of `distsetup lint`, which have a table of their own. Keys of a run are explained by their own table (help.h).
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distsetup {

struct Page {
  std::string name;               // "DS0101", "SL003"
  std::vector<std::string> also;  // other words for the same
  std::string title, why;
  std::vector<std::pair<std::string, std::string>> facts;  // in the JSON; of a rule: bites, fix, source
  std::string facts_text;                                  // the same as lines of the page
  std::string wrong, right;                                // examples; empty: it is not about a spelling
};

struct PageGroup {
  std::string heading;  // in the list of all pages; "" = none
  std::vector<Page> pages;
  bool is_of_words = false;  // that previews print: found by any word of a name too
};

const std::vector<PageGroup>& explanations();
// By name or another word for it; letter case does not matter, '-' and '_' are the same. nullptr: there is no such page.
const Page* find_page(std::string_view name);
// Of the words of a plan: the first page that has this word in one of its names. nullptr: none.
const Page* find_page_with(std::string_view word);

// The page for people, wrapped at `width` columns.
std::string page_text(const Page& page, int width);

}  // namespace distsetup
