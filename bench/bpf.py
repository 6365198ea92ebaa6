"""Caisson's own seccomp filter for tools that load a compiled one: the output of `caisson policy render`, compiled by
libseccomp. Calls that Caisson observes are allowed, because those tools have no observer."""

import ctypes
import ctypes.util
import json
import subprocess

from measure import CAISSON, Missing

ALLOW, ERRNO, KILL_PROCESS, KILL_THREAD = 0x7FFF0000, 0x00050000, 0x80000000, 0
COMPARISONS = {"SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5, "SCMP_CMP_GT": 6,
               "SCMP_CMP_MASKED_EQ": 7}


class Comparison(ctypes.Structure):  # scmp_arg_cmp
    _fields_ = [("index", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def rendered():
    """The filter in the format of the OCI runtime specification."""
    done = subprocess.run([CAISSON, "policy", "render", "--format", "seccomp"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def compile_to(path):
    name = ctypes.util.find_library("seccomp")
    if name is None:
        raise Missing("libseccomp is not installed, which compiles the filter: apt-get install libseccomp2")
    library = ctypes.CDLL(name)
    library.seccomp_init.restype = ctypes.c_void_p
    profile = rendered()
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(action(profile["defaultAction"], profile.get("defaultErrnoRet", 1)))))
    for rule in profile["syscalls"]:
        add(library, context, rule, profile)
    with open(path, "wb") as file:
        if library.seccomp_export_bpf(context, file.fileno()) != 0:
            raise Missing("libseccomp cannot compile the filter")
    library.seccomp_release(context)


def action(name, errno):
    return {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_ERRNO": ERRNO | errno, "SCMP_ACT_KILL_PROCESS": KILL_PROCESS,
            "SCMP_ACT_KILL": KILL_THREAD}[name]


def add(library, context, rule, profile):
    verdict = action(rule["action"], rule.get("errnoRet", profile.get("defaultErrnoRet", 1)))
    if verdict == action(profile["defaultAction"], profile.get("defaultErrnoRet", 1)):
        return  # what libseccomp does anyway, and refuses to be told
    comparisons = [Comparison(argument["index"], COMPARISONS[argument["op"]], argument["value"], argument.get("valueTwo", 0))
                   for argument in rule.get("args", [])]
    for name in rule["names"]:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            continue  # newer than this libseccomp: refused by default
        if library.seccomp_rule_add_array(context, ctypes.c_uint32(verdict), number, len(comparisons),
                                          (Comparison * max(1, len(comparisons)))(*comparisons)) != 0:
            raise Missing(f"libseccomp refuses the rule for {name}")
