// Rows of a parquet file as JSON, one after the other: the plugin that src/data/parquet_file.cc loads. Built by scripts/parquet_plugin
// against the headers and libraries in pyarrow's wheel, since Debian 12 has no Arrow.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using Json = nlohmann::ordered_json;

Json value_of(const arrow::Array& array, int64_t i);

Json list_of(const arrow::Array& values, int64_t begin, int64_t count) {
  Json list = Json::array();
  for (int64_t i = begin; i < begin + count; ++i) list.push_back(value_of(values, i));
  return list;
}

template <class Array>
Json text_of(const arrow::Array& array, int64_t i) {
  return std::string(static_cast<const Array&>(array).GetView(i));
}
template <class Array>
Json number_of(const arrow::Array& array, int64_t i) {
  return static_cast<const Array&>(array).Value(i);
}

Json object_of(const arrow::StructArray& array, int64_t i) {
  Json object = Json::object();
  for (int f = 0; f < array.num_fields(); ++f) object[array.type()->field(f)->name()] = value_of(*array.field(f), i);
  return object;
}

// Dates, decimals and the like as Arrow writes them.
Json value_of(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return nullptr;
  using arrow::Type;
  switch (array.type_id()) {
    case Type::STRING: return text_of<arrow::StringArray>(array, i);
    case Type::LARGE_STRING: return text_of<arrow::LargeStringArray>(array, i);
    case Type::BOOL: return number_of<arrow::BooleanArray>(array, i);
    case Type::INT8: return number_of<arrow::Int8Array>(array, i);
    case Type::INT16: return number_of<arrow::Int16Array>(array, i);
    case Type::INT32: return number_of<arrow::Int32Array>(array, i);
    case Type::INT64: return number_of<arrow::Int64Array>(array, i);
    case Type::UINT8: return number_of<arrow::UInt8Array>(array, i);
    case Type::UINT16: return number_of<arrow::UInt16Array>(array, i);
    case Type::UINT32: return number_of<arrow::UInt32Array>(array, i);
    case Type::UINT64: return number_of<arrow::UInt64Array>(array, i);
    case Type::FLOAT: return number_of<arrow::FloatArray>(array, i);
    case Type::DOUBLE: return number_of<arrow::DoubleArray>(array, i);
    case Type::STRUCT: return object_of(static_cast<const arrow::StructArray&>(array), i);
    case Type::LIST: {
      const auto& list = static_cast<const arrow::ListArray&>(array);
      return list_of(*list.values(), list.value_offset(i), list.value_length(i));
    }
    case Type::LARGE_LIST: {
      const auto& list = static_cast<const arrow::LargeListArray&>(array);
      return list_of(*list.values(), list.value_offset(i), list.value_length(i));
    }
    case Type::DICTIONARY: {
      const auto& words = static_cast<const arrow::DictionaryArray&>(array);
      return value_of(*words.dictionary(), words.GetValueIndex(i));
    }
    default: {
      const arrow::Result<std::shared_ptr<arrow::Scalar>> scalar = array.GetScalar(i);
      return scalar.ok() ? Json((*scalar)->ToString()) : Json();
    }
  }
}

using TakeRow = int (*)(void* to, const char* json, size_t size);

arrow::Status read_rows(const char* path, void* to, TakeRow take) {
  ARROW_ASSIGN_OR_RAISE(const std::shared_ptr<arrow::io::ReadableFile> file, arrow::io::ReadableFile::Open(path));
  ARROW_ASSIGN_OR_RAISE(const std::unique_ptr<parquet::arrow::FileReader> reader,
                        parquet::arrow::OpenFile(file, arrow::default_memory_pool()));
  ARROW_ASSIGN_OR_RAISE(const std::unique_ptr<arrow::RecordBatchReader> batches, reader->GetRecordBatchReader());
  for (;;) {
    ARROW_ASSIGN_OR_RAISE(const std::shared_ptr<arrow::RecordBatch> batch, batches->Next());
    if (batch == nullptr) return arrow::Status::OK();
    for (int64_t i = 0; i < batch->num_rows(); ++i) {
      Json row = Json::object();
      for (int c = 0; c < batch->num_columns(); ++c) row[batch->column_name(c)] = value_of(*batch->column(c), i);
      const std::string text = row.dump(-1, ' ', false, Json::error_handler_t::replace);
      if (take(to, text.data(), text.size()) == 0) return arrow::Status::OK();
    }
  }
}

}  // namespace

// Calls take(to, row) for each row until it returns 0. Not 0: `problem` says why the file cannot be read.
extern "C" int distsetup_read_parquet_1(const char* path, void* to, TakeRow take, char* problem, size_t problem_size) {
  std::string why;
  try {
    const arrow::Status status = read_rows(path, to, take);
    if (status.ok()) return 0;
    why = status.message();
  } catch (const std::exception& error) {
    why = error.what();
  }
  std::snprintf(problem, problem_size, "%s", why.c_str());
  return 1;
}
