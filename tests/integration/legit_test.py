"""Harmless programs pass without a violation."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import programs
from caisson import both_callers, check, need_tool, skip


def shell(script, **fields):
    return check("bash", "-euo", "pipefail", "-c", textwrap.dedent(script), **fields)


@both_callers
class Python:
    def test_programs(self):
        for name, source in programs.PROGRAMS.items():
            with self.subTest(program=name):
                self.assert_passes(self.verify(files={"main.py": textwrap.dedent(source), "helper.py": "VALUE = 5\n"}))

    def test_imports_from_packages_of_the_workspace(self):
        result = self.verify(
            files={
                "main.py": (
                    "from app.core import answer\nimport vendor.lib, importlib.resources\nassert answer() =="
                    " vendor.lib.N\nassert (importlib.resources.files('app') / 'data.txt').read_text() == 'data'\n"
                ),
                "app/__init__.py": "",
                "app/core.py": "from . import deep\nfrom .deep import mod\ndef answer(): return mod.N\n",
                "app/deep/__init__.py": "",
                "app/deep/mod.py": "N = 42\n",
                "app/data.txt": "data",
                "vendor/lib.py": "N = 42\n",
            }
        )
        self.assert_passes(result)

    def test_unittest_discovery(self):
        source = self.directory(
            {
                "lib.py": "def double(n): return 2 * n\n",
                "tests/__init__.py": "",
                "tests/test_lib.py": (
                    "import unittest\nfrom lib import double\nclass T(unittest.TestCase):\n"
                    "  def test_double(self): self.assertEqual(double(2), 4)\n"
                ),
            }
        )
        result = self.verify(path=source, checks=[check("python3", "-m", "unittest", "discover", "-v", tier="test")])
        self.assert_passes(result)
        self.assertIn("Ran 1 test", result["stderr"])
        result = self.verify_path(source)  # and by the default checks
        self.assert_passes(result)
        self.assertEqual(result["tier"], "test")

    def test_a_failing_test_fails(self):
        source = self.directory(
            {"test_x.py": "import unittest\nclass T(unittest.TestCase):\n  def test_x(self): self.fail('no')\n"}
        )
        self.assert_fails_as(self.verify_path(source), "CheckFailed")

    def test_pytest(self):
        if (
            subprocess.run(["/usr/bin/python3", "-c", "import pytest"], capture_output=True, check=False).returncode
            != 0
        ):
            skip("pytest", "the package python3-pytest is not installed")
        source = self.directory(
            {
                "main.py": "def double(n): return 2 * n\n",
                "test_main.py": (
                    "import pytest\nfrom main import double\n@pytest.mark.parametrize('n', [1, 2])\n"
                    "def test_double(n, tmp_path):\n  (tmp_path / 'f').write_text('x')\n  assert double(n) == 2 * n\n"
                ),
            }
        )
        for result in (
            self.verify_path(source),
            self.verify(path=source, checks=[check("python3", "-m", "pytest", "-q", tier="test")]),
        ):
            self.assert_passes(result)
            self.assertIn("2 passed", result["stdout"])

    def test_cpu_count_is_the_quota(self):
        source = "import os\nprint(os.cpu_count(), len(os.sched_getaffinity(0)))\n"
        result = self.verify(source, limits={"cpu": 1})
        self.assert_passes(result)
        # os.cpu_count() asks the C library, which asks the scheduler since glibc 2.34 or so; affinity is the truth.
        self.assertEqual(result["stdout"].split()[1], "1")
        self.assertEqual(self.verify("", checks=[check("nproc")], limits={"cpu": 1})["stdout"], "1\n")
        self.assertEqual(result["stdout"].split()[0], "1", "os.cpu_count()")

    def test_a_large_process_that_starts_children(self):
        """A child of vfork shares its parent's memory for a moment; it must be counted once."""
        source = "import subprocess\nheld = b'x' * (90 << 20)\nfor _ in range(200): subprocess.run(['/bin/true'], check=True)"
        self.assert_passes(self.verify(source, limits={"memory_bytes": 128 << 20}))

    def test_memory_that_is_shared_or_given_back(self):
        """Memory counted as a file is not counted again where it is mapped, nor after the file is gone."""
        source = """
            import mmap, os
            def fill(fd):
                os.ftruncate(fd, 70 << 20)
                with mmap.mmap(fd, 70 << 20) as memory:
                    for page in range(0, 70 << 20, 4096): memory[page] = 1
            for _ in range(3):
                fd = os.memfd_create('large')
                fill(fd)
                os.close(fd)
                fd = os.open('/dev/shm/large', os.O_RDWR | os.O_CREAT)
                fill(fd)
                os.close(fd)
                os.unlink('/dev/shm/large')
        """
        self.assert_passes(self.verify(textwrap.dedent(source), limits={"memory_bytes": 128 << 20, "scratch_bytes": 100 << 20}))

    def test_a_shell_whose_children_end_while_it_forks(self):
        # With one processor, a child has ended and its parent has the signal before another process runs. A shell's
        # handler does not restart calls, and fork is not known to be interrupted.
        processors = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, processors)
        os.sched_setaffinity(0, {min(processors)})
        script = "for i in 1 2 3 4 5 6 7 8 9; do echo 42 | tr 4 5; done"
        for _ in range(4):
            result = self.verify("", checks=[check("sh", "-c", script)])
            self.assert_passes(result)
            self.assertEqual((result["stdout"], result["stderr"]), ("52\n" * 9, ""))

    def test_directory_is_seen_whole(self):
        source = self.directory(
            {
                "main.py": (
                    "import os\nassert sorted(os.listdir('/workspace')) == ['data', 'empty', 'link', 'main.py',"
                    " 'run.sh']\nassert os.listdir('empty') == [] and os.readlink('link') == 'data/a' and"
                    " open('link').read() == 'A'\nassert os.access('run.sh', os.X_OK) and not os.access('data/a',"
                    " os.X_OK)\n"
                ),
                "data/a": "A",
                "run.sh": "#!/bin/sh\n",
            }
        )
        self.give(source / "run.sh", 0o755)
        (source / "empty").mkdir()
        self.give(source / "empty")
        os.symlink("data/a", source / "link")
        self.give(source / "link")
        self.assert_passes(self.verify_path(source))

    def test_stdin_and_environment_of_a_check(self):
        result = self.verify(
            "import os, sys\nprint(sys.stdin.read(), os.environ['X'], os.getcwd())\n",
            checks=[check("python3", "/workspace/main.py", stdin="typed", env={"X": "1"}, cwd="/scratch")],
        )
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "typed 1 /scratch\n")


