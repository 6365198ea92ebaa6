"""Archives as sources: their contents are verified like a directory, and a hostile archive is refused as a whole."""

import bz2
import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import unittest
import zipfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import both_callers, need_tool, processes, wait_until, workbench  # noqa: E402

MIB = 1 << 20
SEALS = 0x0F  # F_SEAL_SEAL, SHRINK, GROW, WRITE: not in Python 3.11's fcntl


def member(name, data=b"", kind=tarfile.REGTYPE, mode=0o644, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data)
    return info, data


def tar(*members, form=tarfile.PAX_FORMAT):
    """TarInfo.name is taken as it is: tarfile's own tidying is for add()."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_file(*members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.create_system, info.compress_type = mode << 16, 3, method
            archive.writestr(info, data)
    return out.getvalue()


def zip_link(name, target):
    return name, target, stat.S_IFLNK | 0o777


def plain(name, data=b""):
    return name, data, stat.S_IFREG | 0o644


def patched(data, old, new):
    assert len(old) == len(new) and old in data
    return data.replace(old, new)


def raw_name(data, name, raw):
    """A ustar archive in which `name` was replaced by bytes that tarfile would not write."""
    block = bytearray(data)
    at = block.index(name.encode())
    block[at : at + len(raw)] = raw
    header = at - at % 512
    block[header + 148 : header + 156] = b" " * 8
    block[header + 148 : header + 156] = b"%06o\0 " % sum(block[header : header + 512])
    return bytes(block)


def many(count):
    """A tar.gz with `count` empty files, made without tarfile's cost for each."""
    first = bytearray(tar(member("0000000"), form=tarfile.USTAR_FORMAT)[:512])
    base = sum(first) - sum(first[148:156]) + 8 * 32 - sum(b"0000000")
    out = zlib.compressobj(1, wbits=31)
    middle, tail = bytes(first[7:148]), bytes(first[156:512])
    parts = []
    for begin in range(0, count, 10_000):
        block = b"".join(
            name + middle + b"%06o\0 " % (base + sum(name)) + tail
            for name in (b"%07d" % number for number in range(begin, begin + 10_000))
        )
        parts.append(out.compress(block))
    return b"".join(parts) + out.flush()


def cpio(name):
    fields = [0] * 13
    fields[1], fields[11] = 0o100644, len(name) + 1
    return b"070701" + b"".join(b"%08X" % field for field in fields) + name + b"\0" * 8


ZEROS = bytes(8 * MIB)
NOISE = os.urandom(11 * MIB)
GOOD = tar(member("main.py", b"print(1)\n"))
GOOD_ZIP = zip_file(plain("main.py", b"print(1)\n"))

