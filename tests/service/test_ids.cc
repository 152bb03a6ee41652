#include <catch2/catch.hpp>

#include "service/body_schema.h"
#include "service/job_record.h"
#include "service/model_lookup.h"
#include "service/request_schemas.h"

#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

using namespace distsetup;

TEST_CASE("service ids: names of folders and nothing else (regression 7)") {
  for (const char* good : {"a", "fsdp-dpo-large-model", "A.b_c-1", "_", "-x"}) CHECK(is_valid_id(good));
  for (const char* bad : {"", ".", "..", ".hidden", "../x", "a/b", "a b", "a\n", "ä", "a\\b", "a%2f"}) CHECK(!is_valid_id(bad));
  CHECK(is_valid_id(std::string(128, 'a')));
  CHECK(!is_valid_id(std::string(129, 'a')));
}

TEST_CASE("service ids: the schema and the check say the same") {
  for (const std::string text : {"a", "..", ".a", "a/b", "a.b", "-", "", "a\n", "ä"}) {
    std::vector<BodyMistake> mistakes;
    check_body(schema_named("Id"), text, "id", mistakes);
    INFO(text);
    CHECK(mistakes.empty() == is_valid_id(text));
  }
}

TEST_CASE("service ids: a path is below a root only where links lead there, too") {
  TemporaryDirectory folder;
  const std::string root = folder.path("root"), outside = folder.path("outside");
  std::filesystem::create_directories(root + "/m");
  std::filesystem::create_directories(outside);
  std::filesystem::create_symlink(outside, root + "/link");
  CHECK(path_below({root}, root + "/m"));
  CHECK(path_below({root}, root));
  CHECK(!path_below({root}, root + "/../outside"));
  CHECK(!path_below({root}, root + "/link"));
  CHECK(!path_below({root}, root + "/nothing"));
  CHECK(!path_below({}, root));
  std::filesystem::create_directories(folder.path("root2"));
  CHECK(!path_below({root}, folder.path("root2")));
}

TEST_CASE("service ids: models by name, below the roots alone") {
  TemporaryDirectory folder;
  ServiceSettings settings;
  settings.model_roots = {folder.path("root")};
  std::filesystem::create_directories(folder.path("root/tiny"));
  std::filesystem::create_directories(folder.path("elsewhere"));
  std::ofstream(folder.path("root/tiny/config.json")) << "{}";
  std::ofstream(folder.path("elsewhere/config.json")) << "{}";
  CHECK(find_served_model(settings, "tiny"));
  CHECK(find_served_model(settings, "org/tiny"));
  CHECK(!find_served_model(settings, "../elsewhere"));
  CHECK(!find_served_model(settings, folder.path("elsewhere")));
  CHECK(served_models(settings).size() == 1);
}

TEST_CASE("service: times are UTC with milliseconds") {
  CHECK(utc_text(0) == "1970-01-01T00:00:00.000Z");
  CHECK(utc_text(1795527700123) == "2026-11-24T13:41:40.123Z");
}
