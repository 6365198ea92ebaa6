"""Inside the virtual machine, as root: tries the program out in several situations and prints what happened.

One line of JSON for each attempt: {"who", "case", "exit_code", "stdout", "stderr", "result", "facts"}; "result" is the
result document, where there is one. Nothing is judged here: vm_test.py does that, outside.

Who:
  root       root, in a session of systemd's making
  user       uid 1000, in a session that is not delegated: no cgroup can be made
  delegated  uid 1000, below a cgroup that was delegated to the user, as systemd-run --user --scope does
  no_cpu     the same, without the cpu controller, as older systemd delegates
  container  root in a cgroup namespace whose root group has processes, as in a privileged container
  no_userns  uid 1000 on a machine where sysctl kernel.unprivileged_userns_clone is 0
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

from delegation import CGROUPS, delegate

PROGRAM = os.environ["CAISSON_BIN"]
ATTEMPT_SECONDS = 60
EARLY_KILLS = 60
EARLY_MOUNTS = 20
EARLY_SECONDS = 0.1  # about what a start takes under emulation

SESSIONS = {
    "root": (0, "user.slice/user-0.slice/session-1.scope"),
    "user": (1000, "user.slice/user-1000.slice/session-1.scope"),
    "delegated": (1000, "user.slice/u/shell.scope"),
    "no_cpu": (1000, "user.slice/v/shell.scope"),
    "container": (0, "box"),
    "no_userns": (1000, "user.slice/user-1000.slice/session-1.scope"),
}

PREAMBLE = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); call = libc.syscall; "
REPORT = "; raise SystemExit(os.strerror(ctypes.get_errno()) if result < 0 else 0)"


def python(text):
    return ["python3", "-c", text]


def kernel_call(expression):
    return python(PREAMBLE + "result = " + expression + REPORT)


VIOLATIONS = {
    "timeout": (["--timeout", "500ms"], ["sleep", "60"]),
    "memory_bomb": (["--memory", "64M"], python("x = bytearray(300 << 20)")),
    "fork_bomb": (["--pids-limit", "16", "--timeout", "30s"], ["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 60"]),
    "output_bomb": (["--output-limit", "64K"], ["yes"]),
    "write_workspace": ([], ["sh", "-c", "echo x > /workspace/x"]),
    "dns": ([], python("import socket; socket.getaddrinfo('example.com', 80)")),
    "connect": ([], python("import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)")),
    "ptrace": ([], kernel_call("libc.ptrace(0, 0, 0, 0)")),
    "mount": ([], kernel_call("libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)")),
    "bpf": ([], kernel_call("call(321, 0, 0, 0)")),
}

CHANGE_FILES = r"""
set -e
echo changed > kept; echo more >> appended; rm removed; mv old_name new_name; chmod 600 appended; truncate -s 1 truncated
rm replaced; echo anew > replaced; rm directory/file; rmdir hollow; mkdir made; mv made named; ln -s kept link; ln kept hard
find . -mindepth 1 | sort | tr '\n' ' '
cat kept appended replaced truncated
"""
CHANGE_DIRECTORIES = r"""
set -e
rm -r emptied; mv directory moved; echo inside > moved/added
rmdir hollow; mkdir hollow; rm removed; mkdir removed
find . -mindepth 1 | sort | tr '\n' ' '
"""


def emit(record):
    print(json.dumps(record), flush=True)


def session(who):
    """What subprocess needs to start something as `who`: words before the command, and options."""
    uid, group = SESSIONS[who]

    def join():
        (CGROUPS / group / "cgroup.procs").write_text("0")

    become = [] if uid == 0 else ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--"]
    if who == "container":
        become = ["unshare", "--cgroup", "--mount", "sh", "-c", "umount -l $0; mount -t cgroup2 cgroup2 $0; exec \"$@\"", str(CGROUPS)]
    variables = {} if uid == 0 else {"HOME": "/home/user", "USER": "user", "XDG_RUNTIME_DIR": "/run/user/1000"}
    return become, {"preexec_fn": join, "cwd": "/srv/caisson", "env": os.environ | variables, "stdin": subprocess.DEVNULL}


def attempt(who, case, arguments, result_file=None, facts=None):
    """Runs the program with those arguments as `who`. facts() is called afterwards, for what only the host can see."""
    become, options = session(who)
    record = {"who": who, "case": case, "result": None, "facts": None}
    try:
        done = subprocess.run(become + [PROGRAM] + arguments, capture_output=True, text=True, errors="replace",
                              timeout=ATTEMPT_SECONDS, check=False, **options)
        record |= {"exit_code": done.returncode, "stdout": done.stdout[-20000:], "stderr": done.stderr[-4000:]}
    except subprocess.TimeoutExpired:
        record |= {"exit_code": None, "stdout": "", "stderr": f"still running after {ATTEMPT_SECONDS} s"}
    if result_file is not None and result_file.exists():
        record["result"] = json.loads(result_file.read_text(encoding="utf-8"))
        result_file.unlink()
    if facts is not None:
        record["facts"] = facts()
    emit(record)


def run(who, case, flags, command, facts=None):
    home = pathlib.Path("/root" if SESSIONS[who][0] == 0 else "/home/user")
    result_file = home / "result.json"
    attempt(who, case, ["run", "--result", str(result_file), *flags, "--", *command], result_file, facts)


def make_tree(directory, uid):
    shutil.rmtree(directory, ignore_errors=True)
    for name in ("directory", "emptied", "hollow"):
        (directory / name).mkdir(parents=True)
    for name in ("kept", "appended", "removed", "old_name", "truncated", "replaced", "directory/file", "emptied/old"):
        (directory / name).write_text("original\n")
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, uid)


def describe_tree(directory):
    """Names, kinds, owners, modes and contents, as one digest."""
    lines = []
    for path in sorted(directory.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        lines.append(f"{path} {info.st_mode:o} {info.st_uid} {info.st_gid} {content!r}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def list_left_groups():
    return sorted(str(path.relative_to(CGROUPS)) for path in CGROUPS.rglob("caisson-*"))


def try_directories(who):
    uid = SESSIONS[who][0]
    places = {"disk": pathlib.Path("/root" if uid == 0 else "/home/user"), "tmpfs": pathlib.Path("/mnt")}
    for kind, place in places.items():
        tree = place / f"tree-{who}"
        make_tree(tree, uid)
        before = describe_tree(tree)

        def unchanged(tree=tree, before=before):
            return {"unchanged": describe_tree(tree) == before}

        def written(tree=tree):
            path = tree / "from_inside"
            info = path.stat() if path.exists() else None
            return {"owner": info and [info.st_uid, info.st_gid], "content": info and path.read_text()}

        run(who, f"cow_files_{kind}", ["--workspace", f"{tree}:cow"], ["sh", "-c", CHANGE_FILES], unchanged)
        run(who, f"cow_directories_{kind}", ["--workspace", f"{tree}:cow"], ["sh", "-c", CHANGE_DIRECTORIES], unchanged)
        run(who, f"volume_ro_{kind}", ["-v", f"{tree}:/data"], ["sh", "-c", "cat /data/kept; echo x > /data/from_inside"], unchanged)
        run(who, f"volume_rw_{kind}", ["-v", f"{tree}:/data:rw"], ["sh", "-c", "cat /data/kept; echo x > /data/from_inside"], written)
        shutil.rmtree(tree)


def processes_with(marker, excluding=None):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words and int(path.parent.name) != excluding:
            found.append(b" ".join(words).decode(errors="replace"))
    return found


def kill_supervisor(who):
    """SIGKILL cannot be handled; what is left two seconds later is left for good."""
    become, options = session(who)
    marker = "86399.25"
    with subprocess.Popen(become + [PROGRAM, "run", "--", "sleep", marker], **options) as supervisor:
        deadline = time.monotonic() + 20
        while not processes_with(marker, excluding=supervisor.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        started = bool(processes_with(marker, excluding=supervisor.pid))
        supervisor.kill()
    time.sleep(2)
    emit({"who": who, "case": "supervisor_killed",
          "facts": {"started": started, "processes": processes_with(marker), "groups": list_left_groups()}})


def kill_during_setup(who):
    """The same at many moments before the workload runs, with many mounts: each takes a helper process to prepare."""
    become, options = session(who)
    place = pathlib.Path("/root" if SESSIONS[who][0] == 0 else "/home/user")
    marker, moments = "86399.5", random.Random(1)
    mounts = [word for number in range(EARLY_MOUNTS) for word in ("-v", f"{place}:/data{number}")]
    for _ in range(EARLY_KILLS):
        command = [PROGRAM, "run", "-q", *mounts, "--", "sleep", marker]
        with subprocess.Popen(become + command, stderr=subprocess.DEVNULL, **options) as supervisor:
            time.sleep(moments.random() * EARLY_SECONDS)
            supervisor.kill()
    time.sleep(2)
    emit({"who": who, "case": "killed_early", "facts": {"processes": processes_with(marker), "groups": list_left_groups()}})


def try_everything(who):
    attempt(who, "doctor", ["doctor", "--json"])
    run(who, "true", [], ["/bin/true"])
    attempt(who, "hello", ["verify", "--json", "examples/hello.py"])
    for case, (flags, command) in VIOLATIONS.items():
        run(who, case, flags, command)
    try_directories(who)
    kill_supervisor(who)
    emit({"who": who, "case": "left_groups", "facts": list_left_groups()})


def main():
    try_everything("root")
    kill_during_setup("root")
    try_everything("user")

    # Root's runs turned cpu on in the root group; a user's slice has it only on request.
    delegate("v", ["memory", "pids"])
    run("no_cpu", "true", [], ["/bin/true"])
    attempt("no_cpu", "doctor", ["doctor", "--json"])

    delegate("u", ["memory", "pids", "cpu"])
    try_everything("delegated")

    (CGROUPS / "box").mkdir()
    run("container", "true", [], ["/bin/true"])

    pathlib.Path("/proc/sys/kernel/unprivileged_userns_clone").write_text("0")
    attempt("no_userns", "doctor", ["doctor", "--json"])
    run("no_userns", "true", [], ["/bin/true"])
    attempt("no_userns", "hello", ["verify", "--json", "examples/hello.py"])
    emit({"who": "machine", "case": "end", "facts": None})


sys.exit(main())
