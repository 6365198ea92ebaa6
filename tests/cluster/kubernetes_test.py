"""The runtime kubernetes on a real cluster (cluster.py): its report, its objects under Pod Security "restricted", every way a
pod can end, the rights it needs, and what is left when its owner is killed. CAISSON_CLUSTER_ALL=1 also runs the gates, the
forgeries and the conformance suite in pods, which takes some minutes."""

import hashlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time
import unittest
import urllib.error

import yaml

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
import cluster
import programs
from caisson import CallerCase, check, end, find_binary, processes, skip, wait_until

STARTED_HERE = False
JOBS = f"/apis/batch/v1/namespaces/{cluster.NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{cluster.NAMESPACE}/pods"
SUITES = ("gates", "forgery", "facts")


def setUpModule():
    global STARTED_HERE
    if "CAISSON_CLUSTER" not in os.environ and "kubernetes" not in os.environ.get("CAISSON_MUST_RUN", "").split(","):
        skip("kubernetes", "starts a whole cluster and takes minutes; set CAISSON_CLUSTER=1")
    if os.geteuid() != 0:
        skip("kubernetes", "needs root")
    if lacking := programs.missing():
        skip("kubernetes", f"the cluster's programs are missing ({lacking[0]}, …); fix: ./dev cluster build")
    if not cluster.node_pid():
        STARTED_HERE = True
        cluster.up(find_binary().parent / "caisson-agent")
    cluster.enter_network()
    os.environ["CAISSON_KUBERNETES"] = str(cluster.STATE / "kubernetes.yaml")


def tearDownModule():
    if STARTED_HERE:
        cluster.down()


def jobs():
    return {job["metadata"]["name"]: job for job in cluster.api("GET", JOBS)["items"]}


def pods():
    return cluster.api("GET", PODS)["items"]


class InPods(CallerCase):
    def setUp(self):
        self.before = set(jobs())

    def verify_in_pod(self, *arguments, **options):
        return self.verify(*arguments, flags=("--runtime", "kubernetes"), **options)

    def run_in_pod(self, *command, **options):
        return self.caisson("run", "--runtime", "kubernetes", "--", *command, **options)

    def start_in_pod(self, *command, **options):
        """A command that is running in a pod when this returns, and the marker that its processes carry."""
        marker = f"kubernetes-{secrets.token_hex(8)}"
        process = self.popen(
            "run", "--runtime", "kubernetes", "--", *command, marker, stderr=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )
        self.addCleanup(end, process)
        wait_until(lambda: len(processes(marker)) >= 2 or processes(marker), 60, "the workload runs")
        return process, marker

    def settings(self, **more):
        path = self.directory() / "kubernetes.yaml"
        kubeconfig = more.pop("kubeconfig", cluster.STATE / "caisson.kubeconfig")
        return {"CAISSON_KUBERNETES": str(cluster.write_settings(path, kubeconfig, **more))}

    def own_pod(self):
        """The pod of the one Job that this test has."""
        (job,) = set(jobs()) - self.before
        (pod,) = [pod for pod in pods() if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job]
        return pod

    def assert_no_job_left(self, seconds=10):
        wait_until(lambda: set(jobs()) <= self.before or set(jobs()) - self.before, seconds, "Jobs left")


