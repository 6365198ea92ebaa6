"""The interpreter that workloads are forked from. Started by caisson-launcher as

    /usr/bin/python3 -c 'exec(this file)' MODULE,MODULE,…

with a socket to the launcher as descriptor 3, this file as 4 and the extension module as 5. No path of Caisson's own is
known here, because workloads could find it in their memory. Imports the modules, and then only forks: no foreign code ever runs here.

A forked process runs `begin`, then the requested file, module or text, then the exit functions and `forget`, all behind
the sandbox's walls, as the interpreter does before and after the user's program. docs/user/compatibility.md lists the
remaining differences.
"""
import sys

sys.path.pop(0)  # the working directory, from which no module may be imported

import builtins  # noqa: E402
import gc  # noqa: E402
import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import io  # noqa: E402
import itertools  # noqa: E402
import os  # noqa: E402
import stat  # noqa: E402
import types  # noqa: E402


def load_module(name, path):
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path, loader=loader))
    loader.exec_module(module)
    return module


# Libraries that would start threads when they are loaded; a fork has only the one that forked.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def preload(names):
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    for name in filter(None, names.split(",")):
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"caisson-launcher: --python: {error}", file=sys.stderr)
    for variable in ONE_THREAD:
        del os.environ[variable]
    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit(f"caisson-launcher: --python: of {names} one has started threads, and cannot be forked with them")


native = load_module("caisson_zygote", "/proc/self/fd/5")
os.close(5)
site_names = [name for name in ("exit", "quit", "copyright", "credits", "license", "help") if hasattr(builtins, name)]
system_path = [entry for entry in sys.path if not entry.endswith(("dist-packages", "site-packages"))]
whole_path = list(sys.path)


# Objects that a start may need are created here, before the fork: the kernel copies each page that changes afterwards.

def make_flags(isolated, no_bytecode, no_site):
    changed = {"dont_write_bytecode": int(no_bytecode or not isolated), "no_site": int(no_site)}
    if isolated:
        changed.update(isolated=1, ignore_environment=1, no_user_site=1, safe_path=True)
    # The fields in their order, by their names: repr gives "sys.flags(debug=0, inspect=0, …)".
    names = [field.split("=")[0] for field in repr(sys.flags)[len("sys.flags("):-1].split(", ")]
    return native.flags(sys.flags, [changed.get(name, getattr(sys.flags, name)) for name in names])


def make_stream(descriptor, name, mode, like):
    binary = io.open(descriptor, mode + "b", -1, closefd=False)
    binary.raw.name = f"<{name}>"
    terminal = binary.raw.isatty()
    buffering = terminal or descriptor == 2
    stream = io.TextIOWrapper(binary, like.encoding, like.errors, "\n", line_buffering=buffering)
    stream.mode = mode
    return stream


def kind_of(descriptor):
    status = os.fstat(descriptor)
    return descriptor, stat.S_IFMT(status.st_mode), status.st_rdev


def make_streams_ahead():
    """Streams on pipes, and input from /dev/null: what nearly all workloads have. By the kind of their descriptor."""
    null, (reader, writer) = os.open(os.devnull, os.O_RDONLY), os.pipe()
    made = {}
    for source, standard in ((null, STANDARD[0]), (reader, STANDARD[0]), (writer, STANDARD[1]), (writer, STANDARD[2])):
        descriptor, name, mode = standard
        saved = os.dup(descriptor)
        os.dup2(source, descriptor)
        made[kind_of(descriptor)] = make_stream(descriptor, name, mode, getattr(sys, name))
        os.dup2(saved, descriptor)
        os.close(saved)
    for descriptor in (null, reader, writer):
        os.close(descriptor)
    return made


STANDARD = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
own_streams = (sys.stdin, sys.stdout, sys.stderr)
flags_ahead = {key: make_flags(*key) for key in itertools.product((0, 1), repeat=3)}
streams_ahead = make_streams_ahead()
main = types.ModuleType("__main__")
main.__builtins__ = builtins
main.__annotations__ = {}
main.__loader__ = importlib.machinery.BuiltinImporter


def set_environment(lines):
    """The C library already has its copy."""
    variables = os.environ._data
    variables.clear()
    for line in lines:
        name, _, value = line.partition(b"=")
        variables[name] = value


def set_streams():
    for descriptor, name, mode in STANDARD:
        stream = streams_ahead.get(kind_of(descriptor))
        if stream is None:
            stream = make_stream(descriptor, name, mode, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def renew_random_state():
    # Other modules with state register with os.register_at_fork, as random does.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    threading = sys.modules.get("threading")
    if threading is not None:
        threading.main_thread()._set_native_id()


def begin(argv, environment, kind, target, arguments, isolated, no_bytecode, no_site):
    """Makes this process one in which the interpreter has just started; returns the file to run, if it is one."""
    set_environment(environment)
    sys.flags = flags_ahead[isolated, no_bytecode, no_site]
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
    set_streams()
    renew_random_state()
    if "TZ" in os.environ:
        import time
        time.tzset()
    sys.orig_argv = argv
    if no_site:
        sys.path[:] = system_path
        for name in site_names:
            delattr(builtins, name)
    sys.modules["__main__"] = main
    file = None
    if kind == "file":
        file = os.path.abspath(target)
        main.__file__ = file
        main.__cached__ = None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
        sys.argv = [target, *arguments]
        first = native.real_directory(file)
    else:
        sys.argv = ["-c" if kind == "text" else "-m", *arguments]
        first = "" if kind == "text" else os.getcwd()
    if not isolated:
        sys.path.insert(0, first)
    return file


def clear(module):
    """Takes the module's names away, private ones first, as the interpreter does at its end."""
    names = vars(module)
    for private in (True, False):
        for name in list(names):
            if name != "__builtins__" and (name.startswith("_") and not name.startswith("__")) == private:
                names[name] = None


def forget():
    """Tears down the program's modules after its exit functions. Modules shared with the zygote stay: their teardown
    would cost more than the whole run."""
    # If nothing was imported, do not even read the names: each would be a page to copy.
    if len(sys.modules) != len(preloaded) or next(reversed(sys.modules)) != last_preloaded:
        for name in [name for name in sys.modules if name not in preloaded]:
            if isinstance(sys.modules[name], types.ModuleType):
                clear(sys.modules[name])
    clear(sys.modules["__main__"])
    gc.collect()


preload(sys.argv[1] if len(sys.argv) > 1 else "")
sys.path[:] = whole_path
preloaded = frozenset(sys.modules)
last_preloaded = next(reversed(sys.modules))
gc.collect()
gc.freeze()
native.serve(begin, forget)
