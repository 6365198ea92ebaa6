"""The walls that can be left out, what that is, and the rows that must notice. docs/design/escape-evidence.md is made
from this table."""

import dataclasses


@dataclasses.dataclass
class Mutation:
    wall: str  # the name in CAISSON_LEFT_OUT
    what: str
    rows: list
    unique: bool = True  # the name occurs nowhere else, so that its absence from a program means something


MUTATIONS = [
    Mutation("seccomp", "a filter that allows everything", ["A04", "A08", "A14"], unique=False),
    Mutation("denial", "what is denied or killed for is recorded and then continued", ["A08", "A12"]),
    Mutation("masked_compare", "arguments compared as 64 bits although the kernel reads 32", ["A03"]),
    Mutation("no_new_privs", "no_new_privs not set", ["B01"], unique=False),
    Mutation("capabilities", "capabilities kept", ["B01"], unique=False),
    Mutation("user_namespace", "no user namespace: an ordinary user of the host", ["B07"]),
    Mutation("pid_namespace", "no pid namespace, and the host's /proc", ["B07"]),
    Mutation("network_namespace", "no network namespace", ["B07"]),
    Mutation("ipc_namespace", "no ipc namespace", ["B07"]),
    Mutation("uts_namespace", "no uts namespace", ["B07"]),
    Mutation("cgroup_namespace", "no cgroup namespace", ["B07"], unique=False),
    Mutation("time_namespace", "no time namespace", ["B07"]),
    Mutation("inside_user", "still root of its user namespace", ["B01"]),
    Mutation("groups", "supplementary groups kept", ["B01"], unique=False),
    Mutation("landlock", "no Landlock", [], unique=False),
    Mutation("read_only_root", "the root file system can be written", []),
    Mutation("read_only_system", "system directories mounted as the host has them", []),
    Mutation("read_only_workspace", "the workspace can be written", []),
    Mutation("read_only_proc", "/proc can be written", []),
    Mutation("proc_masks", "nothing of /proc is covered", []),
    Mutation("old_root", "the host's tree stays mounted below /run/host", []),
    Mutation("descriptors", "a directory of the host stays open", []),
    Mutation("session", "no session of its own", []),
    Mutation("resource_limits", "no resource limits", []),
    Mutation("scratch_caps", "scratch a thousand times as large", []),
    Mutation("memory_limit", "no memory limit", []),
    Mutation("process_limit", "no process limit", []),
    Mutation("collector_links", "artifacts opened with openat, links followed", []),
    Mutation("kill_before_collecting", "artifacts collected while processes live", []),
]
