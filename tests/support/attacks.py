"""Attacks on the sandbox as Python source, and the ways in which a program can try to hide one.

Every attack defines attack(). Every hiding place is a program around it; all but "plain" swallow the exceptions of
attack() and exit with 0, so that only the sandbox's own evidence shows what happened.
"""

import textwrap

_PRELUDE = """
import ctypes, os, signal, socket, stat, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if libc.syscall(ctypes.c_long(number), *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def swallowed():
    try:
        attack()
    except BaseException:
        pass
"""

HIDING_PLACES = {
    "plain": "attack()",
    "swallowed": "swallowed()\nos._exit(0)",
    "child": (
        """
        pid = os.fork()
        if pid == 0:
            swallowed()
            os._exit(0)
        os.waitpid(pid, 0)
        os._exit(0)
    """
    ),
    "thread": (
        """
        thread = threading.Thread(target=swallowed)
        thread.start()
        thread.join()
        os._exit(0)
    """
    ),
    "daemon": (
        """
        here, there = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                swallowed()
                os.write(there, b"x")
            os._exit(0)
        os.close(there)
        os.read(here, 1)  # a byte, or the end when the daemon was killed
        os._exit(0)
    """
    ),
}


def program(attack, place="plain"):
    return (
        f"{_PRELUDE}\ndef attack():\n{textwrap.indent(textwrap.dedent(attack).strip(), '    ')}\n\n"
        + textwrap.dedent(HIDING_PLACES[place]).strip()
        + "\n"
    )


OLD = "/workspace/data/old.txt"  # exists; NEW does not
NEW = "/workspace/new"

# name -> (attack, path in the evidence). The first fifteen are one for each family of system calls.
WRITES = {
    "open": (f"open({NEW!r}, 'w')", NEW),
    "creat": (f"call(85, {NEW.encode()!r}, 0o644)", NEW),
    "openat2": (f"call(437, -100, {NEW.encode()!r}, struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o644, 0), 24)", NEW),
    "mkdir": (f"os.mkdir({NEW!r})", NEW),
    "rename": (f"os.rename({OLD!r}, {NEW!r})", OLD),
    "link": (f"os.link({OLD!r}, {NEW!r})", NEW),
    "symlink": (f"os.symlink('data', {NEW!r})", NEW),
    "unlink": (f"os.unlink({OLD!r})", OLD),
    "rmdir": ("os.rmdir('/workspace/data')", "/workspace/data"),
    "truncate": (f"os.truncate({OLD!r}, 0)", OLD),
    "chmod": (f"os.chmod({OLD!r}, 0o777)", OLD),
    "chown": (f"os.chown({OLD!r}, 1000, 1000)", OLD),
    "utime": (f"os.utime({OLD!r})", OLD),
    "setxattr": (f"os.setxattr({OLD!r}, 'user.x', b'1')", OLD),
    "mknod": (f"os.mkfifo({NEW!r})", NEW),
    # Other spellings of the same.
    "old open": (f"call(2, {NEW.encode()!r}, os.O_CREAT | os.O_WRONLY, 0o644)", NEW),
    "append": (f"open({OLD!r}, 'a')", OLD),
    "read and write": (f"os.open({OLD!r}, os.O_RDWR)", OLD),
    "truncating open": (f"os.open({OLD!r}, os.O_RDONLY | os.O_TRUNC)", OLD),
    "unnamed file": ("os.open('/workspace', os.O_TMPFILE | os.O_RDWR)", "/workspace"),
    "relative": ("os.chdir('/workspace/data')\nopen('../new', 'w')", NEW),
    "below a descriptor": ("fd = os.open('/workspace', os.O_RDONLY)\nos.mkdir('new', dir_fd=fd)", NEW),
    "through a link": ("os.symlink('/workspace', '/scratch/w')\nopen('/scratch/w/new', 'w')", NEW),
    "through proc": ("open('/proc/self/root/workspace/new', 'w')", NEW),
    "through a descriptor's name": (f"fd = os.open({OLD!r}, os.O_RDONLY)\nopen(f'/proc/self/fd/{{fd}}', 'w')", OLD),
    "below a descriptor's name": ("fd = os.open('/workspace', os.O_RDONLY)\nopen(f'/dev/fd/{fd}/new', 'w')", NEW),
    "up from scratch": ("open('/scratch/../workspace/new', 'w')", NEW),
    "link to a link": (
        "os.symlink('/proc/self/cwd', '/scratch/w')\nos.chdir('/workspace')\nopen('/scratch/w/new', 'w')",
        NEW,
    ),
    "moved in": (f"open('/scratch/f', 'w').close()\nos.rename('/scratch/f', {NEW!r})", NEW),
    "moved out": (f"os.rename({OLD!r}, '/scratch/f')", OLD),
    "renameat2": (f"call(316, -100, {OLD.encode()!r}, -100, {NEW.encode()!r}, 1)", OLD),
    "linked out": (f"os.link('/proc/self/exe', {NEW!r})", NEW),
    "regular mknod": (f"os.mknod({NEW!r}, stat.S_IFREG | 0o644)", NEW),
    "fchmod": (f"os.fchmod(os.open({OLD!r}, os.O_RDONLY), 0o777)", OLD),
    "fchown": (f"os.fchown(os.open({OLD!r}, os.O_RDONLY), 1000, 1000)", OLD),
    "lchown": (f"os.lchown({OLD!r}, 1000, 1000)", OLD),
    "futimens": (f"os.utime(os.open({OLD!r}, os.O_RDONLY))", OLD),
    "old utime": (f"call(132, {OLD.encode()!r}, 0)", OLD),
    "fsetxattr": (f"os.setxattr(os.open({OLD!r}, os.O_RDONLY), 'user.x', b'1')", OLD),
    "removexattr": (f"os.removexattr({OLD!r}, 'user.x')", OLD),
    "fchmodat2": (f"call(452, -100, {OLD.encode()!r}, 0o777, 0)", OLD),
    "bound socket": (f"socket.socket(socket.AF_UNIX).bind({NEW!r})", NEW),
    "system file": ("open('/etc/passwd', 'a')", "/etc/passwd"),
    "system directory": ("open('/usr/lib/new', 'w')", "/usr/lib/new"),
    "root directory": ("os.mkdir('/new')", "/new"),
}
WRITE_FAMILIES = list(WRITES)[:15]

