#include "service/dataset_routes.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/digest.h"
#include "base/file.h"
#include "base/json_text.h"
#include "service/dataset_rows.h"
#include "service/model_lookup.h"
#include "service/request_schemas.h"
#include "service/route_makers.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMostRowsOfPage = 10000, kRowsOfPage = 100;

Json dataset_json(const DatasetRecord& one) {
  return {{"identifier", one.id},       {"dataset_id", one.id},       {"provider_resource_id", one.id},
          {"provider_id", "distsetup"}, {"type", "dataset"},          {"purpose", one.purpose},
          {"source", one.source},       {"metadata", one.metadata},   {"kind", one.kind},
          {"num_rows", one.num_rows},   {"num_bytes", one.num_bytes}, {"created_at", utc_text(one.created_ms)}};
}

std::string folder_of(const Service& service, const std::string& id) { return service.settings.data_folder + "/datasets/" + id; }

HttpAnswer too_many_rows(int64_t found, int64_t most) {
  return refusal(413, fmt::format("the data set has {} rows, this service takes {}", found, most));
}

HttpAnswer disk_is_full() { return refusal(503, "the rows cannot be written: is the disk full?"); }

// The first row decides what the set is; every row is an object with keys that a method reads.
std::optional<HttpAnswer> check_rows(const Json& rows, const std::string& wanted, std::string& kind) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string found = kind_of_row(rows[i]);
    const std::string where = fmt::format("source.rows[{}]", i);
    if (found.empty())
      return refusal(
          400, fmt::format("{} has no keys that can be trained", where),
          {{where, "has no keys that can be trained", "prompt, chosen and rejected; messages; prompt and completion; text"}});
    if (i == 0) kind = found;
    const bool is_of_set = found == kind || (kind != "preference" && found != "preference");
    if (!is_of_set) return refusal(400, fmt::format("{} is of kind {}, the first row of kind {}", where, found, kind));
    if (kind == "preference") {
      if (const std::optional<std::string> mistake = row_mistake(rows[i], "dpo"))
        return refusal(400, fmt::format("row {}: {}", i, *mistake), {{where, *mistake, ""}});
    }
  }
  if (!wanted.empty() && wanted != kind)
    return refusal(400, fmt::format("dataset_type is '{}', and the rows are of kind {}", wanted, kind));
  return std::nullopt;
}

