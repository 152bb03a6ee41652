// Base64 against RFC 4648, section 10, and what is none.
#include <catch2/catch.hpp>

#include "base/base64.h"

using namespace distsetup;

TEST_CASE("base64: the RFC's examples") {
  CHECK(from_base64("") == "");
  CHECK(from_base64("Zg==") == "f");
  CHECK(from_base64("Zm8=") == "fo");
  CHECK(from_base64("Zm9v") == "foo");
  CHECK(from_base64("Zm9vYg==") == "foob");
  CHECK(from_base64("Zm9vYmE=") == "fooba");
  CHECK(from_base64("Zm9vYmFy") == "foobar");
  CHECK(from_base64("+/+/") == "\xfb\xff\xbf");
}

TEST_CASE("base64: what is none is refused whole") {
  for (const char* text :
       {"Z", "Zg", "Zg=", "Zg===", "====", "Z===", "Zm9v!", "Zm 9", "Zm9\n", "Zm9vZm9-", "=m9v", "Zm=v", "Zm9vZg==Zm9v"}) {
    INFO(text);
    CHECK_FALSE(from_base64(text));
  }
  CHECK_FALSE(from_base64(std::string_view("Zm9\0", 4)));
}