# Name of the file -> bytes, and what the refusal must name.
HOSTILE = {
    "slip.tar": (tar(member("../evil.py")), ['"../evil.py"', '".."']),
    "slip inside.tar": (tar(member("a/../../evil.py")), ['"a/../../evil.py"']),
    "slip behind a dot.tar": (tar(member("./../evil.py")), ['"../evil.py"']),
    "slip.zip": (zip_file(plain("../evil.py")), ['"../evil.py"']),
    "slip with backslashes.zip": (zip_file(plain("x"), plain("..\\evil.py")), ["evil.py"]),
    "absolute.tar": (tar(member("/etc/cron.d/evil")), ['"/etc/cron.d/evil"', "relative"]),
    "absolute.zip": (zip_file(plain("/etc/evil")), ['"/etc/evil"']),
    "dot in the middle.tar": (tar(member("a/./b")), ['"a/./b"']),
    "no name.zip": (zip_file(plain("")), ["must not be empty"]),
    "link to absolute.tar": (tar(member("l", kind=tarfile.SYMTYPE, link="/etc/passwd")), ['"l"', '"/etc/passwd"']),
    "link outside.tar": (tar(member("d/l", kind=tarfile.SYMTYPE, link="../../x")), ['"d/l"', "leaves the tree"]),
    "link outside.zip": (zip_file(zip_link("l", "..")), ['"l"', "leaves the tree"]),
    "link to nothing.tar": (tar(member("l", kind=tarfile.SYMTYPE, link="")), ['"l"', "target"]),
    "write through a link.tar": (tar(member("d"), member("l", kind=tarfile.SYMTYPE, link="d"), member("l/x")), ['"l/x"', "link"]),
    "write through a link.zip": (zip_file(zip_link("l", "d"), plain("l/x")), ['"l/x"', "link"]),
    "link over a directory.tar": (tar(member("l/x"), member("l", kind=tarfile.SYMTYPE, link="d")), ['"l"', "below it"]),
    "below a file.tar": (tar(member("a"), member("a/b")), ['"a/b"', "file"]),
    "hard link.tar": (tar(member("a"), member("b", kind=tarfile.LNKTYPE, link="a")), ['"b"', "hard link"]),
    "hard link outside.tar": (tar(member("b", kind=tarfile.LNKTYPE, link="/etc/shadow")), ['"b"', "hard link"]),
    "character device.tar": (tar(member("null", kind=tarfile.CHRTYPE)), ['"null"', "device"]),
    "block device.tar": (tar(member("disk", kind=tarfile.BLKTYPE)), ['"disk"', "device"]),
    "pipe.tar": (tar(member("p", kind=tarfile.FIFOTYPE)), ['"p"', "pipe"]),
    "socket.zip": (zip_file(("s", b"", stat.S_IFSOCK | 0o644)), ['"s"']),
    "twice.tar": (tar(member("a", b"1"), member("a", b"2")), ['"a"', "twice"]),
    "twice, spelled differently.tar": (tar(member("a"), member("./a")), ['"a"', "twice"]),
    "directory twice.tar": (tar(member("d", kind=tarfile.DIRTYPE), member("d", kind=tarfile.DIRTYPE)), ['"d"', "twice"]),
    "twice.zip": (patched(zip_file(plain("a1", b"1"), plain("a2", b"2")), b"a2", b"a1"), ["a1"]),
    "not UTF-8.tar": (raw_name(tar(member("name.py"), form=tarfile.USTAR_FORMAT), "name.py", b"n\xff\xfe"), ["UTF-8"]),
    "not UTF-8.zip": (patched(zip_file(plain("name.py")), b"name.py", b"n\xff\xfee.py"), ["UTF-8"]),
    "terminal codes.tar": (tar(member("/\x1b[2J")), ["relative"]),
    "too deep.tar": (tar(member("d/" * 65 + "f")), ["deeper than 64"]),
    "long name.tar": (tar(member("/".join(["n" * 200] * 6))), ["longer than 1024"]),
    "long component.tar": (tar(member("n" * 256)), ["nnn"]),
    "bomb.tar.gz": (gzip.compress(tar(member("z", ZEROS))), ['"z"', "times its size"]),
    "bomb.tar.xz": (lzma.compress(tar(member("z", ZEROS))), ['"z"', "times its size"]),
    "bomb.zip": (zip_file(plain("z", ZEROS)), ['"z"', "times its size"]),
    "bomb of many.zip": (zip_file(*[plain(f"z{n}", ZEROS[:MIB]) for n in range(8)]), ["times its size"]),
    "much.tar": (tar(*[member(f"n{n}", NOISE) for n in range(3)]), ['"n2"', "more than 32 MiB"]),
    "large.tar": (tar(member("n", NOISE * 3)), ['"n"', "larger than 32 MiB"]),
    "truncated.tar": (tar(member("a", NOISE[:4096]))[:2048], ["runcated"]),
    "truncated.tar.gz": (gzip.compress(tar(member("a", NOISE[:65536])))[:30000], ["truncated"]),
    "truncated.zip": (GOOD_ZIP[:-30], ["format"]),
    "flipped.zip": (patched(zip_file(plain("a", b"aaaa"), method=zipfile.ZIP_STORED), b"aaaa", b"aaab"), ["CRC"]),
    "encrypted.zip": (patched(patched(GOOD_ZIP, b"PK\3\4\x14\0\0\0", b"PK\3\4\x14\0\1\0"), b"\x14\3\x14\0\0\0", b"\x14\3\x14\0\1\0"), ['"main.py"', "encrypted"]),
    "compressed twice.tar.gz": (gzip.compress(gzip.compress(GOOD)), ["more than once"]),
    "bzip2.tar": (bz2.compress(GOOD), ["format"]),
    "cpio.tar": (cpio(b"a") + cpio(b"TRAILER!!!") + bytes(512), ["format"]),
    "ar.tar": (b"!<arch>\na/              0           0     0     644     1         `\nx\n", ["format"]),
    "text.zip": (b"#!/bin/sh\necho no\n", ["format"]),
    "empty.tar": (tar(), ["empty"]),
    "nothing.tar": (b"", ["empty"]),
    "sizes that lie.zip": (patched(GOOD_ZIP, struct.pack("<L", 9), struct.pack("<L", 0x7FFFFFFF)), ['"main.py"', "larger than"]),
}  # fmt: skip


