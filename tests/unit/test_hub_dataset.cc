// Folders of the hub's data sets: which files are for training, by the card and by names.
#include <catch2/catch.hpp>
#include <filesystem>

#include "data/hub_dataset.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

struct DatasetFolder {
  TemporaryDirectory folder;
  explicit DatasetFolder(const std::vector<std::string>& files, const std::string& card = "") {
    for (const std::string& file : files) folder.write("set/" + file, "{}\n");
    if (!card.empty()) folder.write("set/README.md", "---\n" + card + "---\n# A set\n");
  }
  // Names below the folder with commas between, or what is said.
  std::string files(const std::string& subset = "") const {
    const Result<std::vector<std::string>> found = training_files({folder.path("set"), "org/set", subset}, {});
    if (!found.ok()) return found.diagnostics.front().message + " | " + found.diagnostics.front().help;
    std::string text;
    for (const std::string& file : *found)
      text += (text.empty() ? "" : ",") + std::filesystem::path(file).lexically_relative(folder.path("set")).string();
    return text;
  }
};

}  // namespace

TEST_CASE("hub dataset: the card's configurations say which files are for training") {
  const DatasetFolder set({"sample/10BT/000.parquet", "sample/10BT/001.parquet", "sample/100BT/000.parquet", "data/a/b/0.jsonl",
                           "data/a/0.jsonl", "extra/x.csv", "extra/test-x.csv"},
                          "configs:\n"
                          "- config_name: sample-10BT\n  data_files:\n  - split: train\n    path: sample/10BT/*\n"
                          "- config_name: default\n  data_files:\n  - split: train\n    path: data/*/*\n"
                          "- config_name: deep\n  data_files:\n  - split: train\n    path: [\"data/**\", extra/x.csv]\n"
                          "- config_name: plain\n  data_files: extra/*.csv\n"
                          "- config_name: folder\n  data_dir: extra\n"
                          "- config_name: held\n  data_files:\n  - split: test\n    path: extra/test-x.csv\n");
  CHECK(is_hub_dataset(set.folder.path("set")));
  CHECK(set.files() == "data/a/0.jsonl");
  CHECK(set.files("sample-10BT") == "sample/10BT/000.parquet,sample/10BT/001.parquet");
  CHECK(set.files("deep") == "data/a/0.jsonl,data/a/b/0.jsonl,extra/x.csv");
  CHECK(set.files("plain") == "extra/test-x.csv,extra/x.csv");
  CHECK(set.files("folder") == "extra/x.csv");
  CHECK(set.files("held") == "its splits are test, expected one that is called train | name the files themselves as sources");
  CHECK(set.files("nothing") == "'org/set' has no subset 'nothing' | it has: sample-10BT, default, deep, plain, folder, held");
}

TEST_CASE("hub dataset: one of several configurations is named, unless one is the default") {
  const std::string two = "configs:\n- config_name: a\n  data_files: a.csv\n- config_name: b\n  data_files: b.csv\n";
  CHECK(DatasetFolder({"a.csv", "b.csv"}, two).files() ==
        "'org/set' has several subsets, and none is named | {path: org/set, subset: NAME} with one of: a, b");
  CHECK(DatasetFolder({"a.csv", "b.csv"}, two + "  default: true\n").files() == "b.csv");
  CHECK(DatasetFolder({"a.csv"}, "configs:\n- config_name: a\n  data_files: a.csv\n").files() == "a.csv");
}

TEST_CASE("hub dataset: without configurations names of files say what they are for") {
  const std::string card = "license: mit\n";
  CHECK(DatasetFolder({"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet"},
                      card)
            .files() == "data/train-00000-of-00002.parquet,data/train-00001-of-00002.parquet");
  CHECK(DatasetFolder({"train/a.jsonl", "validation/a.jsonl"}, card).files() == "train/a.jsonl");
  CHECK(DatasetFolder({"rows.jsonl", "rows_eval.jsonl", "latest.jsonl"}, card).files() == "latest.jsonl,rows.jsonl");
  CHECK(DatasetFolder({"trained.jsonl", "b.jsonl"}, card).files() == "b.jsonl,trained.jsonl");
  CHECK(DatasetFolder({"en/train.csv", "de/train.csv"}, card).files("de") == "de/train.csv");
  CHECK(DatasetFolder({"en/train.csv"}, card).files("fr") ==
        "'org/set' has no files of a training split of 'fr' | download them, or name the files themselves as sources");
  const DatasetFolder plain({"a.txt"});
  plain.folder.write("set/README.md", "# notes\n");
  CHECK_FALSE(is_hub_dataset(plain.folder.path("set")));
}
