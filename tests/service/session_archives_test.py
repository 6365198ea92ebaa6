"""Trees of agent sessions as tar files, out and in, against a real caissond and real supervisors."""

import io
import json
import os
import pathlib
import re
import sys
import tarfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sessions_test  # noqa: E402


class Archives(sessions_test.SessionCase):
    def archive(self, *entries, mode="w", **options):
        """A tar file of (name, content | TarInfo changes) pairs."""
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode=mode, **options) as tar:
            for name, content in entries:
                info = tarfile.TarInfo(name)
                if isinstance(content, dict):
                    for key, value in content.items():
                        setattr(info, key, value)
                    tar.addfile(info, io.BytesIO(b"x" * info.size))
                else:
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return held.getvalue()

    def put(self, service, session, data, path="/workspace"):
        return service.request("PUT", f"/v1/sessions/{session}/archive?path={path}", data)

    def get(self, service, session, path="/workspace"):
        answer = service.request("GET", f"/v1/sessions/{session}/archive?path={path}")
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "application/x-tar"), answer.body[:500])
        return answer.body

    def test_a_tree_goes_out_and_in_again(self):
        service = self.serve()
        session = self.open(service, files={"from/base": "base"})
        long_name = "n" * 200 + "/" + "m" * 180
        self.run_in(service, session, command=f"mkdir -p empty {long_name}; head -c 3000000 /dev/urandom > large; "
                    f"echo deep > {long_name}/file; ln -s from/base link; ln -s {'t' * 150} longlink; printf run > tool; "
                    "chmod 755 tool; mkfifo pipe; echo no > shut; chmod 0 shut; printf x > \"$(printf 'odd\\377\\nx')\"; "
                    "printf 0123 > exact; truncate -s 512 exact; touch -d @1000000000 tool")
        data = self.get(service, session)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = {member.name: member for member in tar.getmembers()}
            self.assertEqual(set(members), {"empty", "exact", "from", "from/base", "large", "link", "longlink", "n" * 200, long_name,
                                            f"{long_name}/file", "odd\udcff\nx", "tool"})
            self.assertEqual((members["tool"].mode, members["tool"].mtime), (0o755, 1000000000))
            self.assertEqual((members["longlink"].linkname, members["link"].issym()), ("t" * 150, True))
            self.assertEqual(tar.extractfile("from/base").read(), b"base")
            self.assertEqual(len(tar.extractfile("large").read()), 3000000)
        self.assertEqual(len(data) % 512, 0)
        events = [json.loads(line) for line in service.request("GET", f"/v1/sessions/{session}/events").body.splitlines()]
        (out,) = [event for event in events if event["type"] == "file_out"]
        self.assertEqual(out["left_out"], 2)
        copy = self.open(service)
        put = self.put(service, copy, data, "/tmp/copy")
        self.assertEqual((put.status, put.json["left_out"]), (200, []), put.body)
        show = "find . -printf '%y %m %p %l\\n' | grep -v 'pipe\\|shut' | sort; find . -type f ! -name shut -exec sha256sum {} + | sort"
        outputs = [self.run_in(service, one, command=show, cwd=cwd) for one, cwd in ((session, "/workspace"), (copy, "/tmp/copy"))]
        for output in outputs:
            output["stdout"] = re.sub(r"^d \d+ \. $", "", output["stdout"], flags=re.M)
        self.assertEqual(outputs[0]["stdout"], outputs[1]["stdout"])
        # One file, or what a link leads to.
        for path, names in [("/workspace/tool", ["tool"]), ("/workspace/from", ["base"])]:
            with tarfile.open(fileobj=io.BytesIO(self.get(service, session, path))) as tar:
                self.assertEqual(tar.getnames(), names)
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}/archive?path=none").status, 404)
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}/archive?path=../x").status, 400)

    def test_compressed_archives_replace_files_and_not_directories(self):
        service = self.serve()
        session = self.open(service, files={"file": "old", "d/x": "x"})
        self.run_in(service, session, command="ln -s /etc/passwd link; ln -s d into")
        for mode in ("w:gz", "w:xz", "w"):
            data = self.archive(("file", mode.encode()), ("link", mode.encode()), ("./new/deep", b"n"),
                                ("into/y", b"y"), ("abs", {"type": tarfile.SYMTYPE, "linkname": "/usr/bin/env"}),
                                ("hard", {"type": tarfile.LNKTYPE, "linkname": "file"}), mode=mode)
            put = self.put(service, session, data)
            self.assertEqual((put.status, put.json["files"]), (200, 6), put.body)
            shown = self.run_in(service, session, command="cat file link hard new/deep d/y; readlink abs; test -f link -a ! -L link")
            self.assertEqual((shown["stdout"], shown["exit_code"]), (mode * 3 + "ny/usr/bin/env\n", 0))
        refused = self.put(service, session, self.archive(("d", b"no directory any more")))
        self.assertEqual(refused.status, 409, refused.body)
        self.assertEqual(self.run_in(service, session, "cat", "d/x")["stdout"], "x")

    def test_hostile_archives_do_no_harm(self):
        service = self.serve()
        session = self.open(service, limits={"scratch_bytes": 64 << 20})
        with open("/etc/passwd", "rb") as file:
            host = file.read()
        outside = pathlib.Path(service.root) / "outside"
        good = self.archive(("ok", b"ok"))
        bomb = self.archive(("bomb", {"size": 200 << 20}), mode="w:gz")
        for name, data in [
                ("dots", self.archive(("../../../../../../outside", b"x"))), ("absolute", self.archive((str(outside), b"x"))),
                ("inner dots", self.archive(("a/../../x", b"x"))), ("text", b"hello" * 1000), ("random", os.urandom(5000)),
                ("cut", good[:700]), ("cut in the middle", self.archive(("f", b"x" * 5000))[:2000]), ("zip", b"PK\3\4" + bytes(600)),
                ("bad link", self.archive(("h", {"type": tarfile.LNKTYPE, "linkname": "../../etc/passwd"}))),
                ("long", self.archive(("x" * 300, b"x"))), ("deep", self.archive(("d/" * 3000 + "f", b"x"))),
                ("bomb", bomb), ("bent gzip", bomb[: len(bomb) // 2])]:
            answer = self.put(service, session, data)
            self.assertIn(answer.status, (409, 413, 422, 429), (name, answer.status, answer.body))
        self.assertEqual(self.put(service, session, b"").status, 422)
        # Links inside lead where they lead inside.
        linked = self.archive(("out", {"type": tarfile.SYMTYPE, "linkname": "/etc"}), ("out/passwd", b"evil"))
        self.assertIn(self.put(service, session, linked).status, (403, 409, 422))
        device = self.put(service, session, self.archive(("dev", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}), ("ok", b"1")))
        self.assertEqual((device.status, len(device.json["left_out"])), (200, 1), device.body)
        suid = self.put(service, session, self.archive(("suid", {"size": 3, "mode": 0o6777})))
        self.assertEqual(suid.status, 200, suid.body)
        self.assertEqual(self.run_in(service, session, "stat", "-c", "%a", "suid")["stdout"], "755\n")
        large = self.archive(("large", {"size": 40 << 20}))
        self.assertEqual([self.put(service, session, large, f"/workspace/{i}").status for i in range(2)], [200, 429])
        with open("/etc/passwd", "rb") as file:
            self.assertEqual(file.read(), host)
        self.assertFalse(outside.exists())
        self.assertEqual(self.run_in(service, session, "cat", "ok")["stdout"], "1")


if __name__ == "__main__":
    unittest.main()
