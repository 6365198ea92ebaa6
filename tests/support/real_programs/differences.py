"""What goes differently inside the sandbox, and why: the one list that the tests and docs/user/compatibility.md share.

An entry covers the tests of CPython's test package whose ids match one of its patterns and that say inside what `says`
expects. A difference that no entry covers fails the tests, and so does an entry whose tests all pass inside.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Difference:
    name: str  # as in the first column of the document's table
    tests: tuple  # patterns of test ids
    says: str  # a regular expression: what the test reports inside
    reason: str  # the document's second column
    profile: str = ""  # lines of a profile with which the difference is gone; tests run with them, too
    long_run: bool = False  # only CAISSON_REAL_PROGRAMS=all runs tests that show it


DIFFERENCES = (
    Difference(
        "owners",
        (
            "test.test_os.ChownFileTests.test_chown_without_permission",
            "test.test_subprocess.POSIXProcessTestCase.test_user",
            "test.test_subprocess.POSIXProcessTestCase.test_group",
        ),
        r"\[Errno 22\] Invalid argument",
        "One user exists inside. Another user's id has no meaning there: `chown` and `setuid` to it say `EINVAL` instead of `EPERM`.",
    ),
    Difference(
        "splice",
        ("test.test_os.FileTests.test_splice*",),
        r"\[Errno 38\] Function not implemented",
        "`splice` is not let through and answers `ENOSYS`. Programs fall back to `read` and `write`.",
        "seccomp: {allow: [splice]}",
    ),
    Difference(
        "set-group-id",
        ("test.test_os.MakedirTests.test_exist_ok_s_isgid_directory",),
        r"Cannot set S_ISGID",
        "Set-user-id and set-group-id modes are refused with `EPERM` and recorded.",
    ),
    Difference(
        "UDP-Lite",
        ("test.test_socket.*UDPLITE*",),
        r"\[Errno 93\] Protocol not supported",
        "Internet sockets speak TCP and UDP and no other protocol.",
    ),
    Difference(
        "service names",
        (
            "test.test_socket.GeneralModuleTests.testGetServBy",
            "test.test_socket.GeneralModuleTests.testGetaddrinfo",
            "test.test_asyncio.test_base_events.*.test_create_connection_service_name",
        ),
        r"OSError|Servname not supported",
        "`/etc` is made up and has no `services`: write port numbers instead of names.",
        "etc_paths: [/etc/alternatives, /etc/ld.so.cache, /etc/services, /etc/protocols]",
    ),
    Difference(
        "file sizes",
        ("test.test_mmap.LargeMmapTests.*", "test.test_resource.ResourceTest.test_fsize_ismax"),
        r"does not have largefile support|536870912",
        "No file may be larger than scratch (`RLIMIT_FSIZE`), sparse ones neither. `limits.scratch_bytes` sets both.",
        long_run=True,
    ),
    Difference(
        "others' limits",
        ("test.test_resource.ResourceTest.test_prlimit",),
        r"\[Errno 1\] Operation not permitted",
        "`prlimit` is for the calling process, written 0; any other id is `EPERM`, one that does not exist too.",
        long_run=True,
    ),
)


@dataclasses.dataclass(frozen=True)
class Notice:
    """What no test of CPython's looks at. The probe is a Python expression that is true inside."""

    sees: str
    because: str
    instead: str
    probe: str


# `call` in a probe makes a system call by its number and gives the name of its error.
NOTICES = (
    Notice(
        "no `/sys`",
        "it describes the host",
        "`nproc` and `sched_getaffinity` give the processors that may be used",
        "not os.path.exists('/sys/devices') and os.sched_getaffinity(0)",
    ),
    Notice(
        "`ENOSYS` from `capset`, `sync`, `splice`, `tee`, `vmsplice`",
        "the filter lists what is allowed, and what it does not name is absent as on an older kernel",
        "most programs fall back; `seccomp: {allow: [capset]}` lets one through",
        "{call(126, None, None), call(162), call(275, -1, None, -1, None, 0, 0), call(276, 0, 1, 1, 0), call(278, 0, None, 0, 0)}"
        " == {'ENOSYS'}",
    ),
    Notice(
        "`EPERM` from `ptrace`, `process_vm_readv`, `mount`, `chroot`, `unshare`",
        "they reach into other processes or change what is seen",
        "debuggers and containers do not run inside; `on_violation: report` if trying is all a program does",
        "{call(101, 0, 0, 0, 0), call(310, 1, None, 0, None, 0, 0), call(165, None, None, None, 0, None), call(161, b'/'),"
        " call(272, 0x10000000)} == {'EPERM'}",
    ),
    Notice(
        "`EACCES` from `mq_open`",
        "POSIX message queues are files of a file system that Landlock has no rule for",
        "System V queues (`msgget`), pipes and sockets work; `landlock: false` gives up a wall for it",
        "libc.mq_open(b'/queue', os.O_CREAT | os.O_RDWR, 0o600, None) < 0 and ctypes.get_errno() == errno.EACCES"
        " and libc.msgget(0, 0o600) >= 0",
    ),
    Notice(
        "no other user, no set-user-id program that works",
        "one user is mapped, and privileges cannot grow",
        "install what needs `sudo` on the host; it is below `/usr` inside",
        "os.getuid() != 0 and call(105, 0) == 'EINVAL' and open('/proc/self/uid_map').read().split()[2] == '1'",
    ),
)

# System calls that end the run at once, with exit code 159: no ordinary program makes them.
FATAL = {"setns": 308, "bpf": 321, "vhangup": 153}
