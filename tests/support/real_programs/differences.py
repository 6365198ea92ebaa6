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


DIFFERENCES = (
    Difference(
        "owners",
        ("test.test_os.ChownFileTests.test_chown_without_permission",),
        r"\[Errno 22\] Invalid argument",
        "One user exists inside. Another user's id has no meaning there, so `chown` to it is `EINVAL` instead of `EPERM`.",
    ),
    Difference(
        "terminals",
        ("test.test_os.FDInheritanceTests.test_openpty", "test.test_asyncio.*pty*"),
        r"No such file or directory|out of pty devices",
        "There is no `/dev/ptmx`, so a program cannot open terminals of its own. `-t` gives the command one.",
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
)
