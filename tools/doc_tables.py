#!/usr/bin/python3 -B
"""Writes the tables of the documents from the profiles and the source.

A table stands between two marks in a document:

    <!-- table: NAME -->
    <!-- /table -->

Usage: tools/doc_tables.py            rewrites every table in place
       tools/doc_tables.py --check    changes nothing; fails and names the tables that are out of date
       tools/doc_tables.py NAME       prints one table

What is read: profiles/*.yaml, profiles/seccomp/*.json, tests/escape/resources.yaml, the keys and metrics of src/service, and the files that a "file PATH" table shows. What the profiles do
not say (which kernel mechanism enforces a limit, which flags a mount has) is written below and compared with the source
and with a running sandbox by tests/docs_tables_test.py.
"""

import difflib
import errno
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROFILES = ("balanced", "session", "strict")
FILTERS = ("balanced", "balanced-watched", "session", "session-watched", "strict")
TABLE = re.compile(r"(<!-- table: ([^>\n]+?) -->\n)(.*?)(<!-- /table -->)", re.S)

# Limit -> what holds it with the cgroup drivers v2, hybrid and none.
MECHANISMS = {
    "command_timeout_ms": ("the supervisor's monotonic clock",) * 3,
    "budget_ms": ("the same clock, over all checks of a request; `caisson run` has one command and does not use it",) * 3,
    "cpu": (
        "`cpu.max`",
        "`cpu.cfs_quota_us`, when the limit is below the machine's CPUs",
        "nothing: the affinity only makes `nproc` say the number",
    ),
    "memory_bytes": (
        "`memory.max`, `memory.swap.max` = 0, `memory.oom.group` = 1",
        "`memory.limit_in_bytes`, `memory.memsw.limit_in_bytes`; the supervisor kills the group at the first `oom_kill`; `memory.kmem.tcp.limit_in_bytes` for what sockets hold, which is added to it",
        "watched: the tree is measured every 10 ms, every 3 ms above half of the limit, and killed; memory that no process maps every 20 ms",
    ),
    "processes": (
        "`pids.max`",
        "`pids.max`",
        "`RLIMIT_NPROC` of the own user namespace, 8 higher; the supervisor looks every 10 ms, at each new thread and at the end",
    ),
    "output_bytes": ("bytes counted while they stream; the sandbox is killed",) * 3,
    "scratch_bytes": ("size of the tmpfs, and `RLIMIT_FSIZE` for one file",) * 3,
    "scratch_inodes": ("`nr_inodes` of the tmpfs",) * 3,
    "cpu_time_ms": (
        "`cpu.stat` of the group, looked at before it can be used up, and at the end",
        "the same file, of the v2 group",
        "watched: the tree's times every 10 ms, and what PID 1 reaped at the end",
    ),
    "stack_bytes": ("`RLIMIT_STACK`, soft and hard; never more than the caller's own hard limit",) * 3,
}

# A few of the calls that no filter lists, by which people look for the rule.
HIDDEN_EXAMPLES = (
    "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret", "splice", "tee", "vmsplice",
    "landlock_create_ruleset", "futex_wait", "futex_requeue",
)  # fmt: skip


def table(head, *rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]) + "\n"


def code(words):
    return ", ".join(f"`{word}`" for word in words)


# --- Profiles ------------------------------------------------------------------------------------------------------------


def merge(parent, child):
    """Maps are merged key by key, everything else is replaced; as policy/profile_reader.h says."""
    merged = dict(parent)
    for key, value in child.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(value, dict) and isinstance(old, dict) else value
    return merged


def read_yaml(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def profile(name):
    own = read_yaml(f"profiles/{name}.yaml")
    return merge(profile(own["extends"]), own) if "extends" in own else own


def spell(value):
    """45s -> 45 s, 1GiB -> 1 GiB, 65536 -> 65,536."""
    if isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"^([0-9.]+)([A-Za-z]+)$", lambda found: f"{found[1]} {'min' if found[2] == 'm' else found[2]}", value)


def limits():
    profiles = [profile(name) for name in PROFILES]
    rows = []
    for limit, (v2, hybrid, none) in MECHANISMS.items():
        mechanism = (v2, "the same" if hybrid == v2 else hybrid, "the same" if none == v2 else none)
        rows.append((f"`{limit}`", *(spell(one["limits"].get(limit, "not limited")) for one in profiles), *mechanism))
    return table(("limit", *PROFILES, "cgroup v2", "hybrid", "none"), *rows)


