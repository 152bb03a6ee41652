#include "text/tokenizer/protobuf.h"

#include <cstring>

namespace distsetup {

float ProtoField::as_float() const {
  const auto bits = static_cast<uint32_t>(value);
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

std::optional<uint64_t> ProtoReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<ProtoField> ProtoReader::next() {
  if (rest_.empty() || damaged_) return std::nullopt;
  const std::optional<uint64_t> key = varint();
  if (!key || *key >> 3 == 0 || *key >> 3 > UINT32_MAX) return damaged();
  ProtoField field;
  field.number = static_cast<uint32_t>(*key >> 3);
  const uint64_t wire = *key & 7;
  if (wire == 0 || wire == 2) {
    const std::optional<uint64_t> value = varint();
    if (!value || (wire == 2 && *value > rest_.size())) return damaged();
    field.value = *value;
    if (wire == 0) return field;
    field.is_bytes = true;
    field.bytes = rest_.substr(0, *value);
    rest_.remove_prefix(*value);
    return field;
  }
  const size_t size = wire == 1 ? 8 : wire == 5 ? 4 : 0;
  if (size == 0 || rest_.size() < size) return damaged();
  std::memcpy(&field.value, rest_.data(), size);
  rest_.remove_prefix(size);
  return field;
}

}  // namespace distsetup