// A file below the service's roots, as a path or file://: read where it lies, never fetched.
std::optional<HttpAnswer> open_source_file(const Service& service, const std::string& uri, DatasetRecord& dataset) {
  std::string path = uri.starts_with("file://") ? uri.substr(7) : uri;
  if (path.find("://") != std::string::npos || path.starts_with("huggingface:") || path.starts_with("data:"))
    return refusal(400, fmt::format("'{}' is on another machine, and this service fetches nothing", uri.substr(0, 200)),
                   {{"source.uri", "is on another machine", "send the rows, or upload the file with PUT /v1/datasets/ID/file"}});
  const std::optional<std::string> whole = path_below(service.settings.file_roots, path);
  std::error_code failure;
  if (!whole || !fs::is_regular_file(*whole, failure))
    return refusal(400, fmt::format("'{}' is no file below the folders of --files", path.substr(0, 200)));
  if (!whole->ends_with(".jsonl")) return refusal(400, fmt::format("'{}' is no .jsonl file, an object a line", path.substr(0, 200)));
  dataset.path = *whole;
  std::ifstream file(*whole, std::ios::binary);
  std::string line;
  while (std::getline(file, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (dataset.num_rows++ == 0) dataset.kind = kind_of_row(json_from_text(line));
  }
  if (dataset.num_rows == 0 || dataset.kind.empty())
    return refusal(400, fmt::format("'{}' has no rows that can be trained", path.substr(0, 200)));
  if (dataset.num_rows > service.settings.limits.rows) return too_many_rows(dataset.num_rows, service.settings.limits.rows);
  dataset.num_bytes = static_cast<int64_t>(fs::file_size(*whole, failure));
  const Result<std::string> digest = sha256_of_file(*whole);
  if (!digest.ok()) return refusal(400, digest.diagnostics);
  dataset.digest = *digest;
  return std::nullopt;
}

HttpAnswer store_dataset(Service& service, const DatasetRecord& dataset) {
  switch (service.datasets->add(dataset, service.settings.limits.datasets)) {
    case DatasetStore::Added::kDuplicate: return refusal(409, fmt::format("there is a data set '{}'", dataset.id));
    case DatasetStore::Added::kFull:
      return refusal(429, fmt::format("there are {} data sets, which is the limit", service.settings.limits.datasets));
    case DatasetStore::Added::kYes: break;
  }
  service.log->write(LogLevel::kInfo, "dataset_registered",
                     {{"dataset_id", dataset.id}, {"rows", dataset.num_rows}, {"kind", dataset.kind}});
  return json_answer(dataset_json(dataset));
}

HttpAnswer answer_register(Service& service, const HttpRequest&, const Json& body) {
  DatasetRecord dataset;
  dataset.created_ms = wall_clock_ms();
  for (const char* key : {"provider_dataset_id", "dataset_id"}) {
    if (body.contains(key) && body[key].is_string()) dataset.id = body[key];
  }
  if (dataset.id.empty())
    dataset.id = fmt::format("dataset-{}", sha256(body.dump() + std::to_string(dataset.created_ms)).substr(0, 16));
  dataset.purpose =
      body.contains("purpose") && body["purpose"].is_string() ? body["purpose"].get<std::string>() : "post-training/messages";
  dataset.metadata = body.contains("metadata") && body["metadata"].is_object() ? body["metadata"] : Json::object();
  const std::string wanted =
      body.contains("dataset_type") && body["dataset_type"].is_string() ? body["dataset_type"].get<std::string>() : "";
  if (service.datasets->find(dataset.id)) return refusal(409, fmt::format("there is a data set '{}'", dataset.id));
  const Json& source = body["source"];
  if (source["type"] == "uri") {
    dataset.source = source;
    if (std::optional<HttpAnswer> refused = open_source_file(service, source["uri"], dataset)) return *refused;
    if (!wanted.empty() && wanted != dataset.kind)
      return refusal(400, fmt::format("dataset_type is '{}', and the rows are of kind {}", wanted, dataset.kind));
    return store_dataset(service, dataset);
  }
  const Json& rows = source["rows"];
  if (static_cast<int64_t>(rows.size()) > service.settings.limits.rows)
    return too_many_rows(static_cast<int64_t>(rows.size()), service.settings.limits.rows);
  if (std::optional<HttpAnswer> refused = check_rows(rows, wanted, dataset.kind)) return *refused;
  const std::optional<WrittenRows> written = write_rows(folder_of(service, dataset.id), rows);
  if (!written) return disk_is_full();
  dataset.path = written->path;
  dataset.digest = written->digest;
  dataset.num_rows = written->num_rows;
  dataset.num_bytes = written->num_bytes;
  dataset.source = {{"type", "rows"}, {"rows", Json::array()}};  // iterrows has them
  return store_dataset(service, dataset);
}

std::optional<DatasetRecord> dataset_of(Service& service, const HttpRequest& request) {
  return service.datasets->find(request.path_values.find("dataset_id")->second);
}

HttpAnswer no_such_dataset(const HttpRequest& request) {
  return refusal(404, fmt::format("no data set '{}'", request.path_values.find("dataset_id")->second));
}

HttpAnswer answer_list_datasets(Service& service, const HttpRequest&, const Json&) {
  Json data = Json::array();
  for (const DatasetRecord& one : service.datasets->all()) data.push_back(dataset_json(one));
  return json_answer({{"data", data}});
}

HttpAnswer answer_dataset(Service& service, const HttpRequest& request, const Json&) {
  const std::optional<DatasetRecord> dataset = dataset_of(service, request);
  return dataset ? json_answer(dataset_json(*dataset)) : no_such_dataset(request);
}

HttpAnswer answer_unregister(Service& service, const HttpRequest& request, const Json&) {
  const std::optional<DatasetRecord> dataset = dataset_of(service, request);
  if (!dataset || !service.datasets->remove(dataset->id)) return no_such_dataset(request);
  std::error_code failure;
  if (dataset->path.starts_with(folder_of(service, dataset->id) + "/")) fs::remove_all(folder_of(service, dataset->id), failure);
  return json_answer({{"message", fmt::format("data set '{}' was removed", dataset->id)}});
}

int64_t number_in_query(const HttpRequest& request, const std::string& name, int64_t absent) {
  for (const auto& [key, value] : request.query) {
    if (key == name) return std::strtoll(value.c_str(), nullptr, 10);
  }
  return absent;
}

HttpAnswer answer_rows(Service& service, const HttpRequest& request, const Json&) {
  const std::optional<DatasetRecord> dataset = dataset_of(service, request);
  if (!dataset) return no_such_dataset(request);
  const int64_t start = number_in_query(request, "start_index", 0);
  const int64_t given = number_in_query(request, "limit", -1), limit = given < 0 ? std::max(kRowsOfPage, dataset->num_rows) : given;
  bool has_more = false;
  const Json rows = read_rows(dataset->path, start, std::min(limit, kMostRowsOfPage), has_more);
  return json_answer({{"data", rows}, {"has_more", has_more}, {"url", nullptr}});
}

HttpAnswer answer_append(Service& service, const HttpRequest& request, const Json& body) {
  std::optional<DatasetRecord> dataset = dataset_of(service, request);
  if (!dataset) return no_such_dataset(request);
  const std::string folder = folder_of(service, dataset->id);
  if (!dataset->path.starts_with(folder + "/"))
    return refusal(409, fmt::format("data set '{}' is a file of somebody's, to which nothing is appended", dataset->id));
  if (const Json named = body.value("dataset_id", Json());
      named.is_string() && named != dataset->id)  // the client of 0.6.1 says it twice
    return refusal(400, fmt::format("the path names data set '{}', and the body '{}'", dataset->id, named.get<std::string>()));
  const Json& rows = body["rows"];
  if (dataset->num_rows + static_cast<int64_t>(rows.size()) > service.settings.limits.rows)
    return too_many_rows(dataset->num_rows + static_cast<int64_t>(rows.size()), service.settings.limits.rows);
  std::string kind;
  if (std::optional<HttpAnswer> refused = check_rows(rows, dataset->kind, kind)) return *refused;
  const Result<std::string> before = read_file(dataset->path);
  if (!before.ok()) return refusal(409, fmt::format("data set '{}' was changed meanwhile", dataset->id));
  std::string text = *before;
  for (const Json& row : rows) text += row.dump() + "\n";
  const std::optional<WrittenRows> written = write_lines(folder, text, dataset->num_rows + static_cast<int64_t>(rows.size()));
  if (!written) return disk_is_full();
  const std::string digest_before = dataset->digest, path_before = dataset->path;
  dataset->path = written->path;
  dataset->digest = written->digest;
  dataset->num_rows = written->num_rows;
  dataset->num_bytes = written->num_bytes;
  if (!service.datasets->replace(*dataset, digest_before))
    return refusal(409, fmt::format("data set '{}' was changed meanwhile", dataset->id));
  std::error_code failure;
  if (path_before != written->path) fs::remove(path_before, failure);
  return json_answer(dataset_json(*dataset));
}

// PUT: the body is the file, an object a line.
HttpAnswer answer_upload(Service& service, const HttpRequest& request, const Json&) {
  const std::string id = request.path_values.find("dataset_id")->second;
  if (service.datasets->find(id)) return refusal(409, fmt::format("there is a data set '{}'", id));
  Json rows = Json::array();
  size_t begin = 0;
  for (int64_t number = 1; begin < request.body.size(); ++number) {
    const size_t end = std::min(request.body.find('\n', begin), request.body.size());
    const std::string line = request.body.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json row = json_from_text(line);
    if (!row.is_object())
      return refusal(422, fmt::format("line {} is no JSON object", number),
                     {{fmt::format("body:{}", number), "is no JSON object", ""}});
    rows.push_back(std::move(row));
    if (static_cast<int64_t>(rows.size()) > service.settings.limits.rows)
      return too_many_rows(static_cast<int64_t>(rows.size()), service.settings.limits.rows);
  }
  if (rows.empty()) return refusal(422, "the file has no rows");
  DatasetRecord dataset;
  dataset.id = id;
  dataset.created_ms = wall_clock_ms();
  dataset.purpose = "post-training/messages";
  dataset.source = {{"type", "rows"}, {"rows", Json::array()}};
  dataset.metadata = Json::object();
  if (std::optional<HttpAnswer> refused = check_rows(rows, "", dataset.kind)) return *refused;
  const std::optional<WrittenRows> written = write_rows(folder_of(service, id), rows);
  if (!written) return disk_is_full();
  dataset.path = written->path;
  dataset.digest = written->digest;
  dataset.num_rows = written->num_rows;
  dataset.num_bytes = written->num_bytes;
  return store_dataset(service, dataset);
}

}  // namespace