def limit_values():
    profiles = [profile(name) for name in PROFILES]
    return table(
        ("limit", *PROFILES),
        *((f"`{limit}`", *(spell(one["limits"].get(limit, "not limited")) for one in profiles)) for limit in MECHANISMS),
    )


def environment():
    variables = {name: profile(name)["environment"] for name in PROFILES}
    rows = []
    for name in variables["balanced"]:
        values = {variables[one].get(name) for one in PROFILES}
        rows.append((f"`{name}`", code(str(value) for value in sorted(values, key=str))))
    return table(("variable", "value"), *rows)


def probes():
    entries = [profile(name)["probes"] for name in PROFILES]
    assert all(other == entries[0] for other in entries), "probes differ: give the table a column"
    rows = []
    for entry in entries[0]:
        matched = f"calls refused with the reason `{entry['reason']}`" if "reason" in entry else f"writes below `{entry['write']}`"
        rows.append((matched, entry["why"]))
    return table(("probe", "why"), *rows)


def mounts():
    profiles = {name: profile(name) for name in PROFILES}
    one = profiles["balanced"]
    for key in ("system_paths", "etc_paths", "devices", "writable_paths", "mounts"):
        assert all(other[key] == one[key] for other in profiles.values()), f"{key} differs: give the table a column"
    assert [other["proc"]["subset"] for other in profiles.values()] == ["all", "all", "pids"]
    proc = one["proc"]
    workspaces = {name: other["workspace"] for name, other in profiles.items()}
    by_access = {access: [name for name in PROFILES if workspaces[name] == access] for access in workspaces.values()}
    workspace = "; ".join(f"`{access}` in {' and '.join(names)}" for access, names in by_access.items())
    read_only = "ro, nosuid, nodev"
    return table(
        ("place", "what is there", "flags"),
        ("`/`", "a tmpfs of 2 MiB and 1024 inodes with the directories below and nothing else", read_only),
        (code(one["system_paths"]), "the host's, where it has them; a link stays a link", read_only),
        ("`/usr/lib32`, `/usr/libx32`, `/usr/lib/i386-linux-gnu`", "the host's, where it has them: to read, not to execute", read_only + ", noexec"),
        ("`/etc`", "made: " + code(("passwd", "group", "nsswitch.conf", "resolv.conf", "hosts", "hostname")), read_only),
        (code(one["etc_paths"]), "the host's, where it has them", read_only),
        (code(f"/dev/{name}" for name in one["devices"]), "the host's devices", "ro, nosuid, noexec"),
        (code(("/dev/tty", "/dev/pts")), "the controlling terminal, where a program has one, and a devpts of its own with at most 64 terminals", "ro, nosuid, noexec"),
        ("`/proc`", "of the own pid namespace; in strict only its processes", "ro, nosuid, nodev, noexec"),
        (code(f"/proc/{name}" for name in proc["masked_files"]), "covered by `/dev/null`; not there in strict", "ro, nosuid, noexec"),
        (
            code(f"/proc/{name}" for name in proc["masked_directories"]),
            "covered by an empty directory; not there in strict",
            "ro, nosuid, nodev, noexec",
        ),
        ("`/proc/stat`", "made, when the CPU limit is below the machine's CPUs; not there in strict", "ro, nosuid, nodev, noexec"),
        (code(one["writable_paths"]), "one tmpfs under the scratch limits, seen in three places", "rw, nosuid, nodev"),
        ("`/workspace`", f"the source: {workspace}, unless the command line or the request says otherwise", "nosuid, nodev, and ro for `ro`"),
        ("a target of `mounts`, `-v`", "what path policy opened and judged", "nosuid, nodev, and ro for `ro`"),
    )


def risk():
    rows = []
    for rule in read_yaml("profiles/policy.yaml")["risk"]:
        when = rule.get("when", {})
        conditions = [f"asks for {code(when['asks'])}"] if "asks" in when else []
        conditions += [f"label `{key}: {value}`" for key, value in when.get("labels", {}).items()]
        conditions += [f"{key}: {code(when[key])}" for key in ("sources", "languages") if key in when]
        rows.append((
            f"`{rule['id']}`", " and ".join(conditions) or "always", f"`{rule['strength']}`",
            f"`{rule['approval']}`" if "approval" in rule else "none", rule["why"],
        ))  # fmt: skip
    return table(("rule", "when", "weakest strength", "approval", "why"), *rows)


def strengths():
    return table(
        ("strength", "what it is, and why not the next cheaper one"),
        *((f"`{name}`", text.strip()) for name, text in read_yaml("profiles/policy.yaml")["strengths"].items()),
    )


