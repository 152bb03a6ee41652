// A box is a list of runs: elements that follow each other in the file. Of a matrix as the program has it, these are rows, or parts of
// rows; of a transposed one, columns. Runs that touch in the file are read together.
#include "weights/read_box.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "plan/published_order.h"
#include "weights/mxfp4.h"

namespace distsetup {

Result<int> BoxReader::descriptor(size_t file) {
  const auto known = open_.find(file);
  if (known != open_.end()) return known->second.fd();
  const std::string path = (std::filesystem::path(folder_.plan.directory) / folder_.plan.files.at(file).path).string();
  OpenFile opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.is_open()) return error(code::kWeights, {path}, fmt::format("cannot read '{}', {}", path, errno_text(errno)));
  return open_.emplace(file, std::move(opened)).first->second.fd();
}

int BoxReader::flush(const Target& to) {
  if (num_elements_ == 0) return 0;
  const int64_t bytes = num_elements_ * size_of(to.type);
  piece_.resize(static_cast<size_t>(std::max<int64_t>(bytes, static_cast<int64_t>(piece_.size()))));
  const int number = read_at(to.fd, piece_.data(), bytes, to.tensor_begin + first_element_ * size_of(to.type));
  if (number != 0) return number;
  bytes_read_ += bytes;
  const char* source = piece_.data();
  for (const Run& run : runs_) {
    widen(to.type, source, run.count, to.values + run.target, run.stride);
    source += run.count * size_of(to.type);
  }
  runs_.clear();
  num_elements_ = 0;
  return 0;
}

int BoxReader::add(const Target& to, int64_t element, Run run) {
  const int64_t most = kPieceBytes / size_of(to.type);
  while (run.count > 0) {
    const bool follows = num_elements_ > 0 && first_element_ + num_elements_ == element && num_elements_ < most;
    if (!follows) {
      if (const int number = flush(to); number != 0) return number;
      first_element_ = element;
    }
    const int64_t now = std::min(run.count, most - num_elements_);
    runs_.push_back({now, run.target, run.stride});
    num_elements_ += now;
    element += now;
    run.target += now * run.stride;
    run.count -= now;
  }
  return 0;
}

Diagnostics BoxReader::unreadable(const PublishedTensor& tensor, size_t file, int number) const {
  return {error(
      code::kWeights, {folder_.plan.directory},
      fmt::format("cannot read tensor '{}' of '{}', {}", tensor.entry.name,
                  (std::filesystem::path(folder_.plan.directory) / folder_.plan.files.at(file).path).string(), errno_text(number)))};
}

// Whole rows, of which the box may have some columns.
Diagnostics BoxReader::read_mxfp4(const Parameter& p, const PublishedTensor& tensor, const Box& box, float* values) {
  const Result<int> blocks = descriptor(tensor.file);
  if (!blocks.ok()) return blocks.diagnostics;
  const Result<int> scales = descriptor(tensor.scales->file);
  if (!scales.ok()) return scales.diagnostics;
  const int64_t width = p.full_shape[1], each = width / kMxBlock, columns = box.size[1];
  const int64_t step = std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(sizeof(float)) / width);
  std::vector<uint8_t> scale;
  std::vector<float> wide;
  for (int64_t row = 0; row < box.size[0]; row += step) {
    const int64_t first = box.start[0] + row, rows = std::min(step, box.size[0] - row), count = rows * each;
    piece_.resize(static_cast<size_t>(std::max<int64_t>(count * kMxBlockBytes, static_cast<int64_t>(piece_.size()))));
    scale.resize(static_cast<size_t>(count));
    wide.resize(static_cast<size_t>(rows * width));
    if (const int number = read_at(*blocks, piece_.data(), count * kMxBlockBytes, tensor.entry.begin + first * each * kMxBlockBytes))
      return unreadable(tensor, tensor.file, number);
    if (const int number = read_at(*scales, scale.data(), count, tensor.scales->begin + first * each))
      return unreadable(tensor, tensor.scales->file, number);
    bytes_read_ += count * (kMxBlockBytes + 1);
    widen_mxfp4(reinterpret_cast<const uint8_t*>(piece_.data()), scale.data(), count, wide.data());
    for (int64_t i = 0; i < rows; ++i) std::copy_n(wide.data() + i * width + box.start[1], columns, values + (row + i) * columns);
  }
  return {};
}

Diagnostics BoxReader::read(const Parameter& p, const PublishedTensor& tensor, const Box& box, float* values) {
  if (tensor.scales.has_value()) return read_mxfp4(p, tensor, box, values);
  Target to;
  const Result<int> fd = descriptor(tensor.file);
  if (!fd.ok()) return fd.diagnostics;
  CHECK(stored_type_of(tensor.entry.dtype, to.type), "{} is {}", tensor.entry.name, tensor.entry.dtype);
  to.fd = *fd;
  to.tensor_begin = tensor.entry.begin;
  to.values = values;
  runs_.clear();
  num_elements_ = 0;
  const bool is_matrix = p.full_shape.size() > 1;
  const int64_t rows = p.full_shape[0], width = is_matrix ? p.full_shape[1] : 1;
  const int64_t first_column = is_matrix ? box.start[1] : 0, columns = is_matrix ? box.size[1] : 1;
  const bool is_transposed = p.transposed && !is_stored_straight(p, tensor.entry.shape);
  int number = 0;
  for (int64_t row = 0, stretch = 0; row < box.size[0] && number == 0; row += stretch) {
    const int64_t published = published_row(p, geometry_, box.start[0] + row);
    stretch = 1;  // rows that follow each other in both orders
    while (row + stretch < box.size[0] && published_row(p, geometry_, box.start[0] + row + stretch) == published + stretch) ++stretch;
    if (is_transposed) {
      for (int64_t c = 0; c < columns && number == 0; ++c)
        number = add(to, (first_column + c) * rows + published, {stretch, row * columns + c, columns});
    } else if (columns == width) {
      number = add(to, published * width, {stretch * width, row * width, 1});
    } else {
      for (int64_t i = 0; i < stretch && number == 0; ++i)
        number = add(to, (published + i) * width + first_column, {columns, (row + i) * columns, 1});
    }
  }
  if (number == 0) number = flush(to);
  return number == 0 ? Diagnostics{} : unreadable(tensor, tensor.file, number);
}

}  // namespace distsetup
