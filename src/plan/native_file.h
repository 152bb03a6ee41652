// presets/programs/native/FAMILY.yaml: the bundled trainer's program for a family of models (config.json's model_type), forward only
// (presets/README.md says how to write one). Read once; model_programs.h then fills in one model's facts.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "model/geometry.h"
#include "plan/layer_form.h"
#include "plan/missing_kernel.h"
#include "plan/program.h"

namespace distsetup {

struct NativeFile {
  struct Weight {
    ParameterDecl decl;
    std::vector<std::string> when;
  };
  struct Operation {
    Op op;
    std::vector<std::string> when;
    std::map<std::string, std::string> attributes;  // name -> value, as written
  };
  struct Unit {
    std::string prefix;
    std::vector<Weight> weights;
    std::vector<Operation> forward;
    std::vector<std::string> selective;  // what recompute: selective drops
  };
  std::string name;
  std::vector<std::string> needs;                                        // conditions that must hold of a model
  std::map<std::string, std::map<std::string, std::string>> attributes;  // by kernel, where an op does not say otherwise
  std::vector<MissingKernel> missing;
  std::vector<std::string> buffers;  // endings of published names that nobody reads
  // Of a family whose name models are given that are merely like it: class names of the layers that it is a program of; empty: all.
  std::vector<std::string> layer_classes;
  Unit embedding, block, head;
};

// `read_base`: the text of another file by name, "" when there is none. Errors are at `path`:line:col.
Result<NativeFile> read_native_file(std::string_view text, const std::string& path, std::string (*read_base)(std::string_view name));

}  // namespace distsetup
