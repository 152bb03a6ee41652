#include "text/template/letter_case.h"

#include <utf8proc.h>

#include "text/template/characters.h"
#include "text/template/special_case.h"

namespace distsetup::jinja {
namespace {

bool has_case(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

// Unicode's Case_Ignorable: marks, modifiers, and punctuation inside words.
bool is_ignored_by_case(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
  }
  constexpr std::u32string_view kInsideWords =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  return kInsideWords.find(c) != std::u32string_view::npos;
}

// Is the sigma at i the last letter of a word?
bool is_final_sigma(std::u32string_view text, size_t i) {
  size_t before = i, after = i + 1;
  while (before > 0 && is_ignored_by_case(text[before - 1])) --before;
  while (after < text.size() && is_ignored_by_case(text[after])) ++after;
  return before > 0 && has_case(text[before - 1]) && (after == text.size() || !has_case(text[after]));
}

void append_lower(std::string& to, std::u32string_view text, size_t i) {
  constexpr char32_t kSigma = U'\u03a3', kFinalSigma = U'\u03c2', kDottedI = U'\u0130';
  if (text[i] == kDottedI) {
    to += "i\u0307";
  } else if (text[i] == kSigma && is_final_sigma(text, i)) {
    append_code_point(to, kFinalSigma);
  } else {
    append_code_point(to, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[i]))));
  }
}

void append_upper(std::string& to, char32_t c) {
  const SpecialCase* special = find_special_case(c);
  if (special != nullptr) {
    to += utf8(special->upper);
  } else {
    append_code_point(to, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& to, char32_t c) {
  const SpecialCase* special = find_special_case(c);
  if (special != nullptr) {
    to += utf8(special->title);
  } else {
    append_code_point(to, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace

std::string upper_case(std::string_view text) {
  std::string out;
  for (const char32_t c : code_points(text)) append_upper(out, c);
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  const std::u32string points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i) append_lower(out, points, i);
  return out;
}

std::string capitalised(std::string_view text) {
  std::string out;
  const std::u32string points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      append_title(out, points[i]);
    } else {
      append_lower(out, points, i);
    }
  }
  return out;
}

std::string title_case(std::string_view text) {
  std::string out;
  const std::u32string points = code_points(text);
  bool is_inside = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (is_inside) {
      append_lower(out, points, i);
    } else {
      append_title(out, points[i]);
    }
    is_inside = has_case(points[i]);
  }
  return out;
}

std::string swapped_case(std::string_view text) {
  std::string out;
  const std::u32string points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i) {
    if (is_upper(points[i])) {
      append_lower(out, points, i);
    } else if (is_lower(points[i])) {
      append_upper(out, points[i]);
    } else {
      append_code_point(out, points[i]);
    }
  }
  return out;
}

}  // namespace distsetup::jinja