class Runs(InPods):
    def test_the_report_names_every_wall(self):
        result = self.verify_in_pod("open('/usr/planted', 'w')\n")
        self.assert_fails_as(result, "FilesystemWriteViolation")
        self.assertEqual(result["violations"][0]["evidence"]["source"], "inside")
        isolation = result["isolation"]
        self.assertEqual((isolation["runtime"], isolation["cannot_observe"]), ("kubernetes", []))
        walls = {wall["wall"]: wall["state"] for wall in isolation["walls"]}
        self.assertEqual(
            {name for name, state in walls.items() if state == "absent"}, {"namespaces.time", "namespaces.cgroup"}, walls
        )
        self.assert_no_job_left()

    def test_memory_is_known_outside(self):
        result = self.verify_in_pod("x = b'x' * (1 << 30)\n", limits={"memory_bytes": 128 << 20})
        self.assert_fails_as(result, "MemoryLimitViolation")
        (violation,) = [v for v in result["violations"] if v["class"] == "MemoryLimitViolation"]
        self.assertEqual(violation["evidence"]["source"], "outside")
        self.assertEqual(violation["evidence"]["container_reason"], "OOMKilled")

    def test_memory_of_a_child_that_the_program_survives(self):
        source = (
            "import os, sys\nopen('/scratch/kept', 'w').write('kept')\n"
            "if os.fork() == 0:\n    x = b'x' * (1 << 30)\n    os._exit(0)\nos.wait()\nsys.exit(0)\n"
        )
        result = self.verify_in_pod(
            source, limits={"memory_bytes": 128 << 20}, checks=[check("python3", "main.py")], artifacts=["/scratch/kept"]
        )
        self.assert_fails_as(result, "MemoryLimitViolation")
        (violation,) = [v for v in result["violations"] if v["class"] == "MemoryLimitViolation"]
        self.assertEqual((violation["evidence"]["source"], violation["evidence"]["container_reason"]), ("outside", "OOMKilled"))
        self.assertEqual([artifact["path"] for artifact in result["artifacts"]], ["/scratch/kept"])

    def test_bytes_go_in_and_out_unchanged(self):
        data = secrets.token_bytes(3 << 20)
        folder = self.directory({"data.bin": data, "main.py": "import shutil\nshutil.copy('data.bin', '/scratch/copy.bin')\n"})
        result = self.verify_in_pod(path=folder, artifacts=["/scratch/copy.bin"])
        self.assert_passes(result)
        (artifact,) = result["artifacts"]
        self.assertEqual((artifact["bytes"], artifact["sha256"]), (len(data), hashlib.sha256(data).hexdigest()))

    def test_words_are_not_expanded(self):
        words = ("$(HOME)", "$$", "$HOME", "a b", "")
        done = self.run_in_pod("python3", "-c", "import sys; print(sys.argv[1:])", *words)
        self.assertEqual(done.stdout.decode(), f"{list(words)}\n", done.stderr)

    def test_standard_input_and_exit_code(self):
        done = self.run_in_pod("sh", "-c", "cat; exit 3", input=b"from outside\n" * 10_000)
        self.assertEqual((done.returncode, len(done.stdout)), (3, 130_000), done.stderr)

    def test_directories_of_this_machine_are_refused(self):
        done = self.caisson("run", "--runtime", "kubernetes", "-v", f"{self.directory()}:/data:ro", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"cannot show a directory of this machine", done.stderr)

    def test_a_cancelled_run_reaches_its_pod_at_once(self):
        process, marker = self.start_in_pod("sh", "-c", "trap '' TERM INT; sleep 300; sleep 300")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        # The program itself carries the marker, too, until it has ended.
        inside = lambda: {pid for pid in processes(marker) if pid != process.pid}  # noqa: E731
        wait_until(lambda: not inside() or inside(), 30, "processes left")
        self.assertLess(time.monotonic() - began, 2)
        process.wait(timeout=20)
        self.assert_no_job_left()

    def test_killed_it_leaves_nothing(self):
        process, marker = self.start_in_pod("sh", "-c", "(setsid sleep 300 &); sleep 300")
        began = time.monotonic()
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        wait_until(lambda: not processes(marker) or processes(marker), 15, "processes left")
        self.assertLess(time.monotonic() - began, 10)
        self.assertTrue(set(jobs()) - self.before, "the killed process cannot have deleted its Job")
        self.assertEqual(self.run_in_pod("true").returncode, 0)
        self.assert_no_job_left()


