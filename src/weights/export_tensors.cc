// A piece is a range of published rows. Of a matrix they are rows of the program's order, which a family may order otherwise; of a
// transposed one the program's columns. Each stretch is a box that the checkpoint is asked for.
#include "weights/export_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "plan/published_order.h"
#include "weights/read_box.h"

namespace distsetup {
namespace {

int64_t published_bytes(const Parameter& p, StoredType type) { return full_numel(p) * size_of(type); }

// The program's row of each published one.
std::vector<int64_t> program_rows(const Parameter& p, const Geometry& geometry) {
  std::vector<int64_t> rows(static_cast<size_t>(p.full_shape[0]));
  for (int64_t row = 0; row < p.full_shape[0]; ++row) rows[static_cast<size_t>(published_row(p, geometry, row))] = row;
  return rows;
}

class TensorExport {
 public:
  TensorExport(const Parameter& p, const Geometry& geometry, const ReadParameter& from)
      : p_(p), from_(from), rows_(program_rows(p, geometry)), shape_(p.published_rows > 0 ? p.full_shape : published_shape(p)) {}

  int64_t num_rows() const { return shape_[0]; }
  int64_t width() const { return shape_.size() > 1 ? shape_[1] : 1; }

  // Published rows [first, first + count) as fp32.
  Diagnostics read(int64_t first, int64_t count, std::vector<float>& values) {
    values.resize(static_cast<size_t>(count * width()));
    return p_.transposed ? read_transposed(first, count, values) : read_rows(first, count, values);
  }

 private:
  Diagnostics read_rows(int64_t first, int64_t count, std::vector<float>& values) {
    for (int64_t row = 0, stretch = 0; row < count; row += stretch) {
      const auto at = rows_.begin() + first + row;
      stretch = 1;
      while (row + stretch < count && at[stretch] == at[0] + stretch) ++stretch;
      Box box = {{at[0]}, {stretch}, 0};
      if (shape_.size() > 1) box.start.push_back(0), box.size.push_back(width());
      if (Diagnostics said = from_(p_, box, values.data() + row * width()); has_error(said)) return said;
    }
    return {};
  }

  Diagnostics read_transposed(int64_t first, int64_t count, std::vector<float>& values) {
    columns_.resize(values.size());
    const Box box = {{0, first}, {width(), count}, 0};
    if (Diagnostics said = from_(p_, box, columns_.data()); has_error(said)) return said;
    for (int64_t row = 0; row < count; ++row)
      for (int64_t i = 0; i < width(); ++i)
        values[static_cast<size_t>(row * width() + i)] = columns_[static_cast<size_t>(rows_[static_cast<size_t>(i)] * count + row)];
    return {};
  }

  const Parameter& p_;
  const ReadParameter& from_;
  const std::vector<int64_t> rows_;
  const std::vector<int64_t> shape_;
  std::vector<float> columns_;
};

std::string exported_name(const ExportedFile& file, const Parameter& p) {
  return file.prefix + name_in_folder(file.names, published_name(p));
}

Diagnostics copy_tensor(const CopiedTensor& copied, SafetensorsWriter& writer) {
  std::ifstream from(copied.path, std::ios::binary);
  from.seekg(copied.entry.begin);
  std::vector<char> bytes;
  for (int64_t left = copied.entry.end - copied.entry.begin; left > 0; left -= std::ssize(bytes)) {
    bytes.resize(static_cast<size_t>(std::min<int64_t>(left, kPieceBytes)));
    if (!from.read(bytes.data(), std::ssize(bytes)))
      return {error(code::kWeights, {copied.path}, fmt::format("cannot read tensor '{}' of '{}'", copied.entry.name, copied.path))};
    writer.append(bytes.data(), std::ssize(bytes));
  }
  return {};
}

}  // namespace

std::vector<ExportedFile> exported_files(const Geometry& geometry, StoredType type, int64_t max_bytes, const OtherParts& others) {
  std::vector<ExportedFile> files(1);
  int64_t bytes = 0;
  const auto make_room = [&](int64_t more) {
    if (bytes > 0 && bytes + more > max_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
  };
  for (const UnitLayout& unit : make_layout(geometry, {}).units) {
    for (const Parameter& p : unit.parameters) {
      const int64_t more = published_bytes(p, type);
      if (p.stacked_at > 0)
        bytes += more;  // a stack of experts is one tensor
      else
        make_room(more);
      files.back().parameters.push_back(p);
    }
  }
  for (const CopiedTensor& tensor : others.tensors) {
    make_room(tensor.entry.end - tensor.entry.begin);
    files.back().copied.push_back(tensor);
  }
  for (ExportedFile& file : files) file.names = others.names;
  for (size_t i = 0; i < files.size(); ++i)
    files[i].name = files.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  return files;
}

ReadParameter parameters_of(StoredCheckpoint& checkpoint) {
  return [&checkpoint](const Parameter& p, const Box& box, float* values) { return checkpoint.read(p.name, "", box, values); };
}

Diagnostics write_exported_file(const ExportedFile& file, const Geometry& geometry, StoredType type, const ReadParameter& from,
                                const std::string& directory) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const Parameter& p : file.parameters) {
    if (p.stacked_at > 0) continue;  // behind the first expert's, in one tensor
    tensors.push_back({exported_name(file, p), std::string(dtype_of(type)), published_shape(p)});
    if (p.stacked_at == 0) tensors.back().shape.insert(tensors.back().shape.begin(), geometry.num_experts);
  }
  for (const CopiedTensor& copied : file.copied) tensors.push_back({copied.entry.name, copied.entry.dtype, copied.entry.shape});
  SafetensorsWriter writer((std::filesystem::path(directory) / file.name).string(), tensors, {{"format", "pt"}});
  std::vector<float> values;
  std::vector<char> narrowed;
  for (const Parameter& p : file.parameters) {
    TensorExport tensor(p, geometry, from);
    const int64_t step = std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(sizeof(float)) / tensor.width());
    for (int64_t row = 0; row < tensor.num_rows(); row += step) {
      if (Diagnostics said = tensor.read(row, std::min(step, tensor.num_rows() - row), values); has_error(said)) return said;
      narrowed.resize(values.size() * static_cast<size_t>(size_of(type)));
      if (!narrow(type, values.data(), static_cast<int64_t>(values.size()), narrowed.data()))
        return {error(code::kWeights, {}, fmt::format("'{}' has values beyond the largest of {}", p.name, dtype_of(type)),
                      "--dtype bf16, or fp32")};
      writer.append(narrowed.data(), static_cast<int64_t>(narrowed.size()));
    }
  }
  for (const CopiedTensor& copied : file.copied)
    if (Diagnostics said = copy_tensor(copied, writer); has_error(said)) return said;
  return writer.finish().diagnostics;
}

std::string exported_index(const std::vector<ExportedFile>& files, StoredType type) {
  Json map = Json::object();
  int64_t bytes = 0, parameters = 0;
  for (const ExportedFile& file : files) {
    for (const Parameter& p : file.parameters) {
      map[exported_name(file, p)] = file.name;
      bytes += published_bytes(p, type);
      parameters += full_numel(p);
    }
    for (const CopiedTensor& copied : file.copied) {
      map[copied.entry.name] = file.name;
      bytes += copied.entry.end - copied.entry.begin;
      parameters += num_elements(copied.entry.shape);
    }
  }
  return dump_json({{"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}}, {"weight_map", std::move(map)}});
}

}  // namespace distsetup
