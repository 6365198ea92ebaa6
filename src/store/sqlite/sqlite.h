// The store in one file, for one caissond.
//
// The file, its write-ahead log (PATH-wal, PATH-shm) and a lock (PATH.lock) are made in a directory that must exist,
// readable for their owner only. One process at a time: a second one is refused although SQLite would allow it, because
// two processes could take turns only by polling. Several caissond share a PostgreSQL.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "store/store.h"

namespace caisson::store {

// kSystem when the file cannot be used (not a database, damaged, newer than this program, no right to write), and
// kConflict when another process has it.
Result<std::unique_ptr<Store>> OpenSqlite(const std::string& path);

}  // namespace caisson::store
