// The store on a PostgreSQL server (13 or newer), which several caissond may share.
//
// A call that loses its connection is run again, on a new one, for some seconds: a restart of the server is a pause and
// not an error. Where the connection was lost during COMMIT, the server is asked what became of that transaction, so
// nothing is done twice.
//
// `conninfo` is libpq's: "host=/run/postgresql dbname=caisson", "postgresql://…". Passwords belong in a passfile. The
// connection must be to the server itself: a pooler that shares connections between transactions has no prepared
// statements to offer.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "store/store.h"

namespace caisson::store {

// Makes the tables when there are none. kSystem when the server does not answer, kUnsupported when it is too old, keeps
// no UTF-8, or has tables of a newer caissond.
Result<std::unique_ptr<Store>> OpenPostgres(const std::string& conninfo);

}  // namespace caisson::store
