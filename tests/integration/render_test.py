"""Each rendering is fed to the tool it is for: runc runs it, the others' own compilers and decoders read it.

Kinds for CAISSON_MUST_RUN: root, runc, apparmor, secilc, kubectl, yaml.
"""

import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import programs
from caisson import REPOSITORY, CallerCase, check, skip, workbench

try:
    import yaml
except ImportError:
    yaml = None

PROFILES = ("balanced", "session", "strict")
FORMATS = ("oci", "seccomp", "apparmor", "selinux", "docker", "kubernetes")


def tool(name):
    """The path of a program that may be in a directory for administrators."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        packages = {"apparmor_parser": "apparmor", "kubectl": "kubernetes-client"}
        skip(name.split("_")[0], f"{name} is not installed (package {packages.get(name, name)})")
    return found


def render(form, profile):
    done = subprocess.run(
        [workbench().binary, "policy", "render", "--format", form, str(profile)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


# A program for both worlds: name -> (text, what it prints, exit code in the container or None, passes). A refusal must
# show in the exit code, because a container engine knows nothing else.
ATTEMPT = """
    import errno, sys
    def attempt(call):
        try:
            call()
        except OSError as error:
            print(errno.errorcode[error.errno])
            sys.exit(1)
"""
PROBES = {
    "hello": ("print('hello')", "hello\n", 0, True),
    "scratch": (
        """
        import os, subprocess
        for place in ("/scratch", "/tmp", "/dev/shm"):
            with open(f"{place}/run", "w") as file: file.write("#!/bin/sh\\necho $((6 * 7))\\n")
            os.chmod(f"{place}/run", 0o755)
            print(subprocess.run([f"{place}/run"], capture_output=True, text=True).stdout, end="")
        """,
        "42\n42\n42\n",
        0,
        True,
    ),
    "loopback": (
        """
        import socket, threading
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        client.sendall(b"over lo")
        print(server.accept()[0].recv(16).decode())
        """,
        "over lo\n",
        0,
        True,
    ),
    "write to /usr": (ATTEMPT + "    attempt(lambda: open('/usr/x', 'w'))", "EROFS\n", 1, False),
    "write to the workspace": (ATTEMPT + "    attempt(lambda: open('/workspace/x', 'w'))", "EROFS\n", 1, False),
    "network": (
        ATTEMPT + "    import socket\n    attempt(lambda: socket.create_connection(('192.0.2.1', 80), 5))",
        "ENETUNREACH\n",
        1,
        False,
    ),
    "raw socket": (
        ATTEMPT + "    import socket\n    attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))",
        "EPERM\n",
        1,
        False,
    ),
    "packet socket": (
        ATTEMPT + "    import socket\n    attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))",
        "EAFNOSUPPORT\n",
        1,
        False,
    ),
    "ptrace": (
        """
        import ctypes, errno, sys
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.ptrace(0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])
        sys.exit(1)
        """,
        "-1 EPERM\n",
        1,
        False,
    ),
    "user namespace": (
        """
        import ctypes, errno, sys
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.unshare(0x10000000), errno.errorcode[ctypes.get_errno()])
        sys.exit(1)
        """,
        "-1 EPERM\n",
        1,
        False,
    ),
    "bpf": ("import ctypes\nctypes.CDLL(None).syscall(321, 0, 0, 0)", "", 128 + 31, False),
    "fork bomb": (
        """
        import os, signal, sys
        children = []
        try:
            while len(children) < 5000:
                pid = os.fork()
                if pid == 0: signal.pause()
                children.append(pid)
        except OSError:
            print("limited")
        for pid in children: os.kill(pid, signal.SIGKILL)
        sys.exit(1)
        """,
        "limited\n",
        1,
        False,
    ),
    "memory": ("hog = bytearray(3 << 30)", "", 128 + 9, False),
}


class Bundle:
    """An OCI bundle whose configuration is rendered, in a place every user may pass through."""

    def __init__(self, config):
        self.config = config
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="bundle-", dir=workbench().root))
        self.top.chmod(0o755)
        (self.top / "workspace").mkdir()
        (self.top / "rootfs").mkdir()
        owner = config["linux"]["uidMappings"][0]["hostID"]
        os.chown(self.top / "rootfs", owner, owner)

    def run(self, text, timeout=60):
        """Exit code and standard output of a Python program under runc."""
        (self.top / "workspace/main.py").write_text(textwrap.dedent(text))
        config = json.loads(json.dumps(self.config))
        config["process"]["args"] = ["/usr/bin/python3", "main.py"]
        (self.top / "config.json").write_text(json.dumps(config))
        name = f"render-{secrets.token_hex(8)}"
        runc = [tool("runc"), "--root", str(self.top / "state")]
        try:
            done = subprocess.run(
                [*runc, "run", "--bundle", str(self.top), name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        finally:
            subprocess.run([*runc, "delete", "--force", name], capture_output=True, timeout=60)
        return done.returncode, done.stdout, done.stderr


class RuncTest(CallerCase):
    def setUp(self):
        tool("runc")

    def bundle(self, profile="balanced"):
        bundle = Bundle(json.loads(render("oci", profile)))
        self.addCleanup(shutil.rmtree, bundle.top, ignore_errors=True)
        return bundle

    def compare(self, bundle, name, text, flags=()):
        """Runs a program in both worlds; returns its exit code and output in the container."""
        code, out, err = bundle.run(text)
        result = self.verify(
            files={"main.py": textwrap.dedent(text)}, checks=[check("python3", "main.py")], flags=flags, timeout=180
        )
        self.assertEqual(code == 0, result["status"] == "pass", f"{name}: {code} {out} {err}\n{self.story(result)}")
        return code, out, err

    def test_the_container_and_the_native_runtime_agree(self):
        bundle = self.bundle()
        for name, (text, wanted_out, wanted_code, passes) in PROBES.items():
            with self.subTest(program=name):
                code, out, err = self.compare(bundle, name, text)
                self.assertEqual((out, code), (wanted_out, wanted_code), err)
                self.assertEqual(code == 0, passes)

    def test_ordinary_programs(self):
        bundle = self.bundle()
        for name in ("threads", "subprocesses", "multiprocessing"):
            with self.subTest(program=name):
                code, _, err = bundle.run(programs.PROGRAMS[name])
                self.assertEqual(code, 0, err)

    def test_the_view_from_inside(self):
        code, out, err = self.bundle().run(
            """
            import json, os
            status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
            mounts = {line.split()[4]: line.split()[5].split(",") for line in open("/proc/self/mountinfo")}
            print(json.dumps({
                "caps": [status[f"Cap{s}"] for s in ("Inh", "Prm", "Eff", "Bnd", "Amb")],
                "ids": [status["Uid"].split(), status["Gid"].split(), status["Groups"].split()],
                "walls": [status["NoNewPrivs"], status["Seccomp"]],
                "namespaces": {n: os.readlink(f"/proc/self/ns/{n}") for n in os.listdir("/proc/self/ns")},
                "read-write": sorted(p for p, o in mounts.items()
                                     if "ro" not in o and not p.startswith(("/dev/", "/proc/"))),
                "masked": {p: os.listdir(p) if os.path.isdir(p) else open(p).read(9) if os.path.exists(p) else ""
                           for p in map("/proc/".__add__, ("kallsyms", "keys", "modules", "bus", "fs", "irq"))},
                "top": sorted(os.listdir("/")), "host": os.uname().nodename, "dev": sorted(os.listdir("/dev")),
            }))
            """
        )
        self.assertEqual(code, 0, err)
        seen = json.loads(out)
        self.assertEqual(seen["caps"], ["0" * 16] * 5)
        self.assertEqual(seen["ids"], [["1000"] * 4, ["1000"] * 4, []])
        self.assertEqual(seen["walls"], ["1", "2"])
        for name in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"):
            self.assertNotEqual(seen["namespaces"][name], os.readlink(f"/proc/self/ns/{name}"), name)
        self.assertEqual(seen["read-write"], ["/scratch", "/tmp"])
        self.assertEqual([value for value in seen["masked"].values() if value], [])
        self.assertNotIn("sys", seen["top"])
        self.assertEqual(seen["host"], "caisson")
        self.assertEqual(
            set(seen["dev"]) - {"ptmx", "tty", "core"},  # a link to nowhere, and /dev/null under two more names
            {"fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"},
        )

    def test_the_strict_filter(self):
        path = self.directory({"p.yaml": "version: 1\nname: strict-here\nextends: strict\nstrength: native\n"}) / "p.yaml"
        bundle = self.bundle(path)
        cases = {
            "hello": ("print('hello')", 0, "hello\n"),
            "memory file": (ATTEMPT + "    import os\n    attempt(lambda: os.memfd_create('x'))", 1, "EPERM\n"),
            "writable code": (
                ATTEMPT + "    import mmap\n    attempt(lambda: mmap.mmap(-1, 4096, prot=7))",
                1,
                "EACCES\n",
            ),
        }
        for name, (text, wanted_code, wanted_out) in cases.items():
            with self.subTest(program=name):
                code, out, err = self.compare(bundle, name, text, flags=("--profile", path))
                self.assertEqual((code, out), (wanted_code, wanted_out), err)
        code, out, err = bundle.run("import os\nprint([n for n in os.listdir('/proc') if not n.isdigit()])")
        self.assertEqual((code, out), (0, "['self', 'thread-self']\n"), err)

    def test_nothing_is_left(self):
        bundle = self.bundle()
        self.assertEqual(bundle.run("print(1)")[0], 0)
        self.assertEqual(list((bundle.top / "state").iterdir()), [])
        self.assertNotIn(str(bundle.top), pathlib.Path("/proc/self/mountinfo").read_text())


class AppArmorTest(unittest.TestCase):
    def parse(self, text, *flags):
        command = [tool("apparmor_parser"), "--skip-kernel-load", "--skip-cache", *flags]
        return subprocess.run(command, input=text, capture_output=True, text=True)

    def test_it_compiles(self):
        for profile in PROFILES:
            with self.subTest(profile):
                names = self.parse(render("apparmor", profile), "--names")
                compiled = self.parse(render("apparmor", profile))
                self.assertEqual(names.stdout.split(), [f"caisson-{profile}"], names.stderr)
                self.assertEqual(compiled.returncode, 0, compiled.stderr)

    def test_the_parser_would_complain(self):
        compiled = self.parse(render("apparmor", "balanced").replace("network unix,", "network nonsense,"))
        self.assertNotEqual(compiled.returncode, 0)


class SeLinuxTest(unittest.TestCase):
    BASE = REPOSITORY / "tests/render/base.cil"

    def compile(self, *texts):
        secilc = tool("secilc")
        with tempfile.TemporaryDirectory() as directory:
            files = [self.BASE]
            for number, text in enumerate(texts):
                files.append(pathlib.Path(directory, f"{number}.cil"))
                files[-1].write_text(text)
            out = pathlib.Path(directory, "policy")
            return subprocess.run(
                [secilc, "--multiple-decls", f"--output={out}", f"--filecontext={out}.fc", *files],
                capture_output=True,
                text=True,
            )

    def never(self, profile, strict):
        domain = f"caisson_{profile}_t"
        rules = [
            f"(neverallow {domain} self (capability (sys_admin sys_ptrace net_raw net_admin sys_module setuid)))",
            f"(neverallow {domain} domain (process (ptrace transition dyntransition)))",
            f"(neverallow {domain} shadow_t (file (read write open)))",
            f"(neverallow {domain} proc_kcore_t (file (read write open)))",
            f"(neverallow {domain} memory_device_t (chr_file (read write open)))",
            f"(neverallow {domain} self (rawip_socket (create)))",
            f"(neverallow {domain} self (packet_socket (create)))",
            f"(neverallow {domain} bin_t (file (write append create unlink)))",
            f"(neverallow {domain} usr_t (dir (write add_name remove_name)))",
            f"(neverallow {domain} proc_t (file (write append)))",
            f"(neverallow {domain} tmpfs_t (filesystem (mount unmount)))",
        ]
        if profile != "session":
            rules.append(f"(neverallow {domain} caisson_workspace_t (file (write append create unlink)))")
        if strict:
            rules.append(f"(neverallow {domain} self (process (execmem)))")
            rules.append(f"(neverallow {domain} proc_t (file (read)))")
        return "\n".join(rules)

    def test_it_compiles_and_allows_no_more_than_the_profile(self):
        for profile in PROFILES:
            with self.subTest(profile):
                done = self.compile(render("selinux", profile), self.never(profile, profile == "strict"))
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_profiles_load_together(self):
        done = self.compile(*(render("selinux", profile) for profile in PROFILES))
        self.assertEqual(done.returncode, 0, done.stderr)

    def assert_noticed(self, done):
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("neverallow check failed", done.stderr)

    def test_each_prohibition_is_checked(self):
        text = render("selinux", "strict")
        for rule in self.never("strict", True).splitlines():
            with self.subTest(rule):
                self.assert_noticed(self.compile(text, rule, rule.replace("neverallow", "allow")))

    def test_what_it_grants(self):
        """The blocks really take effect: forbidding what they allow is noticed."""
        for granted in (
            "caisson_balanced_t bin_t (file (execute))",
            "caisson_balanced_t caisson_scratch_t (file (create))",
            "caisson_balanced_t null_device_t (chr_file (write))",
            "caisson_balanced_t self (tcp_socket (create))",
            "unconfined_t caisson_balanced_t (process (transition))",
        ):
            with self.subTest(granted):
                self.assert_noticed(self.compile(render("selinux", "balanced"), f"(neverallow {granted})"))


def pod_faults(pod):
    """What the Pod Security Standard "restricted" forbids, and what a profile forbids besides."""
    faults = []

    def require(holds, what):
        if not holds:
            faults.append(what)

    context = pod.get("securityContext", {})
    for name in ("hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace"):
        require(pod.get(name) is False, name)
    require(pod.get("automountServiceAccountToken") is False, "no token")
    require(pod.get("enableServiceLinks") is False, "no service links")
    require(pod.get("restartPolicy") == "Never", "restart")
    require(pod.get("dnsPolicy") == "None", "dns")
    require(not context.get("sysctls") and not context.get("supplementalGroups"), "sysctls, groups")
    require(context.get("seccompProfile", {}).get("type") in ("Localhost", "RuntimeDefault"), "seccomp")
    require(not pod.get("initContainers") and not pod.get("ephemeralContainers"), "other containers")
    sizes = 0
    for volume in pod.get("volumes", []):
        kinds = set(volume) - {"name"}
        require(len(kinds) == 1 and kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected"}, "volume")
        if "emptyDir" in kinds:
            require("sizeLimit" in volume["emptyDir"], "emptyDir size")
            sizes += int(volume["emptyDir"].get("sizeLimit", 0))
        if "persistentVolumeClaim" in kinds:
            require(volume["persistentVolumeClaim"].get("readOnly") is True, "claim read-only")
    require(sizes > 0, "writable places")
    require(len(pod.get("containers", [])) == 1, "one container")
    for container in pod.get("containers", []):
        own = container.get("securityContext", {})
        require(own.get("allowPrivilegeEscalation") is False, "escalation")
        require(own.get("privileged") is False, "privileged")
        require(own.get("readOnlyRootFilesystem") is True, "root read-only")
        require(own.get("capabilities") == {"drop": ["ALL"]}, "capabilities")
        require(own.get("procMount", "Default") == "Default", "procMount")
        require(not own.get("seLinuxOptions") and "seccompProfile" not in own, "no profile of its own")
        for where in (context, own):
            require(where.get("runAsNonRoot") is True, "non-root")
            require(where.get("runAsUser", 0) > 0, "user")
        require(not any("hostPort" in port for port in container.get("ports", [])), "ports")
        require("@sha256:" in container["image"], "image by digest")
        require(container.get("command"), "the image's entry point")
        limits = container.get("resources", {}).get("limits", {})
        for name in ("cpu", "memory", "ephemeral-storage"):
            require(name in limits, f"limit {name}")
        for mount in container.get("volumeMounts", []):
            require(mount["name"] != "workspace" or mount.get("readOnly") is True, "workspace read-only")
    return faults


def job_faults(documents, profile):
    faults = []
    kinds = [document["kind"] for document in documents]
    if kinds != ["NetworkPolicy", "Job"]:
        return [f"documents {kinds}"]
    policy, job = documents
    spec = policy["spec"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    if sorted(spec.get("policyTypes", [])) != ["Egress", "Ingress"] or spec.get("ingress") or spec.get("egress"):
        faults.append("network policy lets something through")
    if not all(labels.get(key) == value for key, value in spec["podSelector"]["matchLabels"].items()):
        faults.append("network policy selects other pods")
    limits = profile["limits"]
    if job["spec"].get("backoffLimit") != 0:
        faults.append("retries")
    if job["spec"].get("activeDeadlineSeconds", 1 << 60) * 1000 > limits["budget_ms"]:
        faults.append("deadline")
    if "ttlSecondsAfterFinished" not in job["spec"]:
        faults.append("kept for ever")
    pod = job["spec"]["template"]["spec"]
    if pod.get("runtimeClassName") != {"native": None, "container": None, "gvisor": "gvisor", "microvm": "kata"}[profile["strength"]]:
        faults.append("runtime class")
    container = pod["containers"][0]
    if int(container["resources"].get("limits", {}).get("memory", 1 << 60)) > limits["memory_bytes"]:
        faults.append("memory")
    sizes = [int(v["emptyDir"].get("sizeLimit", 1 << 60)) for v in pod["volumes"] if "emptyDir" in v]
    if sum(sizes) > limits["scratch_bytes"]:
        faults.append("scratch")
    return faults + pod_faults(pod)


class KubernetesTest(unittest.TestCase):
    def setUp(self):
        if yaml is None:
            skip("yaml", "python3-yaml is not installed")

    def documents(self, profile):
        return list(yaml.safe_load_all(render("kubernetes", profile)))

    def shown(self, profile):
        text = subprocess.run([workbench().binary, "policy", "show", "--json", profile], capture_output=True).stdout
        return json.loads(text)

    def test_pod_security_restricted(self):
        for profile in PROFILES:
            with self.subTest(profile):
                self.assertEqual(job_faults(self.documents(profile), self.shown(profile)), [])

    def test_every_change_is_noticed(self):
        profile = self.shown("strict")
        pod = "1/spec/template/spec"
        container = f"{pod}/containers/0"
        changes = [
            ("0/spec/egress", [{}]),
            ("0/spec/ingress", [{}]),
            ("0/spec/policyTypes", ["Ingress"]),
            ("0/spec/podSelector/matchLabels", {"app": "other"}),
            ("1/spec/backoffLimit", 6),
            ("1/spec/activeDeadlineSeconds", 3600),
            ("1/spec/ttlSecondsAfterFinished", None),
            (f"{pod}/runtimeClassName", None),
            (f"{pod}/automountServiceAccountToken", None),
            (f"{pod}/enableServiceLinks", None),
            (f"{pod}/restartPolicy", "OnFailure"),
            (f"{pod}/dnsPolicy", "ClusterFirst"),
            (f"{pod}/securityContext/runAsNonRoot", None),
            (f"{pod}/securityContext/runAsUser", 0),
            (f"{pod}/securityContext/seccompProfile", {"type": "Unconfined"}),
            (f"{pod}/securityContext/sysctls", [{"name": "a", "value": "b"}]),
            (f"{pod}/volumes/0", {"name": "scratch", "hostPath": {"path": "/"}}),
            (f"{pod}/volumes/0/emptyDir/sizeLimit", None),
            (f"{pod}/volumes/3/persistentVolumeClaim/readOnly", None),
            (f"{pod}/initContainers", [{"name": "x"}]),
            (f"{container}/image", "debian:12"),
            (f"{container}/command", None),
            (f"{container}/ports", [{"hostPort": 80}]),
            (f"{container}/resources/limits/cpu", None),
            (f"{container}/resources/limits/memory", None),
            (f"{container}/resources/limits/ephemeral-storage", None),
            (f"{container}/volumeMounts/3/readOnly", None),
            (f"{container}/securityContext/runAsUser", 0),
            (f"{container}/securityContext/runAsNonRoot", False),
            (f"{container}/securityContext/allowPrivilegeEscalation", None),
            (f"{container}/securityContext/privileged", True),
            (f"{container}/securityContext/readOnlyRootFilesystem", None),
            (f"{container}/securityContext/capabilities", {"drop": ["ALL"], "add": ["NET_RAW"]}),
            (f"{container}/securityContext/procMount", "Unmasked"),
            (f"{container}/securityContext/seccompProfile", {"type": "Unconfined"}),
        ]
        for name in ("hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace"):
            changes.append((f"{pod}/{name}", True))
        for path, value in changes:
            with self.subTest(path=path, value=value):
                documents = self.documents("strict")
                at = documents
                *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
                for key in parents:
                    at = at[key]
                if value is None:
                    del at[last]
                else:
                    at[last] = value
                self.assertNotEqual(job_faults(documents, profile), [])

    def kubectl(self, *arguments, text):
        return subprocess.run(
            [tool("kubectl"), *arguments, "-f", "-"],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "KUBECONFIG": "/nonexistent"},
        )

    def missing(self, ours, theirs, path=""):
        """Paths of what a decoder dropped, which is what its types do not know."""
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return [p for key, value in ours.items() for p in self.missing(value, theirs.get(key), f"{path}/{key}")]
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            return [p for i, value in enumerate(ours) for p in self.missing(value, theirs[i], f"{path}/{i}")]
        # Defaults are left out, and quantities are spelled anew.
        return [] if theirs is not None or ours in (False, 0, [], "") else [path]

    def test_kubectl_decodes_the_job(self):
        for profile in PROFILES:
            with self.subTest(profile):
                job = render("kubernetes", profile).split("---\n")[1]
                image = "workload=registry.invalid/x@sha256:" + "1" * 64
                done = self.kubectl("set", "image", "--local", image, "-o", "json", text=job)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.missing(yaml.safe_load(job), json.loads(done.stdout)), [])
                wrong = job.replace("runAsNonRoot: true", "runAsNonRoot: 7")
                wrong = self.kubectl("set", "image", "--local", image, "-o", "json", text=wrong)
                self.assertNotEqual(wrong.returncode, 0)

    def test_kubectl_decodes_the_network_policy(self):
        # No command changes a policy's selector, but on its way to say so this one decodes the whole document.
        policy = render("kubernetes", "balanced").split("---\n")[0]
        done = self.kubectl("set", "selector", "--local", "a=b", text=policy)
        self.assertNotIn("decode", done.stderr)
        wrong = self.kubectl("set", "selector", "--local", "a=b", text=policy.replace("ingress: []", "ingress: 7"))
        self.assertIn("decode", wrong.stderr)


class DocumentTest(unittest.TestCase):
    def test_every_format_is_in_the_table_of_differences(self):
        text = (REPOSITORY / "docs/operator/lsm-profiles.md").read_text()
        header = next(line for line in text.splitlines() if line.startswith("| wall "))
        self.assertEqual([cell.strip() for cell in header.strip("|").split("|")][1:], list(FORMATS))
        for line in text[text.index(header) :].splitlines():
            if line.startswith("|"):
                self.assertEqual(line.count("|"), header.count("|"), line)

    def test_every_key_of_a_profile_has_a_row(self):
        text = (REPOSITORY / "docs/operator/lsm-profiles.md").read_text()
        shown = subprocess.run([workbench().binary, "policy", "show", "--json"], capture_output=True).stdout
        # What describes a profile, or what only the supervisor acts on.
        others = {"version", "name", "extends", "description", "ignored_writes", "probes", "on_violation", "allow_degraded"}
        for key in set(json.loads(shown)) - others:
            self.assertRegex(text, rf"(?m)^\| [^|]*`{key}[`.]", key)


if __name__ == "__main__":
    unittest.main()
