"""Images: what they may be made of, what a sandbox shows of them, and what hostile ones cannot do.

CAISSON_MUST_RUN names the kinds that may not be skipped: image-skopeo, image-engine, image-debian. CAISSON_IMAGE_DEBIAN=1
also builds a Debian root with mmdebstrap, which takes a minute and the network.
"""

import gzip
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from caisson import both_callers, skip, validate, wait_until  # noqa: E402
from images import (  # noqa: E402
    ARCHITECTURE, Image, archive_of, directory, entry, hard_link, make_root, sha256, symlink, tar_of, tar_of_tree,
)  # fmt: skip
from support.service import Service  # noqa: E402

MIB = 1 << 20
HIDDEN = "/tmp/caisson-image-escape"  # nothing may ever appear there


class ImageCase:
    """A store of its own for each test."""

    def setUp(self):
        super().setUp()
        self.store = self.directory()
        self.addCleanup(self.remove_store)

    def remove_store(self):
        for name in self.listed():
            if name["name"]:
                self.image("rm", name["name"])
        self.image("gc")

    def image(self, *arguments, timeout=300):
        return self.caisson("image", *arguments, env={"CAISSON_IMAGES": str(self.store)}, timeout=timeout)

    def listed(self):
        return json.loads(self.image("list", "--json").stdout)

    def write(self, name, data):
        path = self.directory() / name
        path.write_bytes(data)
        return self.give(path)

    def write_files(self, files):
        return self.directory(files)

    def import_(self, source, name="image", *flags):
        done = self.image("import", "--json", *flags, name, source)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return json.loads(done.stdout)

    def assert_refused(self, source, *words, flags=()):
        before = self.tree_names()
        done = self.image("import", *flags, "refused", source)
        self.assertEqual(done.returncode, 2, (done.stdout, done.stderr))
        for word in words:
            self.assertIn(word, done.stderr.decode(errors="replace"))
        self.assertNotIn("refused", [one["name"] for one in self.listed()])
        self.assertEqual(self.tree_names(), before, "something is left of a refused image")
        self.assertFalse(os.path.lexists(HIDDEN))

    def tree_names(self):
        return sorted(str(path) for part in ("trees", "tmp") for path in (self.store / part).glob("*"))

    def tree(self, digest):
        return self.store / "trees" / digest.replace(":", "-") / "root"

    def start(self, *command, flags=(), name="image", **options):
        return self.caisson("run", "--image", name, *flags, "--", *command, env={"CAISSON_IMAGES": str(self.store)},
                            **options)  # fmt: skip

    def output(self, *command, **options):
        done = self.start(*command, **options)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode()

    def result(self, *command, flags=(), **options):
        """The result document of a run."""
        path = self.directory() / "result.json"
        self.start(*command, flags=("--result", path, *flags), **options)
        return self.read_result(path.read_text())

    def root(self):
        """A small root file system of the caller's."""
        root = make_root(self.directory() / "root")
        for path in [root, *root.rglob("*")]:
            self.give(path)
        return root


