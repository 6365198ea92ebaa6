#!/usr/bin/python3 -B
"""Fetches what the benchmark compares with and Debian's package manager should not install for it: ./dev bench peers [docker|go-judge|gVisor…].

Everything lands below build/peers and nothing is installed: docker's packages start a service when they are, and gVisor
and go-judge are built from Go modules. A peer that cannot be fetched is named, and the benchmark runs without it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PEERS = pathlib.Path(__file__).resolve().parent.parent / "build/peers"
DOCKER_PACKAGES = ("docker.io", "containerd")
GO_JUDGE = "v1.8.5"
ENVIRONMENT = {**os.environ, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}  # static: runsc starts itself again in an empty root


def run(*argv, **keys):
    return subprocess.run(argv, check=True, capture_output=True, text=True, **keys).stdout


def docker(place):
    run("apt-get", "download", *DOCKER_PACKAGES, cwd=place)
    for package in place.glob("*.deb"):
        run("dpkg-deb", "-x", package, PEERS / "docker")
    return run(PEERS / "docker/usr/sbin/dockerd", "--version").strip()


def go_module(place, path, version):
    """A module's sources, in a directory of their own, and the version that was got."""
    (place / "go.mod").write_text("module peers\n")
    found = json.loads(run("go", "mod", "download", "-json", f"{path}@{version}", cwd=place, env=ENVIRONMENT))
    source = shutil.copytree(found["Dir"], place / "source")
    run("chmod", "-R", "u+w", source)
    return source, found["Version"]


def build(place, path, version, package, program):
    if shutil.which("go") is None:
        raise OSError("there is no Go toolchain (go)")
    source, got = go_module(place, path, version)
    run("go", "build", "-o", PEERS / program, package, cwd=source, env=ENVIRONMENT)
    (PEERS / f"{program}.version").write_text(f"{program} {got}\n")
    return f"{program} {got}"


FETCHERS = {
    "docker": docker,
    "go-judge": lambda place: build(place, "github.com/criyle/go-judge", GO_JUDGE, "./cmd/go-judge", "go-judge"),
    "gVisor": lambda place: build(place, "gvisor.dev/gvisor", "latest", "./runsc", "runsc"),
}


def main():
    PEERS.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or FETCHERS:
        with tempfile.TemporaryDirectory(prefix="caisson-peer-", ignore_cleanup_errors=True) as place:
            try:
                print(f"{name}: {FETCHERS[name](pathlib.Path(place))}", flush=True)
            except (OSError, subprocess.CalledProcessError) as error:
                said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
                print(f"{name}: not to be had: {said[-1] if said else error}", flush=True)


if __name__ == "__main__":
    main()
