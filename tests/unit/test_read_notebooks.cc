// Notebooks: the lines that their cells hand to a shell, at their places in the file. Each beside a near miss.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "codegen/lint/lint.h"
#include "codegen/read/document.h"
#include "codegen/read/read_file.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

using Cells = std::vector<std::vector<std::string>>;

// As Jupyter saves it: every line of a cell on a line of its own. The first cell's first line is line 6.
std::string notebook(const Cells& cells, const std::string& type = "code") {
  std::string out = "{\n \"cells\": [";
  for (size_t i = 0; i < cells.size(); ++i) {
    out += std::string(i == 0 ? "\n" : ",\n") + "  {\n   \"cell_type\": \"" + type + "\",\n   \"source\": [\n";
    for (size_t k = 0; k < cells[i].size(); ++k) {
      const bool is_last = k + 1 == cells[i].size();
      out += "    " + Json(cells[i][k] + (is_last ? "" : "\n")).dump() + (is_last ? "\n" : ",\n");
    }
    out += "   ]\n  }";
  }
  return out + "\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n";
}

foreign::DocumentPointer parsed(const std::string& text) {
  const Result<foreign::DocumentPointer> d = foreign::parse_document(embedded_templates(), "n.ipynb", text);
  REQUIRE(d.ok());
  return *d;
}

FileSays said(const std::string& text) {
  Result<std::vector<Reading>> readings = read_config(embedded_templates(), text, "n.ipynb", "", {});
  INFO(text);
  REQUIRE(readings.ok());
  return merged(std::move(*readings));
}

const std::string kRun = "!torchrun --nproc_per_node 8 own.py --model_name gpt2";

}  // namespace

TEST_CASE("notebooks: lines for a shell are a script at its places", "[read]") {
  CHECK(said(notebook({{"import torch", kRun}})).text("hardware.gpus_per_node") == "8");
  CHECK(said(notebook({{"%%bash", "N=4", "torchrun --nproc_per_node $N own.py"}})).text("hardware.gpus_per_node") == "4");
  CHECK(said(notebook({{"!torchrun \\", "  --nproc_per_node 2 own.py"}})).text("hardware.gpus_per_node") == "2");
  CHECK(said(notebook({{"%env NP=6"}, {"!torchrun --nproc_per_node $NP own.py"}})).text("hardware.gpus_per_node") == "6");
  // Gone with the shell of its own line.
  CHECK(said(notebook({{"!export NP=6"}, {"!torchrun --nproc_per_node $NP own.py --learning_rate 1e-4"}}))
            .text("hardware.gpus_per_node")
            .empty());
  // A variable of Python.
  CHECK(said(notebook({{"lr = 2", kRun + " --learning_rate {lr}"}})).text("train.learning_rate").empty());
  CHECK(said(notebook({{kRun + " --learning_rate 2e-5"}})).text("train.learning_rate") == "2e-05");
  const LintReport report = lint_files({{"n.ipynb", notebook({{"x = 1", kRun}})}}, {});
  REQUIRE_FALSE(report.findings.empty());
  CHECK(report.findings[0].diagnostic.code == "TR004");
  CHECK(report.findings[0].diagnostic.location.line == 7);
  CHECK(report.findings[0].diagnostic.location.column == 6);
}

TEST_CASE("notebooks: a file that a cell writes is read with the line that names it", "[read]") {
  const std::vector<std::string> file = {"%%writefile ds.json", "{", " \"zero_optimization\": {\"stage\": 3},",
                                         " \"train_micro_batch_size_per_gpu\": 2", "}"};
  const std::string line = "!deepspeed --num_gpus 4 own.py --deepspeed_config ";
  CHECK(said(notebook({file, {line + "ds.json"}})).text("micro_batch") == "2");
  CHECK(said(notebook({file, {line + "other.json"}})).text("micro_batch").empty());
}

TEST_CASE("notebooks: without a line for a shell the kind is named", "[read]") {
  CHECK(parsed(notebook({{kRun}}))->is(file_kind::kNotebook));
  CHECK(parsed(notebook({{"import torch", "x = 1  # !torchrun"}}))->is(file_kind::kNotebookFile));
  CHECK(parsed(notebook({{kRun}}, "markdown"))->is(file_kind::kNotebookFile));
  CHECK(parsed(notebook({{"%%javascript", kRun}}))->is(file_kind::kNotebookFile));
  CHECK(parsed("{\"cells\": 3, \"zero_optimization\": {\"stage\": 2}}")->kind != nullptr);
  CHECK_FALSE(parsed("{\"cells\": 3, \"zero_optimization\": {\"stage\": 2}}")->is(file_kind::kNotebookFile));
}

TEST_CASE("notebooks: a cell may be one text, and a notebook one line", "[read]") {
  const auto cell = [](const std::string& text) {
    return R"({"cells": [{"cell_type": "code", "source": )" + Json(text).dump() + "}], \"nbformat\": 4}\n";
  };
  CHECK(said(cell("%%bash\nN=4\ntorchrun --nproc_per_node $N own.py")).text("hardware.gpus_per_node") == "4");
  CHECK(said(cell("import torch\n!torchrun \\\n  --nproc_per_node 2 own.py\n")).text("hardware.gpus_per_node") == "2");
  const std::string file = R"({"cell_type": "code", "source": "%%writefile ds.json\n{\"train_micro_batch_size_per_gpu\": 2,\n)"
                           R"(\"zero_optimization\": {\"stage\": 2}}"})";
  const std::string line = R"({"cell_type": "code", "source": ["!deepspeed --num_gpus 4 own.py --deepspeed_config ds.json"]})";
  const FileSays says = said("{\"cells\":[" + file + "," + line + "],\"nbformat\":4}");
  CHECK(says.text("micro_batch") == "2");
  CHECK(says.text("strategy.sharding") == "zero2");
  const LintReport report = lint_files({{"n.ipynb", "{\n\n" + cell("x = 1\n" + kRun).substr(1)}}, {});
  REQUIRE_FALSE(report.findings.empty());
  CHECK(report.findings[0].diagnostic.code == "TR004");
  CHECK(report.findings[0].diagnostic.location.line == 3);
  // A line that goes on at the end of its cell ends there.
  CHECK(said(notebook({{"!torchrun --nproc_per_node 2 \\"}, {"!ls own.py"}})).text("hardware.gpus_per_node") == "2");
}

TEST_CASE("notebooks: lint changes nothing in them", "[lint]") {
  const std::string line = "torchrun --nproc_per_node 2 --rdzv_timeout 30 own.py";
  const auto num_fixes = [](const std::string& path, const std::string& text) {
    const LintReport report = lint_files({{path, text}}, {});
    const auto is_it = [](const LintFinding& one) { return one.diagnostic.code == "TR007" && !one.edits.empty(); };
    const auto is_found = [](const LintFinding& one) { return one.diagnostic.code == "TR007"; };
    CHECK(std::count_if(report.findings.begin(), report.findings.end(), is_found) == 1);
    return std::count_if(report.findings.begin(), report.findings.end(), is_it);
  };
  CHECK(num_fixes("r.sh", line + "\n") == 1);
  CHECK(num_fixes("n.ipynb", notebook({{"!" + line}})) == 0);
}
