// The store on a PostgreSQL server (13 or newer), which several caissond may share.
//
// A call that loses its connection is run again, on a new one, for some seconds: a restart of the server is a pause,
// not an error. If the connection is lost during COMMIT, the store asks the server whether the transaction was
// committed, so nothing is done twice.
//
// `conninfo` is libpq's: "host=/run/postgresql dbname=caisson", "postgresql://…". Passwords belong in a passfile. The
// connection must be to the server itself: a pooler that shares connections between transactions does not support
// prepared statements.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "store/store.h"

namespace caisson::store {

// Creates the tables if there are none. kSystem when the server does not answer, kUnsupported when it is too old, keeps
// no UTF-8, or has tables of a newer caissond.
Result<std::unique_ptr<Store>> OpenPostgres(const std::string& conninfo);

}  // namespace caisson::store
