"""The launchers that the benchmarks compare: one line of VARIANTS is one more contender in every part."""

import contextlib
import dataclasses
import pathlib
import socket
import subprocess

from measure import PROGRAMS, Missing, wait_until


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    flags: tuple
    what: str  # how it differs, beside what every sandbox enforces


VARIANTS = (
    Variant("launcher", (), "made by a launcher"),
    Variant("parked launcher", ("--park", "8"), "made by a launcher that prepares them ahead"),
    Variant("Python launcher", ("--park", "8", "--python", "json,re,unittest"), "the same, and Python forked from a warm interpreter"),
)
# An interpreter with a large library loaded takes longer to fork.
WITH_NUMPY = Variant("NumPy launcher", ("--park", "8", "--python", "numpy"), "the same, with numpy loaded")


class Launchers:
    """`with Launchers(directory) as launchers:` starts one of each variant; `sockets` has those that run, `missing` why
    others do not."""

    def __init__(self, directory, *flags, variants=VARIANTS):
        self.directory, self.flags, self.variants = pathlib.Path(directory), flags, variants
        self.sockets, self.missing, self.processes = {}, {}, {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.push(self.__exit__)
            for variant in self.variants:
                try:
                    self.start(variant)
                except Missing as reason:
                    self.missing[variant.name] = str(reason)
            stack.pop_all()
        return self

    def start(self, variant):
        path = self.directory / f"{variant.name.replace(' ', '-')}.sock"
        log = path.with_suffix(".log")
        with open(log, "wb") as errors:
            process = subprocess.Popen([PROGRAMS / "caisson-launcher", "--socket", path, *variant.flags, *self.flags],
                                       stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        self.processes[variant.name] = process
        wait_until(lambda: listens(path) or process.poll() is not None, 20, "its socket")
        if process.poll() is not None:
            raise Missing(f"its launcher does not start: {log.read_text().strip()}")
        self.sockets[variant.name] = str(path)

    def what(self, name):
        return next(variant.what for variant in self.variants if variant.name == name)

    def __exit__(self, *_):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=60)


def listens(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        return probe.connect_ex(str(path)) == 0
