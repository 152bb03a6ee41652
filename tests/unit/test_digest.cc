// SHA-256 against published vectors, and independence of how the bytes arrive.
#include "base/digest.h"

#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "support/temporary_directory.h"

using namespace distsetup;

TEST_CASE("SHA-256 gives the published digests", "[digest]") {
  // NIST, "SHA-256 examples" and the long-message test of FIPS 180-2 appendix B.3.
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu") ==
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(sha256(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("the digest does not depend on how the bytes are cut", "[digest]") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  // Lengths around the padding's edges: 55, 56, 63, 64, 119, 120.
  for (size_t length = 0; length <= text.size(); ++length) {
    const std::string_view part = std::string_view(text).substr(0, length);
    Sha256 pieces;
    for (size_t i = 0; i < length; i += 1 + i % 13) pieces.update(part.substr(i, 1 + i % 13));
    INFO("length " << length);
    Sha256 plain(/*plain=*/true);
    plain.update(part);
    const std::string digest = sha256(part);
    REQUIRE(pieces.hex() == digest);
    REQUIRE(plain.hex() == digest);
  }
}

TEST_CASE("a file has the digest of its bytes", "[digest]") {
  const TemporaryDirectory folder;
  const std::string bytes((size_t{1} << 20) + 12345, '\x5a');  // more than one chunk
  const Result<std::string> digest = sha256_of_file(folder.write("a", bytes));
  REQUIRE(digest.ok());
  CHECK(*digest == sha256(bytes));
}

TEST_CASE("a file that cannot be read is a diagnostic", "[digest]") {
  const Result<std::string> missing = sha256_of_file("/nonexistent/weights.bin");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.diagnostics[0].code == code::kUnreadableFile);
  CHECK(missing.diagnostics[0].message == "cannot read '/nonexistent/weights.bin', no such file or directory");
  CHECK(sha256_of_file("/tmp").diagnostics.at(0).message == "cannot read '/tmp', is a directory");
}
