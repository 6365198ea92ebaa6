#include "sandbox/observed_calls.h"

#include <sys/syscall.h>

namespace caisson::sandbox {

namespace {

constexpr int32_t kFchmodat2 = 452;  // Linux 6.6

constexpr PathCall kPathCalls[] = {
    {SYS_open, Target::kOpened, kNoArgument, 0, 1},
    {SYS_creat, Target::kOpened, kNoArgument, 0},
    {SYS_openat, Target::kOpened, 0, 1, 2},
    {SYS_openat2, Target::kOpened, 0, 1},
    {SYS_mkdir, Target::kDirectory, kNoArgument, 0},
    {SYS_mkdirat, Target::kDirectory, 0, 1},
    {SYS_rmdir, Target::kEntry, kNoArgument, 0},
    {SYS_unlink, Target::kEntry, kNoArgument, 0},
    {SYS_unlinkat, Target::kEntry, 0, 1},
    {SYS_rename, Target::kEntry, kNoArgument, 0},
    {SYS_rename, Target::kEntry, kNoArgument, 1},
    {SYS_renameat, Target::kEntry, 0, 1},
    {SYS_renameat, Target::kEntry, 2, 3},
    {SYS_renameat2, Target::kEntry, 0, 1},
    {SYS_renameat2, Target::kEntry, 2, 3},
    {SYS_link, Target::kEntry, kNoArgument, 1},
    {SYS_linkat, Target::kEntry, 2, 3},
    {SYS_symlink, Target::kEntry, kNoArgument, 1},
    {SYS_symlinkat, Target::kEntry, 1, 2},
    {SYS_mknod, Target::kEntry, kNoArgument, 0},
    {SYS_mknodat, Target::kEntry, 0, 1},
    {SYS_truncate, Target::kExisting, kNoArgument, 0},
    {SYS_ftruncate, Target::kExisting, 0, kNoArgument},
    {SYS_fallocate, Target::kExisting, 0, kNoArgument},
    {SYS_chmod, Target::kExisting, kNoArgument, 0},
    {SYS_fchmod, Target::kExisting, 0, kNoArgument},
    {SYS_fchmodat, Target::kExisting, 0, 1},
    {kFchmodat2, Target::kExisting, 0, 1, 3},
    {SYS_chown, Target::kExisting, kNoArgument, 0},
    {SYS_lchown, Target::kLink, kNoArgument, 0},
    {SYS_fchown, Target::kExisting, 0, kNoArgument},
    {SYS_fchownat, Target::kExisting, 0, 1, 4},
    {SYS_utime, Target::kExisting, kNoArgument, 0},
    {SYS_utimes, Target::kExisting, kNoArgument, 0},
    {SYS_futimesat, Target::kExisting, 0, 1},
    {SYS_utimensat, Target::kExisting, 0, 1, 3},
    {SYS_setxattr, Target::kExisting, kNoArgument, 0},
    {SYS_lsetxattr, Target::kLink, kNoArgument, 0},
    {SYS_fsetxattr, Target::kExisting, 0, kNoArgument},
    {SYS_removexattr, Target::kExisting, kNoArgument, 0},
    {SYS_lremovexattr, Target::kLink, kNoArgument, 0},
    {SYS_fremovexattr, Target::kExisting, 0, kNoArgument},
};

constexpr AddressCall kAddressCalls[] = {
    {SYS_connect, AddressAt::kArgument, 1, 2},
    {SYS_sendto, AddressAt::kArgument, 4, 5},
    {SYS_sendmsg, AddressAt::kMessage, 1, kNoArgument},
    {SYS_sendmmsg, AddressAt::kMessageVector, 1, 2},
};

}  // namespace

const PathCall* FindPathCalls(int32_t number, int* count) {
  const PathCall* first = nullptr;
  *count = 0;
  for (const PathCall& call : kPathCalls) {
    if (call.number != number) continue;
    if (first == nullptr) first = &call;
    ++*count;
  }
  return first;
}

const AddressCall* FindAddressCall(int32_t number) {
  for (const AddressCall& call : kAddressCalls) {
    if (call.number == number) return &call;
  }
  return nullptr;
}

}  // namespace caisson::sandbox