# --- System calls --------------------------------------------------------------------------------------------------------


def read_filter(name):
    """System call -> its rules in order, after x-caisson-extends."""
    document = json.loads((ROOT / f"profiles/seccomp/{name}.json").read_text(encoding="utf-8"))
    calls = {}
    for rule in document["syscalls"]:
        for call in rule["names"]:
            calls.setdefault(call, []).append(rule)
    if "x-caisson-extends" in document:
        calls = read_filter(document["x-caisson-extends"].removesuffix(".json")) | calls
    return calls


def effect(rule):
    """allow, quiet, observe, deny or kill."""
    return {"SCMP_ACT_ALLOW": "allow", "SCMP_ACT_ERRNO": "quiet"}.get(rule["action"]) or rule["x-caisson"]["do"]


GROUPS = {
    "allow": "allowed whatever its arguments",
    "argument": "decided by its arguments",
    "observe": "observed: always let through to the other walls; an attempt they refuse is recorded",
    "deny": "refused with an error and recorded",
    "quiet": "refused with an error, not recorded",
    "kill": "ends the sandbox, recorded",
}


def group(rules):
    return effect(rules[0]) if len(rules) == 1 and "args" not in rules[0] else "argument"


def syscall_counts():
    filters = [read_filter(name) for name in FILTERS]
    rows = [
        (text, *(str(sum(group(rules) == key for rules in calls.values())) for calls in filters))
        for key, text in GROUPS.items()
    ]
    return table(("system calls", *(f"`{name}`" for name in FILTERS)), *rows, ("hidden: `ENOSYS`, not recorded", *["all others"] * 3))


def syscalls():
    calls = read_filter("balanced")
    names = {key: sorted(call for call, rules in calls.items() if group(rules) == key) for key in GROUPS}
    assert not set(HIDDEN_EXAMPLES) & set().union(*(read_filter(name) for name in FILTERS))
    rows = [(text, code(names[key])) for key, text in GROUPS.items()]
    return table(("in `balanced`", "system calls"), *rows, ("hidden: `ENOSYS`, not recorded", "every other, such as " + code(HIDDEN_EXAMPLES)))


def answer(rule):
    number = rule.get("errnoRet") or rule.get("x-caisson", {}).get("errno")
    return f"`{errno.errorcode[number]}`" if number else ""


def comment(rule):
    """What the file says of the rule, without the error that stands beside it anyway."""
    text = rule["comment"].rstrip(".")
    return "everything else" if text == answer(rule).strip("`") else text.removesuffix(". " + answer(rule).strip("`"))


def gather(rules):
    """Their comments, by the error they answer with; a reason that several names share is given once."""
    answers = {}
    for rule in rules:
        name, colon, why = comment(rule).partition(": ")
        if not (colon and re.fullmatch(r"\w+", name)):
            name, why = comment(rule), ""
        answers.setdefault(answer(rule), {}).setdefault(why or name, []).append(name)
    texts = []
    for given, reasons in answers.items():
        texts.append((f"{given}: " if given else "") + "; ".join(
            f"{', '.join(names)}: {why}" if names != [why] else why for why, names in reasons.items()
        ))  # fmt: skip
    return ". ".join(texts)


def syscall_arguments():
    rows = []
    for call, rules in read_filter("balanced").items():
        if group(rules) != "argument":
            continue
        parts = {key: [rule for rule in rules if effect(rule) == key] for key in ("allow", "observe", "deny", "quiet")}
        cells = {key: gather(parts[key]) for key in parts}
        if "args" in rules[-1]:
            cells["quiet"] += "`ENOSYS`: everything else"
        rows.append((f"`{call}`", *cells.values()))
    return table(("call", "allowed", "observed", "refused and recorded", "refused, not recorded"), *rows)


def syscall_reasons():
    """Every reason a violation of a filter can carry."""
    found = {}
    for name in FILTERS:
        for call, rules in read_filter(name).items():
            for rule in rules:
                if effect(rule) in ("observe", "deny", "kill"):
                    notice = rule["x-caisson"]
                    found.setdefault((notice["reason"], notice["class"]), {}).setdefault(effect(rule), set()).add(call)
    rows = [
        (f"`{reason}`", f"`{violation}`", "; ".join(f"{deed}: {code(sorted(calls))}" for deed, calls in sorted(deeds.items())))
        for (reason, violation), deeds in sorted(found.items())
    ]
    rows.append(("`syscall.arch`", "`SyscallViolation`", "kill: any call of another architecture (i386, x32)"))
    rows.append(("`syscall.profile`", "`SyscallViolation`", "deny: what a profile lists in `seccomp.deny`"))
    return table(("reason", "class", "system calls"), *sorted(rows))


