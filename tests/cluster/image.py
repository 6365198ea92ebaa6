"""The image with caisson-agent: `image.py AGENT OUT.tar NAME` writes a docker-archive of two layers. The lower has programs
of this machine's Debian packages, so that commands find what they find in a native sandbox; the upper has the agent."""

import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

PACKAGES = ("bash", "coreutils", "dash", "findutils", "grep", "sed", "util-linux", "procps", "python3", "python3-pytest", "perl-base")
ETC = {
    "passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nuser:x:1000:1000:user:/scratch:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
}
LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
DIRECTORIES = (".caisson", "dev", "etc", "proc", "scratch", "sys", "tmp", "workspace")


def closure(packages):
    """The installed packages that these need."""
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${db:Status-Status}\t${Pre-Depends},${Depends}\n"],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    needs = {}
    for line in listed.splitlines():
        name, status, depends = line.split("\t")
        if status == "installed":
            needs[name] = re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", depends)
    found, waiting = set(), list(packages)
    while waiting:
        name = waiting.pop()
        if name in needs and name not in found:
            found.add(name)
            waiting += needs[name]
    return sorted(found)


def files_of(packages):
    """Every file below /usr of these packages, and the links of /etc/alternatives."""
    listed = subprocess.run(["dpkg-query", "-L", *packages], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = set()
    for name in listed.splitlines():
        name = re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", name)
        if name.startswith("/usr/") and not re.match(r"/usr/share/(doc|man|locale|info|lintian|bug)/", name):
            found.add(name)
    found |= {f"/etc/alternatives/{name}" for name in os.listdir("/etc/alternatives")}
    return sorted(name for name in found if os.path.lexists(name) and not (os.path.isdir(name) and not os.path.islink(name)))


def plain(info):
    """The same entry whoever packs it, and without set-id bits."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode &= 0o755
    return info


def lower_layer(out):
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in files_of(closure(PACKAGES)):
            archive.add(name, arcname=name.lstrip("/"), recursive=False, filter=plain)
        # Links that packages made at installation, and the loader's cache.
        for name in ("/usr/bin/python3", "/usr/bin/sh", "/usr/bin/awk", "/etc/ld.so.cache"):
            if os.path.lexists(name):
                archive.add(name, arcname=name.lstrip("/"), recursive=False, filter=plain)


def upper_layer(agent):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in DIRECTORIES:
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(info)
        for name, target in LINKS.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
        entries = {f"etc/{name}": (text.encode(), 0o644) for name, text in ETC.items()}
        entries[".caisson/agent"] = (pathlib.Path(agent).read_bytes(), 0o755)
        for name, (data, mode) in entries.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def digest(data):
    return hashlib.sha256(data).hexdigest()


def write_archive(out, name, layers, config=None):
    """`layers` are the bytes of tar files, the lowest first."""
    names = [digest(layer) + "/layer.tar" for layer in layers]
    document = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest(layer) for layer in layers]},
        }
    ).encode()
    manifest = json.dumps([{"Config": digest(document) + ".json", "RepoTags": [name], "Layers": names}]).encode()
    with tarfile.open(out, "w") as archive:
        for path, data in [*zip(names, layers), (digest(document) + ".json", document), ("manifest.json", manifest)]:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def write_agent_image(agent, out, name, cache):
    """`cache` is a directory that keeps the lower layer while the installed packages stay the same."""
    status = pathlib.Path("/var/lib/dpkg/status").read_bytes() + repr(PACKAGES).encode()
    lower = pathlib.Path(cache, f"programs-{digest(status)[:16]}.tar")
    if not lower.exists():
        for old in pathlib.Path(cache).glob("programs-*.tar"):
            old.unlink()
        partial = lower.with_suffix(".partial")
        lower_layer(partial)
        partial.rename(lower)
    write_archive(out, name, [lower.read_bytes(), upper_layer(agent)], {"Entrypoint": ["/.caisson/agent"], "User": "1000:1000"})


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    write_agent_image(sys.argv[1], sys.argv[2], sys.argv[3], os.environ.get("TMPDIR", "/var/tmp"))