class Endings(InPods):
    def refused(self, *needles, **settings):
        done = self.run_in_pod("true", env=self.settings(**settings), timeout=90)
        self.assertEqual(done.returncode, 125, done.stderr)
        for needle in needles:
            self.assertIn(needle, done.stderr.decode())
        self.assert_no_job_left()

    def test_an_image_that_is_nowhere(self):
        self.refused("ErrImageNeverPull", "fix:", image="caisson.local/missing:1")

    def test_an_image_without_the_agent(self):
        self.refused("/.caisson/agent", image="caisson.local/pause:1")

    def test_no_node_takes_it(self):
        self.refused("no node takes the pod", node_selector={"caisson.org/nowhere": "true"}, start_seconds=3)

    def test_a_profile_that_no_node_has(self):
        self.refused("seccomp_profile", seccomp_profile="missing.json")

    def end_of(self, act):
        """The error of a run whose pod `act` ends."""
        process, _ = self.start_in_pod("sh", "-c", "sleep 300; sleep 300")
        act(f"{PODS}/{self.own_pod()['metadata']['name']}")
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 125, errors)
        self.assert_no_job_left()
        return errors.decode()

    def test_a_deleted_pod(self):
        self.assertIn("cluster ended the pod", self.end_of(lambda pod: cluster.api("DELETE", pod)))

    def test_an_evicted_pod(self):
        def evict(pod):
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.rsplit("/", 1)[1]}}
            cluster.api("POST", f"{pod}/eviction", body)

        self.assertIn("cluster ended the pod", self.end_of(evict))

    def test_a_late_pod(self):
        def hurry(pod):
            cluster.api("PATCH", pod, {"spec": {"activeDeadlineSeconds": 1}}, "application/merge-patch+json")

        self.assertIn("DeadlineExceeded", self.end_of(hurry))


