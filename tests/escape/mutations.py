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
    Mutation("seccomp", "a filter that allows everything", ["A04", "A08", "A14", "D10", "F16"]),
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
    Mutation("proc_masks", "nothing of /proc is covered", ["C06", "C15"]),
    Mutation("mount_targets", "mount points looked up by their path, links followed", ["H12", "H13", "H14", "H15", "H17"], unique=True),
    Mutation("image_links", "entries of an image mounted by their path, links followed", ["H19"], unique=True),
    Mutation("read_only_image", "images mounted writable, with set-user-id and devices", ["H19"], unique=True),
    Mutation("lower_layer", "the lower layer of an overlay stays mounted", ["C16"], unique=True),
    Mutation("old_root", "the host's tree stays mounted below /run/host", ["C02", "C09"]),
    Mutation("descriptors", "a directory of the host stays open", ["C10"]),
    Mutation("session", "no session of its own", ["A13"]),
    Mutation("resource_limits", "no resource limits", ["E08", "F06", "J14"]),
    Mutation("scratch_caps", "scratch a thousand times as large", ["F02", "F03"], unique=True),
    Mutation("memory_limit", "no memory limit", ["F01", "F04"]),
    Mutation("socket_memory", "what sockets hold is neither limited nor added up", ["F15"]),
    Mutation("user_counters", "inotify and namespaces as the host's user has them", ["D08", "D09"], unique=True),
    # Behind the memory cgroup: it shows only where there is none.
    Mutation("cgroups,unmapped_memory", "no cgroup, and only what processes map is measured", ["F04", "F17"]),
    Mutation("process_limit", "no process limit", ["E04"]),
    Mutation("violation_kinds", "violations listed in order until the list is full", ["J10", "J11"], unique=True),
    Mutation("own_peaks", "the peak of all checks so far taken for each check's own", ["J12"], unique=True),
    Mutation("cpu_time_limit", "no limit on CPU time", ["J13"], unique=True),
    Mutation("kill_before_collecting", "artifacts read while processes still live", ["H05"], unique=True),
    Mutation("probe_paths", "a refused write is a notice, whatever its path", ["J06", "J07", "J09"], unique=True),
    Mutation("collector_links", "artifacts opened with openat, links followed", ["H02"], unique=True),
    Mutation("unreadable_arguments", "an argument that a debugger's call cannot read names nothing", ["A21"]),
    Mutation("address_forms,route_counters", "AF_UNSPEC is no peer, and the kernel's count is not read", ["A22"]),
    Mutation("unnamed_paths", "a path below a directory without a name names nothing", ["A24"], unique=True),
    Mutation("look_ups_over_tcp", "no listener for look-ups over TCP", ["G15"], unique=True),
    Mutation("hello_names_listener", "TLS for any server name is relayed", ["G19"], unique=True),
    Mutation("answered_here", "names that are not allowed are asked for outside", ["G41"], unique=True),
    Mutation("late_resolution", "allowed names are asked for before a connection to them", ["G42"], unique=True),
    Mutation("checked_addresses", "one answer of a name server is checked and the next one dialled", ["G43"], unique=True),
    Mutation("judged_addresses", "any address that a name leads to is dialled", ["G44"], unique=True),
    Mutation("egress_user", "the relay runs as the supervisor's user", ["G45"], unique=True),
    Mutation("exact_listener", "listeners of allowed names at all addresses of the sandbox", ["G18"], unique=True),
    Mutation("unwaited_look_ups", "look-ups that are still queued at the end are not read", ["G16"], unique=True),
    Mutation("observation_budget", "the supervisor's work is not charged to the sandbox", ["F30"]),
]

# Walls between what a session leaves and the person who looks at it. Their rows are in session_rows_test.py, which also
# checks that they notice.
SESSION_MUTATIONS = [
    Mutation("host_drift", "apply does not ask whether the host changed an entry since the session began", ["K02"], unique=True),
    Mutation("no_host_git", "the host's git looks at the session's tree", ["K05"], unique=True),
    Mutation("inert_output", "output is shown as the workload wrote it", ["K09"], unique=True),
    Mutation("bound_approval", "an approval is granted whatever the policy has become since it was asked for", ["K15"], unique=True),
    Mutation("prompt_channel", "questions to the approver are written to the workload's terminal", ["K18"], unique=True),
]