@both_callers
class Importing(ImageCase):
    def test_every_form_of_one_image(self):
        root = self.root()
        tar = tar_of_tree(root)
        digest = self.import_(root)["digest"]
        self.assertRegex(digest, "^sha256:[0-9a-f]{64}$")
        for name, data in (("a.tar", tar), ("a.tar.gz", gzip.compress(tar, 1))):
            with self.subTest(form=name):
                self.assertEqual(self.import_(self.write(name, data), name)["digest"], digest)
        image = Image(tar, config={"Env": ["A=b"]})
        layout = self.import_(self.write_files(image.oci_files()), "layout")["digest"]
        self.assertNotEqual(layout, digest, "the configuration belongs to the image")
        for name, files in (("oci", image.oci_files()), ("docker", image.docker_files())):
            with self.subTest(form=name):
                self.assertEqual(self.import_(self.write(f"{name}.tar", archive_of(files)), name)["digest"], layout)
        self.assertEqual(len(self.tree_names()), 2, "equal images are kept once")
        # What a link of the archive leads to, as Docker saves a layer that occurs twice.
        files = Image(tar_of(entry("a", b"1")), tar_of(entry("a", b"1"))).docker_files()
        manifest = json.loads(files["manifest.json"])
        first, second = manifest[0]["Layers"]
        del files[second]
        linked = tar_of(*(entry(name, data) for name, data in files.items()), symlink(second, f"../{first}"))
        self.assertEqual(self.import_(self.write("twice.tar", linked), "twice")["files"], 1)

    def test_the_digest_does_not_depend_on_time_order_or_owner(self):
        one = tar_of(directory("d"), entry("d/a", b"1", mtime=5), entry("b", b"2", mode=0o4755))
        two = tar_of(entry("./b", b"2", mode=0o700, mtime=77), entry("d/a", b"1", mode=0o600))
        self.assertEqual(self.import_(self.write("1.tar", one), "one")["digest"],
                         self.import_(self.write("2.tar", two), "two")["digest"])  # fmt: skip
        # Fixed for ever: the same archive has this digest on every machine.
        self.assertEqual(self.listed()[0]["digest"],
                         "sha256:" + sha256(b"caisson-image 1\0"
                                            b'{"command":[],"entrypoint":[],"env":[],"user":"","working_directory":""}\0'
                                            + b"".join(b"%b\0" % line for line in (
                                                b"x " + sha256(b"2").encode() + b" b", b"d - d",
                                                b"f " + sha256(b"1").encode() + b" d/a"))))  # fmt: skip

    def test_list_show_rm_gc_export(self):
        root = self.root()
        shown = self.import_(root, "one")
        self.import_(root, "two")
        self.assertEqual([one["name"] for one in self.listed()], ["one", "two"])
        self.assertEqual(json.loads(self.image("show", "one").stdout), shown | {"name": "one"})
        self.assertEqual(json.loads(self.image("show", shown["digest"]).stdout)["digest"], shown["digest"])
        self.assertEqual(self.image("show", "three").returncode, 1)
        self.assertEqual(self.image("rm", "three").returncode, 1)
        archive = self.directory() / "out.tar"
        self.assertEqual(self.image("export", "one", archive).returncode, 0)
        self.assertEqual(self.image("export", "one", archive).returncode, 2, "an existing file is not replaced")
        self.assertEqual(self.import_(archive, "again")["digest"], shown["digest"])
        with tarfile.open(archive) as tar:
            names = tar.getnames()
        self.assertLessEqual({"oci-layout", "index.json", "manifest.json"}, set(names))
        for name in ("one", "two"):
            self.assertEqual(self.image("rm", name).returncode, 0)
        self.assertIn(b'"removed": 0', self.image("gc", "--json").stdout)
        self.assertEqual(self.image("rm", "again").returncode, 0)
        self.assertIn(b'"removed": 1', self.image("gc", "--json").stdout)
        self.assertEqual(self.tree_names(), [])
        for name in (".x", "a/b", "..", "", "sha256:1", "venv:x", "a" * 129, "docker://x"):
            with self.subTest(name=name):
                self.assertEqual(self.image("import", name, root).returncode, 2)

    def test_layers(self):
        lower = tar_of(
            directory("etc"), entry("etc/old", b"lower"), entry("etc/kept", b"lower"), directory("opt/dir/deep"),
            entry("opt/dir/deep/file", b"lower"), directory("usr/lib"), symlink("lib", "usr/lib"), entry("becomes", b"file"),
            directory("was"), entry("was/below", b"x"), entry("shared", b"same"), hard_link("linked", "shared"),
            symlink("up", "../../../usr"), entry("gone/a", b"1"), entry("gone/b", b"2"),
        )  # fmt: skip
        upper = tar_of(
            entry("etc/.wh.old"), entry("opt/dir/new", b"upper"), entry("opt/dir/.wh..wh..opq"), entry("lib/through", b"link"),
            directory("becomes"), entry("becomes/file", b"in it"), entry("was", b"a file now"), entry("shared", b"changed"),
            entry("up/climbs", b"stays in"), entry(".wh.gone"), entry(".wh..wh.plnk", b"of AUFS"), entry("etc/.wh.never", b""),
            hard_link("etc/again", "linked"),
        )  # fmt: skip
        digest = self.import_(self.write("i.tar", archive_of(Image(lower, upper).oci_files())))["digest"]
        tree = self.tree(digest)
        found = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file() and not path.is_symlink()}  # fmt: skip
        self.assertEqual(found, {"etc/kept": "lower", "etc/again": "same", "opt/dir/new": "upper", "usr/lib/through": "link",
                                 "becomes/file": "in it", "was": "a file now", "shared": "changed", "linked": "same",
                                 "usr/climbs": "stays in"})  # fmt: skip
        # A layer that comes twice changes nothing.
        again = self.import_(self.write("j.tar", archive_of(Image(lower, lower, upper, upper).oci_files())), "again")
        self.assertEqual(again["files"], len(list(tree.rglob("*"))))

    def test_wrong_documents_and_digests(self):
        def changed(change, form="oci", **options):
            image = Image(tar_of(entry("a", b"1")), **options)
            files = image.oci_files() if form == "oci" else image.docker_files()
            change(files)
            return self.write("i.tar", archive_of(files))

        layer = "blobs/sha256/" + sha256(Image(tar_of(entry("a", b"1"))).blobs[0])

        def edit(name, old, new):
            def change(files):
                self.assertIn(old, files[name])
                files[name] = files[name].replace(old, new)

            return change

        def swap_layer(files):
            files[layer] = gzip.compress(tar_of(entry("a", b"2")), 1, mtime=0)

        self.assert_refused(changed(swap_layer), "SHA-256")
        self.assert_refused(changed(lambda files: files.update({layer: files[layer] + b"x"})), "bytes")
        self.assert_refused(changed(lambda files: files.pop(layer)), "No such file")
        self.assert_refused(changed(edit("index.json", b'"size": ', b'"size": 1')), "bytes")
        self.assert_refused(changed(edit("index.json", b"sha256:", b"sha512:")), "sha256")
        self.assert_refused(changed(edit("index.json", b"sha256:", b"sha256:../../../../../../etc/passwd")), "digest")
        self.assert_refused(changed(lambda files: files.update({"index.json": b"{}"})), "manifests")
        self.assert_refused(changed(lambda files: files.update({"index.json": b"[" * 100000})), "index.json")
        self.assert_refused(changed(lambda files: files.update({"index.json": b'{"manifests": []}'})), ARCHITECTURE)
        other = "arm64" if ARCHITECTURE == "amd64" else "amd64"
        self.assert_refused(changed(lambda files: None, architecture=other), other)
        self.assert_refused(changed(lambda files: None, system="windows"), "windows")
        wrong = Image(tar_of(entry("a", b"1")))
        wrong.diff_ids[0] = "sha256:" + "0" * 64
        self.assert_refused(self.write("i.tar", archive_of(wrong.oci_files())), "unpacked")
        wrong.diff_ids.append(wrong.diff_ids[0])
        self.assert_refused(self.write("i.tar", archive_of(wrong.oci_files())), "layers")
        name = next(name for name in Image(tar_of(entry("a", b"1"))).docker_files() if name.endswith("layer.tar"))
        self.assert_refused(changed(lambda files: files.update({name: tar_of(entry("a", b"2"))}), "docker"), "SHA-256")
        self.assert_refused(changed(edit("manifest.json", name.encode(), b"../../../etc/passwd"), "docker"), "Layers")
        self.assert_refused(changed(edit("manifest.json", b'"Layers": ["', b'"Layers": ["/'), "docker"), "Layers")

    def test_hostile_archives(self):
        def refused(*entries, words=(), flags=()):
            self.assert_refused(self.write("h.tar", tar_of(*entries)), *words, flags=flags)
            self.assert_refused(self.write("h.tar", archive_of(Image(tar_of(*entries)).oci_files())), *words, flags=flags)

        refused(entry("../escape", b"x"), words=["leads out"])
        refused(entry("a/../../escape", b"x"), words=["leads out"])
        refused(symlink("../escape", "/tmp"), words=["leads out"])
        refused(hard_link("../escape", "a"), words=["leads out"])
        refused(entry("a", b"1"), hard_link("b", "../../../etc/passwd"), words=["leads out"])
        refused(entry("a", b"1"), entry("a/b", b"2"), words=["a file"])
        refused(symlink("a", "b"), symlink("b", "a"), entry("a/x", b"1"), words=["links"])
        refused(entry("/".join(["d"] * 200), b"1"), words=["nested"])
        refused(entry("n" * 300, b"1"), words=["too long"])
        refused(*(entry(str(i)) for i in range(20)), words=["more than 10"], flags=("--max-files", "10"))
        refused(entry("big", bytes(2 * MIB)), words=["larger"], flags=("--max-size", "1M"))
        refused(*(entry(str(i), bytes(MIB // 2)) for i in range(5)), words=["more than"], flags=("--max-size", "1M"))
        refused(words=["empty"])
        self.assert_refused(self.write("h.tar", b"no archive at all" * 100))
        self.assert_refused(self.write("h.tar", tar_of(entry("a", b"1" * 5000))[:3000]))
        self.assert_refused(self.write("h.tar", gzip.compress(gzip.compress(tar_of(entry("a", b"1"))))), "more than once")
        bomb = gzip.compress(tar_of(entry("bomb", bytes(400 * MIB))), 9)
        self.assert_refused(self.write("bomb.tar.gz", bomb), "times its size")
        self.assert_refused("/dev/zero", "neither")
        self.assert_refused("/nonexistent", "No such file")
        self.assert_refused(self.directory(), "empty")

    def test_links_stay_in_the_tree(self):
        """Entries through links that lead out of the tree are written inside, as if the tree were all there is."""
        entries = (
            symlink("out", "/tmp"), entry("out/caisson-image-escape", b"x"), symlink("conf", "/etc"),
            entry("conf/caisson-image-escape", b"x"), symlink("up", "../../../../../../../../tmp"),
            entry("up/caisson-image-escape", b"y"), symlink("root", "/proc/self/root"), symlink("cwd", "/proc/self/cwd"),
            entry("root/tmp/caisson-image-escape", b"x"), entry("cwd/caisson-image-escape", b"x"),
            symlink("passwd", "/etc/passwd"), hard_link("mine", "passwd"), symlink("replaced", HIDDEN), entry("replaced", b"z"),
        )  # fmt: skip
        for form in ("plain", "layers"):
            with self.subTest(form=form):
                tar = tar_of(*entries)
                data = tar if form == "plain" else archive_of(Image(tar_of(*entries[:3]), tar_of(*entries[3:])).oci_files())
                image = self.import_(self.write("l.tar", data), form)
                self.assertFalse(os.path.lexists(HIDDEN))
                self.assertFalse(os.path.lexists("/etc/caisson-image-escape"))
                tree = self.tree(image["digest"])
                self.assertEqual((tree / "tmp/caisson-image-escape").read_text(), "y")
                self.assertTrue((tree / "mine").is_symlink(), "a hard link to a link is the link")
                self.assertEqual((tree / "replaced").read_text(), "z")
                self.assertEqual(self.start("true", name=form).returncode, 127)

    def test_what_is_left_out_and_dropped(self):
        image = self.import_(self.write("d.tar", tar_of(
            entry("dev/null", kind=tarfile.CHRTYPE, device=(1, 3)), entry("disk", kind=tarfile.BLKTYPE, device=(254, 0)),
            entry("pipe", kind=tarfile.FIFOTYPE), entry("suid", b"x", mode=0o6755), entry("private", b"x", mode=0o600),
            directory("closed"), entry("closed/file", b"x", mode=0o000), hard_link("dangling", "nowhere/else"),
            entry("name-\udcff", b"x"),
        )))  # fmt: skip
        self.assertEqual(image["left_out_count"], 4)
        self.assertIn("device", " ".join(image["left_out"]))
        tree = self.tree(image["digest"])
        for path in [tree, *tree.rglob("*")]:
            info = path.lstat()
            self.assertEqual(info.st_mode & 0o7222, 0, path)
            self.assertEqual(info.st_uid, self.caller_id, path)
            self.assertEqual(info.st_mode & 0o444, 0o444, path)
        self.assertIn(b"name-\xff", os.listdir(os.fsencode(tree)))

    def test_many_files(self):
        entries = [directory(f"d{i}") for i in range(100)]
        entries += [entry(f"d{i % 100}/f{i}", b"") for i in range(100_000)]
        image = self.import_(self.write("many.tar.gz", gzip.compress(tar_of(*entries), 1)))
        self.assertEqual(image["files"], 100_100)
        self.assertEqual(self.image("rm", "image").returncode, 0)
        self.assertEqual(self.image("gc").returncode, 0)
        self.assertEqual(self.tree_names(), [])

    def test_an_import_that_was_killed(self):
        noise = os.urandom(64 * MIB)
        source = self.write("noise.tar", tar_of(entry("noise", noise)))
        process = self.popen("image", "import", "killed", source, env={"CAISSON_IMAGES": str(self.store)},
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        wait_until(lambda: bool(list(self.store.glob("tmp/*/root/noise"))) or process.poll() is not None, 30, "the import")
        process.kill()
        process.wait()
        if not list(self.store.glob("tmp/*")):
            self.skipTest("it was faster than the signal")
        self.assertEqual(self.listed(), [])
        wait_until(lambda: self.image("gc").returncode == 0 and (not list(self.store.glob("tmp/*"))), 10, "the draft")


@both_callers
class Running(ImageCase):
    def test_the_programs_and_files_are_the_images(self):
        self.import_(self.root())
        self.assertEqual(self.output("sh", "-c", "ls -d /usr/bin/python3 /usr/share 2>/dev/null; cat /opt/tool/data"),
                         "data of the image\n")  # fmt: skip
        self.assertEqual(self.output("cat", "/etc/tool.conf", "/var/lib/tool/state"), "of the image\nstate of the image\n")
        self.assertIn("user:x:1000", self.output("cat", "/etc/passwd"))
        self.assertNotIn("planted", self.output("cat", "/etc/passwd"))
        self.assertEqual(self.output("ls", "/home"), "")
        self.assertNotEqual(self.start("cat", "/dev/planted").returncode, 0)
        self.assertEqual(self.output("id", "-u").strip(), "1000")
        self.assertEqual(self.output("sh", "-c", "echo x >/var/tmp/y; cat /tmp/y"), "x\n")
        for path in ("/usr/share/doc", "/etc/alternatives", "/etc/ssl", "/boot"):
            self.assertNotEqual(self.start("ls", path).returncode, 0, path)

    def test_the_image_cannot_be_changed(self):
        image = self.import_(self.root())
        before = subprocess.run(["find", self.tree(image["digest"]), "-printf", "%p %m %s %T@\n"], capture_output=True).stdout
        script = "; ".join(f"echo x >{path}" for path in ("/opt/tool/data", "/usr/bin/new", "/etc/new", "/var/lib/new", "/new"))
        result = self.result("sh", "-c", f"chmod 777 /opt/tool/data /usr/bin /etc/tool.conf; {script}; exit 0")
        self.assertEqual((result["status"], result["failure_class"]), ("fail", "FilesystemWriteViolation"))
        after = subprocess.run(["find", self.tree(image["digest"]), "-printf", "%p %m %s %T@\n"], capture_output=True).stdout
        self.assertEqual(after, before)

    def test_the_result_names_it(self):
        image = self.import_(self.root())
        result = self.result("true")
        self.assertEqual(result["image"], {"name": "image", "digest": image["digest"]})
        self.assertEqual(result["isolation"]["start"], "cold")
        self.assertEqual(result["policy"]["system_paths"], [])
        self.assertEqual(self.result("true", name=image["digest"])["image"]["digest"], image["digest"])
        checks = [{"name": "c", "tier": "run", "argv": ["cat", "/opt/tool/data", "file"]}]
        request = {"source": {"files": {"file": "of the source\n"}}, "image": "image", "checks": checks}
        document = self.directory({"request.json": json.dumps(request)}) / "request.json"
        env = {"CAISSON_IMAGES": str(self.store)}
        verified = self.verify_path(document, env=env)
        self.assertEqual((verified["status"], verified["stdout"]), ("pass", "data of the image\nof the source\n"))
        self.assertEqual(verified["image"], {"name": "image", "digest": image["digest"]})
        document.write_text(json.dumps(request | {"image": "missing"}))
        self.assertEqual(self.verify_path(document, env=env)["failure_class"], "PolicyRejected")
        document.write_text(json.dumps(request | {"image": "../x"}))
        self.assertEqual(self.caisson("verify", document, env=env).returncode, 2)
        self.assertEqual(self.start("true", name="missing").returncode, 125)
        plan = self.start("true", flags=["--dry-run"])
        self.assertEqual(json.loads(plan.stdout)["image"], {"name": "image", "digest": image["digest"]})

    def test_configuration(self):
        config = {"Env": ["PATH=/opt/bin:/usr/bin", "HOME=/home/app", "GREETING=hello"], "WorkingDir": "/opt/tool",
                  "Entrypoint": ["sh", "-c"], "Cmd": ["echo $GREETING $HOME $PATH; cat data"], "User": "app"}  # fmt: skip
        source = self.write("i.tar", archive_of(Image(tar_of_tree(self.root()), config=config).oci_files()))
        done = self.image("import", "image", source)
        self.assertIn(b"USER app is not honoured", done.stderr)
        done = self.caisson("run", "--image", "image", env={"CAISSON_IMAGES": str(self.store)})
        self.assertEqual(done.stdout, b"hello /scratch /opt/bin:/usr/bin\ndata of the image\n", done.stderr)
        self.assertEqual(self.output("sh", "-c", "pwd", flags=["-w", "/workspace"]), "/workspace\n")
        self.assertEqual(self.output("sh", "-c", "pwd", flags=["--workspace", self.directory()]), "/workspace\n")
        self.assertEqual(self.output("sh", "-c", "echo $GREETING", flags=["-e", "GREETING=bye"]), "bye\n")
        self.assertEqual(self.start("true", flags=["-w", "/opt/../etc"]).returncode, 125)
        self.import_(self.root(), "plain")
        done = self.caisson("run", "--image", "plain", env={"CAISSON_IMAGES": str(self.store)})
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"no entry point", done.stderr)

    def test_mounts_beside_it(self):
        self.import_(self.root())
        source = self.directory({"file": "mounted\n"})
        for target in ("/data", "/home/mine", "/srv/a/b"):
            self.assertEqual(self.output("cat", f"{target}/file", flags=["-v", f"{source}:{target}"]), "mounted\n")
        for target in ("/usr/bin", "/opt/tool", "/opt/new", "/opt", "/bin", "/var/lib", "/etc/x"):
            done = self.start("true", flags=["-v", f"{source}:{target}"])
            self.assertEqual(done.returncode, 125, target)

    def test_runs_share_one_tree_which_stays_while_it_is_used(self):
        image = self.import_(self.root())
        runs = [
            self.popen("run", "--image", "image", "--", "sh", "-c", "stat -L -c %d:%i /usr/bin/cat; read x; cat /opt/tool/data",
                       env={"CAISSON_IMAGES": str(self.store)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(2)
        ]  # fmt: skip
        identities = {run.stdout.readline() for run in runs}
        info = (self.tree(image["digest"]) / "usr/bin/cat").stat()
        self.assertEqual(identities, {f"{info.st_dev}:{info.st_ino}\n".encode()}, "one file, so one page cache")
        self.assertEqual(self.image("rm", "image").returncode, 0)
        self.assertIn(b'"in_use": 1', self.image("gc", "--json").stdout)
        for run in runs:
            out, _ = run.communicate(b"\n", timeout=60)
            self.assertEqual((run.returncode, out), (0, b"data of the image\n"))
        wait_until(lambda: json.loads(self.image("gc", "--json").stdout)["in_use"] == 0, 20, "the lock")
        self.assertEqual(self.tree_names(), [])

    def test_hostile_top_directories(self):
        programs = [(entry_, data) for entry_, data in self.entries_of(self.root())]
        hostile = [
            symlink("home", "/proc/1/root"), symlink("srv", "/../../../../etc"), symlink("mnt", "mnt"), symlink("root", "/tmp"),
            entry("planted", b"a file of the image\n"), symlink("sys", "/usr"), entry("scratch/x", b"1"),
            entry("workspace/x", b"1"), entry("run/x", b"1"), entry(".cover/empty/x", b"1"),
        ]  # fmt: skip
        dropped = {"home", "run"}
        kept = [(info, data) for info, data in programs if info.name.split("/")[0] not in dropped]
        self.import_(self.write("t.tar", tar_of(*kept, *hostile)))
        self.assertEqual(self.output("cat", "/planted"), "a file of the image\n")
        self.assertEqual(self.output("sh", "-c", "ls -A /scratch /workspace /run /tmp").replace("\n", " ").split(),
                         ["/run:", "/scratch:", "/tmp:", "/workspace:"])  # fmt: skip
        self.assertNotEqual(self.start("ls", "/.cover").returncode, 0)
        self.assertNotIn("root:x:0:0:root:/root:/bin/bash", self.start("cat", "/srv/passwd").stdout.decode())
        for link in ("etc", "var"):
            entries = [(info, data) for info, data in kept if info.name.split("/")[0] != link]
            self.import_(self.write("t.tar", tar_of(*entries, symlink(link, "/usr"))), link)
            self.assertIn("user:x:1000", self.output("cat", "/etc/passwd", name=link))

    @staticmethod
    def entries_of(root):
        with tarfile.open(fileobj=io.BytesIO(tar_of_tree(root))) as archive:
            for info in archive:
                info.name = info.name.removeprefix("./")
                if info.name != ".":
                    yield info, archive.extractfile(info).read() if info.isreg() else b""

    def test_virtual_environments(self):
        top = self.directory()
        made = subprocess.run(self.as_caller("/usr/bin/python3", "-m", "venv", "--without-pip", top / "env"),
                              capture_output=True, cwd=top)  # fmt: skip
        if made.returncode != 0:
            skip("image-venv", made.stderr.decode() + made.stdout.decode())
        package = next((top / "env/lib").glob("python3*/site-packages")) / "of_the_environment.py"
        package.write_text("NAME = 'here'\n")
        self.give(package)
        program = "import of_the_environment, sys; print(of_the_environment.NAME, sys.prefix)"
        name = f"venv:{top / 'env'}"
        self.assertEqual(self.output("python", "-c", program, name=name), f"here {top / 'env'}\n")
        result = self.result("python3", "-c", program, name=name)
        self.assertEqual(result["image"], {"name": name, "digest": None})
        source = self.directory({"main.py": "import of_the_environment\n"})
        self.assert_passes(self.verify_path(source / "main.py", "--image", name))
        self.assertEqual(self.start("true", name=f"venv:{self.directory()}").returncode, 125)
        self.assertEqual(self.start("sh", "-c", f"echo x >{package}", name=name).returncode, 2)


@both_callers
class Tools(ImageCase):
    """Archives that other tools make."""

    def skopeo(self, *arguments, env=None):
        if shutil.which("skopeo") is None:
            skip("image-skopeo", "skopeo is not installed")
        return subprocess.run(self.as_caller("skopeo", "--insecure-policy", "copy", "--quiet", *arguments), capture_output=True,
                              env=self.environment(env), cwd=self.home)  # fmt: skip

    def test_skopeo_and_a_registry(self):
        image = Image(tar_of_tree(self.root()), tar_of(entry("opt/tool/data", b"replaced\n")), config={"Env": ["A=b"]})
        layout = self.write_files(image.oci_files())
        digest = self.import_(layout)["digest"]
        out = self.directory()
        for form in ("docker-archive", "oci-archive"):
            with self.subTest(form=form):
                done = self.skopeo(f"oci:{layout}", f"{form}:{out}/{form}.tar:test:latest")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.import_(out / f"{form}.tar", form)["digest"], digest)
        exported = self.directory() / "exported.tar"
        self.assertEqual(self.image("export", "image", exported).returncode, 0)
        done = self.skopeo(f"oci-archive:{exported}", f"dir:{out}/copied")
        self.assertEqual(done.returncode, 0, done.stderr)
        registry = next((path for name in ("docker-registry", "registry") if (path := shutil.which(name))), None)
        if registry is None:
            skip("image-skopeo", "docker-registry is not installed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        top = self.directory({
            "registry.yml": f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {out}/registry}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
            ".config/containers/registries.conf": f'[[registry]]\nlocation = "127.0.0.1:{port}"\ninsecure = true\n',
        })  # fmt: skip
        server = subprocess.Popen(self.as_caller(registry, "serve", top / "registry.yml"), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, env=self.environment())  # fmt: skip
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, 20, "the registry")
        env = {"HOME": str(top), "XDG_RUNTIME_DIR": str(top)}  # where skopeo looks for its configuration
        done = self.skopeo(f"oci:{layout}", f"docker://127.0.0.1:{port}/test:latest", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.caisson("image", "import", "--json", "pulled", f"docker://127.0.0.1:{port}/test:latest",
                            env=env | {"CAISSON_IMAGES": str(self.store)}, timeout=120)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["digest"], digest)
        self.assertEqual(self.output("cat", "/opt/tool/data", name="pulled"), "replaced\n")
        done = self.caisson("image", "import", "none", f"docker://127.0.0.1:{port}/none:latest",
                            env=env | {"CAISSON_IMAGES": str(self.store)}, timeout=120)  # fmt: skip
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(self.tree_names()), 1)

    def test_an_engine(self):
        engine = next((name for name in ("docker", "podman") if shutil.which(name)), None)
        if engine is None or subprocess.run([engine, "info"], capture_output=True).returncode != 0:
            skip("image-engine", "neither docker nor podman runs here")
        tag = f"caisson-image-test-{os.getpid()}"
        root = self.root()
        (root / "Dockerfile").write_text("FROM scratch\nCOPY . /\nRUN [\"/usr/bin/sh\", \"-c\", \"echo built >/built\"]\n"
                                         "ENV A=b\nWORKDIR /opt/tool\nENTRYPOINT [\"cat\", \"/built\"]\n")  # fmt: skip
        built = subprocess.run([engine, "build", "-q", "-t", tag, root], capture_output=True)
        self.assertEqual(built.returncode, 0, built.stderr)
        self.addCleanup(subprocess.run, [engine, "rmi", "-f", tag], capture_output=True)
        archive = self.directory() / "saved.tar"
        saved = subprocess.run([engine, "save", "-o", archive, tag], capture_output=True)
        self.assertEqual(saved.returncode, 0, saved.stderr)
        self.give(archive)
        self.import_(archive)
        done = self.caisson("run", "--image", "image", env={"CAISSON_IMAGES": str(self.store)})
        self.assertEqual(done.stdout, b"built\n", done.stderr)

    def test_debian(self):
        if not os.environ.get("CAISSON_IMAGE_DEBIAN"):
            skip("image-debian", "CAISSON_IMAGE_DEBIAN is not set")
        if shutil.which("mmdebstrap") is None:
            skip("image-debian", "mmdebstrap is not installed")
        archive = self.directory() / "debian.tar"
        made = subprocess.run(["mmdebstrap", "--variant=minbase", "--include=python3-minimal,libpython3-stdlib", "bookworm",
                               archive], capture_output=True)  # fmt: skip
        self.assertEqual(made.returncode, 0, made.stderr)
        self.give(archive)
        self.import_(archive)
        self.assertIn("bookworm", self.output("cat", "/etc/os-release"))
        source = self.directory({"main.py": "import json, ssl, sqlite3, subprocess\nprint(6 * 7)\n"})
        result = self.verify_path(source / "main.py", "--image", "image", env={"CAISSON_IMAGES": str(self.store)})
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "42\n")


class InAService(unittest.TestCase):
    def test_a_job_names_an_image_of_the_service(self):
        with Service() as service:
            store = service.state / "images"
            root = make_root(service.root / "root")
            done = subprocess.run([service.programs / "caisson", "image", "import", "--json", "tools", root],
                                  env=os.environ | {"CAISSON_IMAGES": str(store)}, capture_output=True)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            digest = json.loads(done.stdout)["digest"]
            checks = [{"name": "c", "tier": "run", "argv": ["cat", "/opt/tool/data"]}]
            for image, state in (("tools", "succeeded"), (digest, "succeeded"), ("missing", "rejected")):
                with self.subTest(image=image):
                    job = service.submit("x", image=image, checks=checks).json["job_id"]
                    service.wait_for(job, [state])
                    result = service.request("GET", f"/v1/jobs/{job}/result").json
                    validate(result, "verification_result.schema.json")
                    if state == "succeeded":
                        self.assertEqual(result["stdout"], "data of the image\n")
                        self.assertEqual(result["image"], {"name": image, "digest": digest})


if __name__ == "__main__":
    unittest.main()
