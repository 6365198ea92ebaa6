"""The walls that can be left out, what that is, and the rows that must notice. docs/design/escape-evidence.md is made
from this table."""

import dataclasses


@dataclasses.dataclass
class Mutation:
    wall: str  # the name in CAISSON_LEFT_OUT
    what: str
    rows: list
    unique: bool = False  # the name occurs nowhere else, so that its absence from a program means something


MUTATIONS = [
    Mutation("seccomp", "a filter that allows everything", ["A04", "A08", "A14"]),
    Mutation("denial", "what is denied or killed for is recorded and then continued", ["A08", "A12"]),
    Mutation("masked_compare", "arguments compared as 64 bits although the kernel reads 32", ["A03"], unique=True),
    Mutation("no_new_privs", "no_new_privs not set", ["B01"]),
    Mutation("capabilities", "capabilities kept", ["B01"]),
    Mutation("user_namespace", "no user namespace: an ordinary user of the host", ["B07"]),
    Mutation("pid_namespace", "no pid namespace, and the host's /proc", ["B07"]),
    Mutation("network_namespace", "no network namespace", ["B07"]),
    Mutation("ipc_namespace", "no ipc namespace", ["B07"]),
    Mutation("uts_namespace", "no uts namespace", ["B07"]),
    Mutation("cgroup_namespace", "no cgroup namespace", ["B07"]),
    Mutation("time_namespace", "no time namespace", ["B07"]),
    Mutation("inside_user", "still root of its user namespace", ["B01"], unique=True),
    Mutation("groups", "supplementary groups kept", ["B01"]),
    # Behind the read-only mounts: it shows only where those are gone too.
    Mutation("read_only_root,landlock", "the root can be written, and no Landlock behind it", ["C01"]),
    Mutation("read_only_root", "the root file system can be written", ["C01"]),
    Mutation("read_only_system", "system directories mounted as the host has them", ["C01"], unique=True),
    Mutation("read_only_workspace", "the workspace can be written", ["C01"], unique=True),
    Mutation("read_only_proc", "/proc can be written", ["C05"]),
    Mutation("proc_masks", "nothing of /proc is covered", ["C06"]),
    Mutation("old_root", "the host's tree stays mounted below /run/host", ["C02", "C09"]),
    Mutation("descriptors", "a directory of the host stays open", ["C10"]),
    Mutation("session", "no session of its own", ["A13"]),
    Mutation("resource_limits", "no resource limits", ["E08", "F06"]),
    Mutation("scratch_caps", "scratch a thousand times as large", ["F02", "F03"], unique=True),
    Mutation("memory_limit", "no memory limit", ["F01", "F04"]),
    Mutation("process_limit", "no process limit", ["E04"]),
    Mutation("kill_before_collecting", "artifacts read while processes still live", ["H05"], unique=True),
    Mutation("collector_links", "artifacts opened with openat, links followed", ["H02"], unique=True),
]
