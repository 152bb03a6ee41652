// Tables that were read out of a set of templates, and documents that were recognised by them, so that each is read once per process.
// A table is known by its path and by the text it was read from: a copy of the set whose files differ shares the cache and gets its
// own tables. Not for several threads.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/diagnostic.h"
#include "codegen/tables/key_table.h"
#include "codegen/tables/kind.h"
#include "codegen/tables/name_table.h"
#include "codegen/tables/templates.h"

namespace distsetup {
namespace foreign {
struct Document;
}

template <class Table>
using CachedTables = std::map<std::string, std::pair<std::string, std::shared_ptr<const Table>>, std::less<>>;

struct TableCache {
  CachedTables<KeyTable> parsed, to_write, to_read;
  CachedTables<NameTable> names;
  CachedTables<FileKinds> kinds;
  // By path, with the kinds that it was told by; the last few (document.cc).
  std::map<std::string, std::pair<std::shared_ptr<const FileKinds>, std::shared_ptr<const foreign::Document>>, std::less<>> documents;
};

// The table at `path` out of one of the cache's maps, or read now by `read()`, a Result<Table>.
template <class Table, class Read>
Result<std::shared_ptr<const Table>> cached(const TemplateSet& templates, CachedTables<Table> TableCache::*map,
                                            const std::string& path, const std::string& text, const Read& read) {
  CachedTables<Table>* known = templates.cache == nullptr ? nullptr : &((*templates.cache).*map);
  if (known != nullptr) {
    const auto found = known->find(path);
    if (found != known->end() && found->second.first == text) return found->second.second;
  }
  Result<Table> table = read();
  if (!table.ok()) return table.diagnostics;
  auto shared = std::make_shared<const Table>(std::move(*table));
  if (known != nullptr) known->insert_or_assign(path, std::pair{text, shared});
  return {std::move(shared), std::move(table.diagnostics)};
}

}  // namespace distsetup