class Objects(InPods):
    def test_the_pod_is_restricted_and_has_nothing_to_reach_the_cluster_with(self):
        self.start_in_pod("sh", "-c", "sleep 300; sleep 300")
        pod = self.own_pod()
        spec = pod["spec"]
        self.assertEqual([spec["automountServiceAccountToken"], spec["hostUsers"], spec["enableServiceLinks"]], [False] * 3)
        self.assertEqual({volume["name"] for volume in spec["volumes"] if "emptyDir" not in volume}, set())
        (container,) = spec["containers"]
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        # The enforcing namespace takes the pod as it is; a warning would be an error here.
        job = jobs()[pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]]
        template = {"metadata": {"name": "tried"}, "spec": job["spec"]["template"]["spec"]}
        self.assertEqual(cluster.api("POST", f"{PODS}?dryRun=All&fieldValidation=Strict", template)["metadata"]["name"], "tried")
        loose = json.loads(json.dumps(template))
        loose["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        with self.assertRaises(urllib.error.HTTPError) as refused:
            cluster.api("POST", f"{PODS}?dryRun=All", loose)
        self.assertEqual(refused.exception.code, 403)

    def test_a_namespace_that_refuses_pods_is_named(self):
        quota = f"/api/v1/namespaces/{cluster.NAMESPACE}/resourcequotas"
        cluster.api("POST", quota, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
        try:
            wait_until(lambda: "hard" in cluster.api("GET", f"{quota}/none").get("status", {}) or "no status", 20, "the quota")
            done = self.run_in_pod("true", timeout=90)
        finally:
            cluster.api("DELETE", f"{quota}/none")
        self.assertEqual(done.returncode, 125)
        self.assertIn("exceeded quota", done.stderr.decode())
        self.assert_no_job_left()


class Rights(InPods):
    # Asked for by Kubernetes 1.35 and newer, besides get.
    UNUSED = {("pods/attach", "create")}

    def test_the_role_to_install_is_the_role_under_test(self):
        documents = list(yaml.safe_load_all((HERE.parents[1] / "deploy/kubernetes/rbac.yaml").read_text()))
        (role,) = [document for document in documents if document["kind"] == "Role"]
        self.assertEqual(role["rules"], cluster.RULES)
        # The API server takes every object of the folder.
        (policy,) = yaml.safe_load_all((HERE.parents[1] / "deploy/kubernetes/network-policy.yaml").read_text())
        policies = f"/apis/networking.k8s.io/v1/namespaces/{cluster.NAMESPACE}/networkpolicies"
        cluster.api("POST", f"{policies}?dryRun=All&fieldValidation=Strict", policy)

    def test_each_right_is_needed(self):
        for rule in cluster.RULES:
            for verb in rule["verbs"]:
                (resource,) = rule["resources"]
                if (resource, verb) in self.UNUSED:
                    continue
                with self.subTest(resource=resource, verb=verb):
                    name = f"without-{resource.replace('/', '-')}-{verb}"
                    rules = [
                        other if other is not rule else other | {"verbs": [kept for kept in other["verbs"] if kept != verb]}
                        for other in cluster.RULES
                    ]
                    kubeconfig = cluster.make_account(name, [other for other in rules if other["verbs"]])
                    done = self.run_in_pod("true", env=self.settings(kubeconfig=kubeconfig, start_seconds=5), timeout=90)
                    left = set(jobs()) - self.before
                    for job in left:
                        cluster.api("DELETE", f"{JOBS}/{job}?propagationPolicy=Background")
                    # Events only explain; every other right is needed by a run that succeeds and cleans up.
                    if resource == "events":
                        self.assertEqual(done.returncode, 0, done.stderr)
                    else:
                        self.assertTrue(done.returncode != 0 or left, (resource, verb, done.stderr))
                        self.assertTrue(left or b"rbac.yaml" in done.stderr or b"forbidden" in done.stderr, done.stderr)


class Access(InPods):
    def test_programs_of_a_kubeconfig_are_not_run(self):
        folder = self.directory()
        cluster.write_kubeconfig(folder / "config", {"exec": {"command": "/bin/touch", "args": [str(folder / "ran")]}})
        done = self.run_in_pod("true", env=self.settings(kubeconfig=folder / "config"))
        self.assertEqual(done.returncode, 125)
        self.assertIn("exec: refused", done.stderr.decode())
        self.assertFalse((folder / "ran").exists())

    def test_another_authority_is_refused(self):
        folder = self.directory()
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other", "-days", "1", "-keyout", "k", "-out", "ca"],
            cwd=folder, check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        config = json.loads((cluster.STATE / "caisson.kubeconfig").read_text())
        config["clusters"][0]["cluster"]["certificate-authority"] = "ca"
        (folder / "config").write_text(json.dumps(config))
        done = self.run_in_pod("true", env=self.settings(kubeconfig=folder / "config"))
        self.assertEqual(done.returncode, 125)
        self.assertIn("certificate is refused", done.stderr.decode())

    def test_doctor_tries_it(self):
        done = self.caisson("doctor", "--json", timeout=180)
        (finding,) = [f for f in json.loads(done.stdout)["findings"] if f["mechanism"] == "runtime.kubernetes"]
        self.assertEqual(finding["status"], "ok", finding)


class Suites(InPods):
    def run_suite(self, *command, **environment):
        done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=3000)
        self.assertEqual(done.returncode, 0, done.stdout.decode(errors="replace")[-20_000:])

    def test_conformance(self):
        program = os.environ.get("CAISSON_CONFORMANCE")
        if not program or "CAISSON_CLUSTER_ALL" not in os.environ:
            raise unittest.SkipTest("with CAISSON_CLUSTER_ALL=1 and from ctest")
        self.run_suite(program, CAISSON_RUNTIME="kubernetes")

    def test_suites_of_other_runtimes(self):
        if "CAISSON_CLUSTER_ALL" not in os.environ:
            raise unittest.SkipTest("with CAISSON_CLUSTER_ALL=1")
        for suite in SUITES:
            with self.subTest(suite=suite):
                path = HERE.parent / f"integration/{suite}_test.py"
                self.run_suite(sys.executable, "-B", str(path), CAISSON_TEST_RUNTIME="kubernetes")


if __name__ == "__main__":
    unittest.main()