@both_callers
class Tools:
    def test_c(self):
        need_tool("gcc", "gcc")
        result = self.verify(
            files={
                "a.c": (
                    '#include <stdio.h>\n#include <math.h>\nint main(void) { printf("%.0f\\n", sqrt(1764.0)); return'
                    " 0; }\n"
                )
            },
            checks=[
                check("gcc", "-O2", "-Wall", "-o", "/scratch/a", "a.c", "-lm", name="build", tier="build"),
                check("/scratch/a"),
            ],
        )
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "42\n")

    def test_cpp(self):
        need_tool("gcc", "g++")
        source = (
            "#include <iostream>\n#include <regex>\n#include <thread>\n#include <vector>\nint main() {"
            " std::vector<std::thread> all;\nfor (int i = 0; i < 8; ++i) all.emplace_back([] {}); for (auto& one : all)"
            ' one.join();\nstd::cout << std::regex_replace("4x", std::regex("x"), "2") << std::endl; }\n'
        )
        result = self.verify(
            files={"a.cc": source},
            checks=[
                check("g++", "-O2", "-std=c++20", "-pthread", "-o", "/scratch/a", "a.cc", name="build", tier="build"),
                check("/scratch/a"),
            ],
        )
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "42\n")

    def test_make(self):
        need_tool("gcc", "gcc", "make")
        makefile = "O := /scratch/o\nall: $(O)/prog\n\t$(O)/prog\n$(O)/prog: a.c b.c\n\tmkdir -p $(O)\n\tcc -o $@ $^\n"
        result = self.verify(
            files={
                "Makefile": makefile,
                "a.c": "int b(void);\nint main(void) { return b(); }\n",
                "b.c": "int b(void) { return 0; }\n",
            },
            checks=[check("make", "-j2", "-f", "/workspace/Makefile")],
        )
        self.assert_passes(result)

    def test_make_in_a_copy(self):
        need_tool("gcc", "gcc", "make")
        result = self.verify(
            files={"Makefile": "prog: prog.c\n", "prog.c": "int main(void) { return 0; }\n"},
            checks=[shell("cp -r /workspace /scratch/w; cd /scratch/w; make; ./prog; make -n clean || true")],
        )
        self.assert_passes(result)

    def test_git_in_scratch(self):
        need_tool("git", "git")
        script = """
            cd /scratch; git init -q -b main repo; cd repo
            git config user.name n; git config user.email e@example.org
            echo one > f; git add f; git commit -qm first; echo two >> f; git commit -qam second
            git checkout -q -b side; git tag t
            git gc -q; git clone -q . ../copy; git -C ../copy log --oneline | wc -l; git status --short
            git diff HEAD~1 --stat
        """
        result = self.verify("", checks=[shell(script)])
        self.assert_passes(result)
        self.assertEqual(result["stdout"].split()[0], "2")

    def test_git_on_a_given_repository(self):
        need_tool("git", "git")
        for packed in (False, True):
            with self.subTest(packed=packed):
                source = self.directory({"f": "one\n"})
                environment = {"HOME": str(source), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
                for arguments in (
                    ["init", "-q", "-b", "main"],
                    ["config", "user.name", "n"],
                    ["config", "user.email", "e@example.org"],
                    ["add", "f"],
                    ["commit", "-qm", "first"],
                    ["gc", "-q"] if packed else ["status"],
                ):
                    subprocess.run(
                        self.as_caller("git", "-C", source, *arguments),
                        check=True,
                        env=environment,
                        capture_output=True,
                    )
                checks = [
                    check("git", "log", "--oneline", name="log"),
                    check("git", "status", "--short", name="status"),
                    check("git", "show", "--stat", name="show"),
                    check("git", "blame", "f", name="blame"),
                ]
                result = self.verify(path=source, checks=checks)
                self.assert_passes(result)
                self.assertIn("first", result["stdout"])

    def test_node(self):
        need_tool("node", "node")
        script = textwrap.dedent("""
            const fs = require('fs/promises'), http = require('http'), assert = require('assert');
            const {Worker} = require('worker_threads');
            const {execFileSync} = require('child_process');
            (async () => {
              await fs.mkdir('/scratch/d/e', {recursive: true});
              await fs.writeFile('/scratch/d/e/f', 'text');
              assert.equal(await fs.readFile('/scratch/d/e/f', 'utf8'), 'text');
              await fs.rm('/scratch/d', {recursive: true});
              assert.equal(execFileSync('echo', ['x']).toString(), 'x\\n');
              const code = 'require("worker_threads").parentPort.postMessage(1)';
              await new Promise((done) => new Worker(code, {eval: true}).on('message', done));
              const server = http.createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1', async () => {
                const answer = await fetch(`http://127.0.0.1:${server.address().port}/`).then((a) => a.text());
                assert.equal(answer, 'served');
                server.close();
                console.log('done');
                process.exit(0);
              });
            })();
        """)
        result = self.verify(files={"main.js": script}, checks=[check("node", "main.js")])
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "done\n")

    def test_java(self):
        need_tool("java", "java", "javac")
        if subprocess.run(["/usr/bin/java", "-version"], capture_output=True, check=False).returncode != 0:
            skip("java", "/usr/bin/java does not run")
        source = (
            "public class Main { public static void main(String[] a) throws Exception { var t = new Thread(() ->"
            " System.out.println(42));t.start(); t.join();"
            ' java.nio.file.Files.writeString(java.nio.file.Path.of("/scratch/f"), "x"); } }\n'
        )
        result = self.verify(
            files={"Main.java": source},
            checks=[
                check("javac", "-d", "/scratch", "Main.java", name="build", tier="build"),
                check("java", "-cp", "/scratch", "Main"),
            ],
        )
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "42\n")

    def test_shell(self):
        need_tool("bash", "bash")
        script = """
            seq 1 1000 | sort -rn | head -3 | paste -sd+ | { read x; echo $((x)); }
            cat <<< here > /scratch/f; cat <<'EOF' >> /scratch/f
            document
            EOF
            diff <(echo a) <(echo a); echo quiet > /dev/null 2>&1; echo err >&2; wait
            (exec 3<> /scratch/f; read -u 3 line; [ $line = here ])
            find / -xdev -name nothing 2> /dev/null || true; ls -la / > /dev/null
            ps aux > /dev/null || true; df > /dev/null; id; date > /dev/null
            mkfifo /tmp/p; echo x > /tmp/p & read y < /tmp/p; tar cz -C /scratch f | tar tz
            awk 'BEGIN { print 6 * 7 }'; sed -i s/here/there/ /scratch/f
            mktemp; trap 'echo bye' EXIT; sleep 0.01 & wait $!; xargs -P 4 -n 1 echo < <(seq 4) | sort | paste -sd,
        """
        result = self.verify("", checks=[shell(script)])
        self.assert_passes(result)
        self.assertIn("2997\n", result["stdout"])

    def test_perl(self):
        if shutil.which("perl") is None:
            skip("bash", "perl is not installed")
        result = self.verify(
            "",
            checks=[
                check(
                    "perl",
                    "-MFile::Temp",
                    "-MPOSIX",
                    "-e",
                    'my $f = File::Temp->new; print $f "x"; my $n = `echo 40`; print $n + 2, "\\n"',
                )
            ],
        )
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "42\n")

    def test_artifacts(self):
        result = self.verify(
            "open('/scratch/out.txt', 'w').write('kept')\nimport os; os.mkdir('/scratch/d'); open('/scratch/d/e.bin',"
            " 'wb').write(bytes(9))\n",
            artifacts=["/scratch/out.txt", "/scratch/d/*.bin", "/scratch/none*"],
        )
        self.assert_passes(result)
        self.assertEqual(
            sorted((a["path"], a["bytes"]) for a in result["artifacts"]),
            [("/scratch/d/e.bin", 9), ("/scratch/out.txt", 4)],
        )


if __name__ == "__main__":
    unittest.main()