@both_callers
class HostileArchives:
    def setUp(self):
        # No sandbox was started; only the helper could be left, whose name begins with the program's.
        self.addCleanup(wait_until, lambda: not processes(executable=self.binary), 5, "the helper's end")

    def refuse(self, path, words, *flags):
        done = self.caisson("verify", "--json", *flags, path)
        text = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (2, b""), text)
        self.assertRegex(text, r"\Acaisson: [^\n]+\n\Z")
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertNotIn("crash", text)
        for word in words:
            self.assertIn(word, text)

    def test_each(self):
        for name, (data, words) in HOSTILE.items():
            with self.subTest(name):
                place = self.directory({name: data})
                before = sorted(place.rglob("*"))
                self.refuse(place / name, words)
                self.assertEqual(sorted(place.rglob("*")), before)

    def test_a_million_entries(self):
        self.refuse(self.directory({"many.tar.gz": many(1_000_000)}) / "many.tar.gz", ["more than 4096 entries"])

    def test_a_hole_of_a_terabyte(self):
        need_tool("tar", "tar")
        place = self.directory()
        with open(place / "hole", "wb") as file:
            file.truncate(1 << 40)
        subprocess.run(["tar", "--sparse", "-C", place, "-cf", place / "hole.tar", "hole"], check=True)
        self.give(place / "hole.tar")
        self.refuse(place / "hole.tar", ['"hole"', "larger than 32 MiB"])

    def test_an_archive_that_is_too_large(self):
        place = self.directory()
        with open(place / "a.tar", "wb") as file:
            file.write(GOOD)
            file.truncate(65 * MIB)
        self.give(place / "a.tar")
        self.refuse(place / "a.tar", ["larger than 64 MiB"])

    def test_what_is_no_file(self):
        place = self.directory()
        os.mkfifo(place / "pipe.tar")
        self.give(place / "pipe.tar")
        self.refuse(place / "pipe.tar", ["not a regular file"])


