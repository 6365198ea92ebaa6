// Parts of the seccomp ABI that Debian 12's headers lack.
#pragma once

#include <linux/seccomp.h>
#include <sys/ioctl.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)  // Linux 5.19
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)  // Linux 6.6
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

static_assert(sizeof(struct seccomp_notif) == 80);
static_assert(sizeof(struct seccomp_notif_resp) == 24);