std::vector<ServiceRoute> dataset_routes() {
  std::vector<ServiceRoute> out;
  const RouteAnswer missing = problem_answer(404, "there is no such data set"),
                    exists = problem_answer(409, "there is one of that name");
  const RouteAnswer bad_rows = problem_answer(400, "rows that cannot be trained, with the first bad one and its field");
  const RouteParameter id = path_id("dataset_id", "the data set");
  for (const std::string version : {"v1", "v1beta"}) {
    const std::string base = "/" + version + "/datasets", io = "/" + version + "/datasetio/";
    ServiceRoute add = new_route("POST", base, "register_dataset_" + version, "a data set of rows, or of a file of this machine");
    add.body = BodyNeed::kRequired;
    add.body_schema = "RegisterDataset";
    add.answers = {json_result("Dataset", "its record"), bad_rows, exists};
    add.handler = answer_register;
    ServiceRoute list = new_route("GET", base, "list_datasets_" + version, "all data sets");
    list.answers = {json_result("DatasetList", "their records")};
    list.handler = answer_list_datasets;
    ServiceRoute one = new_route("GET", base + "/{dataset_id}", "get_dataset_" + version, "a data set");
    one.parameters = {id};
    one.answers = {json_result("Dataset", "its record"), missing};
    one.handler = answer_dataset;
    ServiceRoute remove = new_route("DELETE", base + "/{dataset_id}", "unregister_dataset_" + version,
                                    "removes a data set; jobs keep the rows they have");
    remove.parameters = {id};
    remove.answers = {json_result("Said", "it is removed"), missing};
    remove.handler = answer_unregister;
    ServiceRoute rows = new_route("GET", io + "iterrows/{dataset_id}", "iterrows_" + version, "rows of a data set");
    rows.parameters = {id, query_integer("start_index", "the first row", 0, int64_t{1} << 53),
                       query_integer("limit", "how many at most; -1: all", -1, kMostRowsOfPage)};
    rows.answers = {json_result("RowPage", "rows"), missing};
    rows.handler = answer_rows;
    ServiceRoute append = new_route("POST", io + "append-rows/{dataset_id}", "append_rows_" + version, "more rows for a data set");
    append.parameters = {id};
    append.body = BodyNeed::kRequired;
    append.body_schema = "AppendRows";
    append.answers = {json_result("Dataset", "its record"), bad_rows, missing, problem_answer(409, "it cannot be changed now")};
    append.handler = answer_append;
    for (ServiceRoute* route : {&add, &list, &one, &remove, &rows, &append}) out.push_back(std::move(*route));
  }
  ServiceRoute upload =
      new_route("PUT", "/v1/datasets/{dataset_id}/file", "upload_dataset", "a data set from a .jsonl file, which is the body");
  upload.parameters = {id};
  upload.body = BodyNeed::kRequired;
  upload.body_type = "application/jsonl";
  upload.answers = {json_result("Dataset", "its record"), bad_rows, exists};
  upload.handler = answer_upload;
  out.push_back(std::move(upload));
  return out;
}

}  // namespace distsetup