@both_callers
class GoodArchives:
    TREE = {
        "main.py": b"import os\nprint(open('data/\xc3\xa9.txt').read(), os.access('run.sh', os.X_OK), os.readlink('data/link'))\n",
        "data/\u00e9.txt": b"hello",
        "data/e\u0301.txt": b"another file: names are bytes",
        "run.sh": b"#!/bin/sh\n",
        "/".join(["deep"] * 60) + "/x": b"x",
        "long/" + "n" * 250: b"pax",
        "/".join(["l" * 200] * 4): b"longer",
        "blanks": b" " * 4096,
    }

    def tree(self):
        place = self.directory({f"tree/{name}": data for name, data in self.TREE.items()}) / "tree"
        self.give(place / "run.sh", 0o755)
        (place / "data/link").symlink_to("../main.py")
        (place / "empty").mkdir()
        return place

    def tar_of(self, tree, *, implied=False):
        members = []
        for path in sorted(tree.rglob("*")):
            name = path.relative_to(tree).as_posix()
            if path.is_symlink():
                members.append(member(name, kind=tarfile.SYMTYPE, link=os.readlink(path)))
            elif path.is_dir():
                if not implied or not any(path.iterdir()):
                    members.append(member("./" + name, kind=tarfile.DIRTYPE, mode=0o700))
            else:
                # Only "executable" is kept of a mode: neither set-user-id nor the owner.
                members.append(member(name, path.read_bytes(), mode=0o6755 if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else 0o600))
        return tar(member(".", kind=tarfile.DIRTYPE), *members)

    def zip_of(self, tree):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(tree.rglob("*")):
                name = path.relative_to(tree).as_posix()
                if path.is_symlink():
                    info = zipfile.ZipInfo(name)
                    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
                    archive.writestr(info, os.readlink(path))
                else:
                    archive.write(path, name)
        return out.getvalue()

    def digest(self, path, *flags):
        result = self.verify_path(path, *flags)
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "hello True ../main.py\n")
        return result["source_digest"]

    def test_an_archive_is_the_directory_it_was_made_of(self):
        tree = self.tree()
        bare = self.tar_of(tree)
        archives = {
            "a.tar": bare,
            "implied.tar": self.tar_of(tree, implied=True),
            "a.tar.gz": gzip.compress(bare),
            "a.tgz": gzip.compress(bare),
            "a.tar.xz": lzma.compress(bare),
            "a.zip": self.zip_of(tree),
        }
        if shutil.which("zstd"):
            archives["a.tar.zst"] = subprocess.run(["zstd", "-q", "-c"], input=bare, stdout=subprocess.PIPE, check=True).stdout
        expected = self.digest(tree)
        place = self.directory(archives)
        for name in archives:
            with self.subTest(name):
                self.assertEqual(self.digest(place / name), expected)

    def test_a_request_names_its_archive_by_hash(self):
        tree = self.tree()
        data = gzip.compress(self.tar_of(tree))
        sha256 = hashlib.sha256(data).hexdigest()
        place = self.directory(
            {
                f"store/{sha256}": data,
                "request.json": json.dumps({"source": {"archive": f"sha256:{sha256}"}}),
                "tar.json": json.dumps({"source": {"archive": {"sha256": sha256.upper(), "format": "tar"}}}),
                "zip.json": json.dumps({"source": {"archive": {"sha256": sha256, "format": "zip"}}}),
                "other.json": json.dumps({"source": {"archive": "sha256:" + "0" * 64}}),
            }
        )
        expected = self.digest(tree)
        for name in ("request.json", "tar.json"):
            self.assertEqual(self.digest(place / name, "--archives", place / "store"), expected)
        for name, word in (("zip.json", "zip file"), ("other.json", "No such file")):
            done = self.caisson("verify", place / name, "--archives", place / "store")
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr.decode())
        (place / "store" / sha256).write_bytes(data + b"\0")
        done = self.caisson("verify", place / "request.json", "--archives", place / "store")
        self.assertEqual(done.returncode, 2)
        self.assertIn("SHA-256", done.stderr.decode())

    def test_holes_are_zeros(self):
        need_tool("tar", "tar")
        tree = self.directory({"main.py": "import hashlib\nprint(hashlib.sha256(open('hole', 'rb').read()).hexdigest())\n"})
        with open(tree / "hole", "wb") as file:
            file.seek(512 * 1024)
            file.write(b"x" * 8192)
            file.truncate(MIB - 1)
        self.give(tree / "hole")
        expected = self.verify_path(tree)
        place = self.directory()
        for form in ("gnu", "pax"):
            subprocess.run(["tar", "--sparse", f"--format={form}", "-C", tree, "-cf", place / f"{form}.tar", "."], check=True)
            self.give(place / f"{form}.tar")
            result = self.verify_path(place / f"{form}.tar")
            self.assert_passes(result)
            self.assertEqual((result["stdout"], result["source_digest"]), (expected["stdout"], expected["source_digest"]))

    def test_without_the_helper(self):
        place = self.directory({"a.tar": GOOD})
        lonely = place / "caisson"
        shutil.copyfile(self.binary, lonely)
        self.give(lonely, 0o755)
        done = subprocess.run(self.as_caller(lonely, "verify", place / "a.tar"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 4)
        self.assertIn("install it beside", done.stderr.decode())


class Helper(unittest.TestCase):
    """The helper alone: it confines itself before it reads."""

    LIMITS = "4096,33554432,33554432,1024,64,100,1048576"

    def start(self, data, seals=SEALS):
        archive = os.memfd_create("archive", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, archive)
        os.write(archive, data)
        fcntl.fcntl(archive, 1033, seals)  # F_ADD_SEALS
        process = subprocess.Popen([workbench().intake, "any", self.LIMITS], stdin=archive, stdout=subprocess.PIPE, env={})

        def end():
            process.kill()
            process.wait()
            process.stdout.close()

        self.addCleanup(end)
        return process

    def test_it_is_confined(self):
        process = self.start(tar(member("n", NOISE[:MIB])))  # more than a pipe holds: it waits for its reader

        def status():
            lines = (line.partition(":") for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines())
            return {name: value.split() for name, _, value in lines}

        wait_until(lambda: status()["Seccomp"] == ["2"] and status()["State"][0] == "S", 20, "the helper's confinement")
        now = status()
        if os.geteuid() == 0:
            self.assertEqual((now["Uid"], now["Gid"], now["Groups"]), (["65534"] * 4, ["65534"] * 4, []))
        for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            self.assertEqual(now[name], ["0" * 16], name)
        self.assertEqual(now["NoNewPrivs"], ["1"])
        limits = pathlib.Path(f"/proc/{process.pid}/limits").read_text()
        for line in (r"Max open files +0 +0 ", r"Max processes +0 +0 ", r"Max file size +0 +0 ", r"Max cpu time +10 +11 "):
            self.assertRegex(limits, line)
        out, _ = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out[:1], out[-13:]), (0, b"f", b"." + bytes(12)))

    def test_an_archive_that_could_change_is_not_read(self):
        process = self.start(GOOD, seals=0)
        out, _ = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out[:1]), (0, b"?"))
        self.assertIn(b"not a sealed archive", out)

    def test_it_is_for_our_programs(self):
        run = subprocess.run([workbench().intake], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
        self.assertEqual((run.returncode, run.stdout), (2, b""))
        self.assertIn(b"caisson verify --help", run.stderr)


if __name__ == "__main__":
    unittest.main()