def syscall_changes():
    rows = []
    for name in FILTERS[1:]:
        for rule in json.loads((ROOT / f"profiles/seccomp/{name}.json").read_text(encoding="utf-8"))["syscalls"]:
            deed = {"allow": "allowed", "quiet": "refused, not recorded", "observe": "observed", "deny": "refused and recorded"}[effect(rule)]
            rows.append((f"`{name}`", code(rule["names"]), deed, comment(rule)))
    return table(("filter", "calls", "are", "when and why"), *rows)


def literal(text):
    """The value of adjacent C++ string literals."""
    return "".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', text))


def configuration():
    source = (ROOT / "src/service/config.cc").read_text(encoding="utf-8")
    string = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    rows = re.findall(r"\{\{" + r",\s*".join([string] * 4) + r"\}", source)
    assert len(rows) > 20
    return table(("key", "type", "default", "meaning"), *((f"`{literal(name)}`", *map(literal, rest)) for name, *rest in rows))


def metrics():
    source = (ROOT / "src/service/metrics.cc").read_text(encoding="utf-8")
    rows = re.findall(r'\{"(caisson_\w+)",\s*Type::k(\w+),\s*((?:"[^"]*"\s*)+)\}', source)
    assert len(rows) > 10
    return table(("metric", "type", "meaning"), *((f"`{name}`", kind.lower(), literal(text)) for name, kind, text in rows))


MODES = ("v2", "hybrid", "delegated", "none")  # cgroups of root, of root on v1 controllers, of a user; none


def of_modes(value, unused):
    """One text, or what differs between the modes; modes that say the same are named together."""
    if value is None:
        return f"not consumed: {unused}"
    if isinstance(value, str):
        return value
    texts = {}
    for mode in MODES:
        one = value[mode]
        text = one if isinstance(one, str) else f"**absent**: {one['absent']}; reported as `{one['reported']}`"
        texts.setdefault(text, []).append(mode)
    return "; ".join(f"{', '.join(modes)}: {text}" for text, modes in texts.items())


def resources():
    rows = []
    for one in read_yaml("tests/escape/resources.yaml"):
        unused = one.get("unused")
        meter = "" if unused else of_modes(one.get("meter"), unused)
        rows.append((one["what"], of_modes(one.get("wall"), unused), meter, ", ".join(one["rows"])))
    return table(("resource", "wall", "meter", "rows"), *rows)


def shown_file(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"```yaml\n# {path}\n{text}```\n"


TABLES = {
    "limits": limits,
    "limit-values": limit_values,
    "environment": environment,
    "mounts": mounts,
    "probes": probes,
    "risk": risk,
    "strengths": strengths,
    "syscall-counts": syscall_counts,
    "syscalls": syscalls,
    "syscall-arguments": syscall_arguments,
    "syscall-reasons": syscall_reasons,
    "syscall-changes": syscall_changes,
    "configuration": configuration,
    "metrics": metrics,
    "resources": resources,
}


def make(name):
    if name.startswith("file "):
        return shown_file(name.removeprefix("file "))
    if name not in TABLES:
        raise SystemExit(f"doc_tables: there is no table {name!r}; known: {', '.join(TABLES)}, file PATH")
    return TABLES[name]()


def documents():
    return [ROOT / "README.md", ROOT / "SPECIFICATION.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(arguments):
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    if arguments and arguments[0] != "--check":
        print(make(" ".join(arguments)), end="")
        return 0
    stale = 0
    used = set()
    for document in documents():
        text = document.read_text(encoding="utf-8")
        used.update(found[2] for found in TABLE.finditer(text))
        fresh = TABLE.sub(lambda found: found[1] + make(found[2]) + found[4], text)
        if fresh == text:
            continue
        stale += 1
        if not arguments:
            document.write_text(fresh, encoding="utf-8")
            print(f"doc_tables: rewrote {document.relative_to(ROOT)}")
        else:
            name = str(document.relative_to(ROOT))
            sys.stderr.writelines(difflib.unified_diff(text.splitlines(True), fresh.splitlines(True), name, name, n=0))
    if unused := set(TABLES) - used:
        raise SystemExit(f"doc_tables: no document shows {', '.join(sorted(unused))}")
    if arguments and stale:
        raise SystemExit("doc_tables: out of date; run tools/doc_tables.py")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