_SENDMMSG = """
import ctypes
address = struct.pack('=HH4s8x', socket.AF_INET, socket.htons(9), socket.inet_aton('192.0.2.9'))
name, data = ctypes.create_string_buffer(address), ctypes.create_string_buffer(b'x')
vector = ctypes.create_string_buffer(struct.pack('PN', ctypes.addressof(data), 1))
header = struct.pack('PI4xPNPNi4xI4x', ctypes.addressof(name), 16, ctypes.addressof(vector), 1, 0, 0, 0, 0)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
call(307, s.fileno(), header, 1, 0)
"""

# name -> (attack, key of the evidence, its value)
NETWORK = {
    "urllib by address": (
        "import urllib.request\nurllib.request.urlopen('http://192.0.2.1/', timeout=2)",
        "address",
        "192.0.2.1",
    ),
    "urllib by name": (
        "import urllib.request\nurllib.request.urlopen('http://example.com/', timeout=2)",
        "name",
        "example.com",
    ),
    "look-up": ("socket.getaddrinfo('example.org', 80)", "name", "example.org"),
    # Other spellings.
    "old look-up": ("socket.gethostbyname('www.example.net')", "name", "www.example.net"),
    "datagram": (
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.7', 9))",
        "address",
        "192.0.2.7",
    ),
    "message": (
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('192.0.2.8', 9))",
        "address",
        "192.0.2.8",
    ),
    "messages": (_SENDMMSG, "address", "192.0.2.9"),
    "version 6": ("socket.socket(socket.AF_INET6).connect(('2001:db8::1', 80))", "address", "2001:db8::1"),
    "mapped address": (
        "socket.socket(socket.AF_INET6).connect(('::ffff:192.0.2.1', 80))",
        "address",
        "::ffff:192.0.2.1",
    ),
    "cloud metadata": (
        "s = socket.socket()\ns.settimeout(1)\ns.connect(('169.254.169.254', 80))",
        "address",
        "169.254.169.254",
    ),
}
NETWORK_FAMILIES = list(NETWORK)[:3]

# name of the call -> attack. The kernel's answer is an error; the program lives on.
DENIED_CALLS = {
    "ptrace": "call(101, 0, 0, 0, 0)",
    "mount": "call(165, b'none', b'/scratch', b'tmpfs', 0, 0)",
    "unshare": "call(272, 0x10000000)",
    "keyctl": "call(250, 0, -3, 0)",
}
OTHER_DENIED_CALLS = {
    "chroot": "call(161, b'/scratch')",
    "process_vm_readv": "call(310, 1, 0, 0, 0, 0, 0)",
    "add_key": "call(248, b'user', b'x', b'y', 1, -3)",
    "perf_event_open": "call(298, 0, 0, -1, -1, 0)",
    "userfaultfd": "call(323, 0)",
    "clone": "call(56, 0x10000000 | 17, 0, 0, 0, 0)",
}
# name of the call -> attack. The program does not survive it.
KILLED_CALLS = {
    "bpf": "call(321, 0, 0, 0)",
    "init_module": "call(175, 0, 0, b'')",
    "kexec_load": "call(246, 0, 0, 0, 0)",
}
OTHER_KILLED_CALLS = {
    "setns": "call(308, os.open('/proc/self/ns/net', os.O_RDONLY), 0)",
    "pivot_root": "call(155, b'/scratch', b'/scratch')",
    "reboot": "call(169, 0xfee1dead, 672274793, 0x1234567, 0)",
    "open_by_handle_at": "call(304, -100, b'x' * 64, 0)",
}

SPIN = "while True: pass"
SLEEPING_FORKS = """
for _ in range(500):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
"""
ENDLESS_FORKS = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
THREADS = """
for _ in range(500):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""
ALLOCATIONS = """
blocks = []
for _ in range(512):
    blocks.append(b'x' * (8 << 20))
"""
OUTPUT = "while True: os.write({stream}, b'y' * 4096)"
SCRATCH_BYTES = """
with open('/scratch/big', 'wb', buffering=0) as file:
    while True:
        file.write(b'x' * 65536)
"""
SCRATCH_FILES = """
for number in range(5000):
    os.close(os.open(f'/tmp/{number}', os.O_CREAT | os.O_WRONLY))
"""
