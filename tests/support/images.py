"""Root file systems and image archives for tests, made of this machine's own programs."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PROGRAMS = ("sh", "cat", "ls", "id", "env", "true", "sleep", "stat", "chmod")


def copy_program(root, name):
    """Copies a program of /usr/bin and the libraries it needs to the same places below `root`."""
    source = f"/usr/bin/{name}"
    listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
    for path in [source, *re.findall(r"(/\S+) \(0x", listed)]:
        real = os.path.join("/usr", os.path.relpath(path, "/")) if not path.startswith("/usr") else path
        target = pathlib.Path(str(root) + real)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(path, target)


def make_root(root, programs=PROGRAMS):
    """A small root file system: some programs, and things that a sandbox must or must not take from an image."""
    root = pathlib.Path(root)
    for directory in ("usr/bin", "etc", "home", "opt/tool", "var/lib/tool", "var/tmp", "dev", "proc", "tmp", "run"):
        (root / directory).mkdir(parents=True)
    for name in programs:
        copy_program(root, name)
    for link in ("bin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    (root / "etc/tool.conf").write_text("of the image\n")
    (root / "etc/passwd").write_text("planted:x:0:0::/:/bin/sh\n")
    (root / "opt/tool/data").write_text("data of the image\n")
    (root / "var/lib/tool/state").write_text("state of the image\n")
    (root / "dev/planted").write_text("not a device\n")
    return root


def entry(name, data=b"", kind=tarfile.REGTYPE, mode=0o644, link="", device=(0, 0), mtime=0):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size, info.mtime = kind, mode, link, len(data), mtime
    info.devmajor, info.devminor = device
    return info, data


def directory(name):
    return entry(name, kind=tarfile.DIRTYPE, mode=0o755)


def symlink(name, target):
    return entry(name, kind=tarfile.SYMTYPE, link=target)


def hard_link(name, other):
    return entry(name, kind=tarfile.LNKTYPE, link=other)


def tar_of(*entries, form=tarfile.GNU_FORMAT):
    """TarInfo.name is taken as it is: tarfile's own tidying is for add()."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def tar_of_tree(root):
    """The tree as GNU tar packs it."""
    return subprocess.run(["tar", "-C", str(root), "-cf", "-", "."], stdout=subprocess.PIPE, check=True).stdout


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Image:
    """The documents and blobs of an image with these layers, each the bytes of a tar file."""

    def __init__(self, *layers, config=None, compress=True, architecture=ARCHITECTURE, system="linux"):
        self.layers = list(layers)
        self.blobs = [gzip.compress(layer, 1, mtime=0) if compress else layer for layer in layers]
        self.diff_ids = ["sha256:" + sha256(layer) for layer in layers]
        self.config = {"architecture": architecture, "os": system, "config": config or {}}
        self.type = "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if compress else "")

    def config_bytes(self):
        return json.dumps(self.config | {"rootfs": {"type": "layers", "diff_ids": self.diff_ids}}).encode()

    @staticmethod
    def descriptor(kind, data):
        return {"mediaType": kind, "digest": "sha256:" + sha256(data), "size": len(data)}

    def oci_files(self):
        """name -> bytes of an OCI layout."""
        config = self.config_bytes()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": self.descriptor("application/vnd.oci.image.config.v1+json", config),
                "layers": [self.descriptor(self.type, blob) for blob in self.blobs],
            }
        ).encode()
        index = {
            "schemaVersion": 2,
            "manifests": [self.descriptor("application/vnd.oci.image.manifest.v1+json", manifest)],
        }
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
        for blob in [config, manifest, *self.blobs]:
            files["blobs/sha256/" + sha256(blob)] = blob
        return files

    def docker_files(self):
        """name -> bytes of what `docker save` wrote before it wrote layouts."""
        config = self.config_bytes()
        name = sha256(config) + ".json"
        layers = [f"{sha256(layer)}{number}/layer.tar" for number, layer in enumerate(self.layers)]
        manifest = [{"Config": name, "RepoTags": ["test:latest"], "Layers": layers}]
        return {name: config, "manifest.json": json.dumps(manifest).encode(), **dict(zip(layers, self.layers))}


def archive_of(files):
    return tar_of(*(entry(name, data) for name, data in files.items()))
