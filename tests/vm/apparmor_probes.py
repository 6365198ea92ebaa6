"""Inside the virtual machine: what programs may do confined by the rendered AppArmor profile, and what the same do bare.

Prints one JSON object. The profile says what a workload sees, so the places it names are made first, and the programs
are started as a container engine starts them: with the profile set for the next execve.
"""

import json
import os
import pathlib
import subprocess
import sys

PROFILE = "caisson-balanced"
LOADED = pathlib.Path("/sys/kernel/security/apparmor/profiles")

# What a workload does all day. Ends with the context that the kernel has for it.
LEGIT = r"""
import os, pathlib, socket, subprocess, tempfile
pathlib.Path('/scratch/made').write_text('x')
assert pathlib.Path('/workspace/source').read_text() == 'source'
with tempfile.TemporaryFile() as file: file.write(b'x')
assert subprocess.run(['sh', '-c', 'exit 7']).returncode == 7
listener = socket.create_server(('127.0.0.1', 0))
socket.create_connection(listener.getsockname()).close()
os.memfd_create('x')
print(pathlib.Path('/proc/self/attr/current').read_text().strip('\0\n'))
"""

# Only the profile refuses these: they run as root, in a separate virtual machine.
ATTEMPTS = r"""
import ctypes, json, os, pathlib, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(result):
    if result != 0: raise OSError(ctypes.get_errno(), 'refused')
outside = int(sys.argv[1])
attempts = {
    'read_etc': lambda: pathlib.Path('/etc/secret').read_bytes(),
    'read_home': lambda: os.listdir('/root'),
    'write_usr': lambda: pathlib.Path('/usr/planted').write_text('x'),
    'write_workspace': lambda: pathlib.Path('/workspace/planted').write_text('x'),
    'read_masked': lambda: pathlib.Path('/proc/kallsyms').read_text(),
    'write_sysctl': lambda: pathlib.Path('/proc/sys/kernel/hostname').write_text('taken'),
    'read_sys': lambda: os.listdir('/sys/kernel'),
    'device': lambda: os.open('/dev/vda', os.O_RDONLY),
    'raw_socket': lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    'packet_socket': lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    'capability': lambda: os.chown('/scratch/made', 1, 1),
    'signal_outside': lambda: os.kill(outside, signal.SIGCONT),
    'ptrace_outside': lambda: call(libc.ptrace(0x4206, outside, None, None)),
    'mount': lambda: call(libc.mount(b'tmpfs', b'/scratch', b'tmpfs', 0, None)),
}
said = {}
for name, attempt in attempts.items():
    try:
        attempt()
        said[name] = 0
    except OSError as error:
        said[name] = error.errno
print(json.dumps(said))
"""


def confine():
    pathlib.Path("/proc/self/attr/exec").write_text("exec " + PROFILE)


def python(program, *arguments, confined):
    return subprocess.run(
        ["python3", "-I", "-c", program, *arguments],
        cwd="/workspace",
        preexec_fn=confine if confined else None,
        capture_output=True,
        text=True,
        check=False,
    )


def try_out(confined):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as outside:
        legit = python(LEGIT, confined=confined)
        attempts = python(ATTEMPTS, str(outside.pid), confined=confined)
        outside.stdin.close()
    if attempts.returncode != 0:
        raise SystemExit(attempts.stderr)
    return {"legit": [legit.returncode, legit.stdout.strip(), legit.stderr], "attempts": json.loads(attempts.stdout)}


def context_seen_from_outside():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, preexec_fn=confine) as child:
        context = pathlib.Path(f"/proc/{child.pid}/attr/current").read_text().strip("\0\n")
        child.stdin.close()
    return context


def main():
    for place in ("/scratch", "/workspace"):
        os.mkdir(place)
    pathlib.Path("/workspace/source").write_text("source")
    pathlib.Path("/etc/secret").write_text("secret")
    rendered = subprocess.run(["caisson", "policy", "render", "--format", "apparmor", "balanced"], stdout=subprocess.PIPE, check=True)
    loading = subprocess.run(["apparmor_parser", "--replace", "--skip-cache"], input=rendered.stdout, stderr=subprocess.PIPE, check=False)
    report = {
        "loading": [loading.returncode, loading.stderr.decode()],
        "loaded": [line for line in LOADED.read_text().splitlines() if line.startswith(PROFILE)],
    }
    if loading.returncode == 0:
        # Bare last: what it changes would change what the other sees.
        report["confined"] = try_out(confined=True)
        report["seen_from_outside"] = context_seen_from_outside()
        report["bare"] = try_out(confined=False)
    print(json.dumps(report))


sys.exit(main())
