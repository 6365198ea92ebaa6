"""The whole cluster on one node, inside namespaces that `cluster.py up` makes: PID 1 of its pid namespace, so that everything
ends with it. Its memory file system at /run holds etcd, images and pods: nothing of them outlives it.

`node.py STATE`: STATE has pki/ and images, and gets logs, `ready` and, when something fails, `failed`. It ends when `stop`
appears there."""

import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import textwrap
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import programs

STATE = pathlib.Path(sys.argv[1])
PKI, LOGS, RUN = STATE / "pki", STATE / "log", pathlib.Path("/run/cluster")
ADDRESS, PORT = "10.99.0.1", 16443
GROUP = "k8s-caisson"
SOCKET = RUN / "containerd.sock"
# What the kubelet would write for the whole machine.
SETTINGS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}

CONTAINERD = f"""
version = 2
root = "{RUN}/containerd"
state = "{RUN}/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "caisson.local/pause:1"
  disable_apparmor = true
  enable_selinux = false
  # Where root lacks CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{RUN}/cni/bin"
    conf_dir = "{RUN}/cni/conf"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{programs.path("runc")}"
"""

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": f"{PKI}/ca.crt"}},
    "authorization": {"mode": "Webhook"},
    "tlsCertFile": f"{PKI}/kubelet-server.crt",
    "tlsPrivateKeyFile": f"{PKI}/kubelet-server.key",
    "address": ADDRESS,
    "port": 10250,
    "readOnlyPort": 0,
    "healthzPort": 10248,
    "cgroupDriver": "cgroupfs",
    "cgroupRoot": f"/{GROUP}",
    "failCgroupV1": False,
    "failSwapOn": False,
    "enforceNodeAllocatable": [],
    "containerRuntimeEndpoint": f"unix://{SOCKET}",
    "resolvConf": "",
    "clusterDomain": "cluster.local",
    "makeIPTablesUtilChains": False,
    "seccompDefault": True,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
    "imageGCHighThresholdPercent": 100,
    "syncFrequency": "10s",
    "podPidsLimit": 1024,
    "podLogsDir": f"{RUN}/pod-logs",
}

# Pods get an address for their status and no interface to use it with.
CLOSED_NETWORK = """#!/bin/sh
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' ;;
  ADD) printf '{"cniVersion":"1.0.0","interfaces":[{"name":"%s","sandbox":"%s"}],"ips":[{"address":"10.88.0.2/32","interface":0}],"dns":{}}' "$CNI_IFNAME" "$CNI_NETNS" ;;
esac
"""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def start(name, *command):
    with open(LOGS / f"{name}.log", "wb") as log:
        return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def wait_for(what, ready, processes, seconds=300):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for name, process in processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}; see {LOGS}/{name}.log")
        if ready():
            print(f"{what} after {time.monotonic() - STARTED:.1f} s", flush=True)
            return
        time.sleep(0.1)
    raise RuntimeError(f"{what}: not within {seconds} s; see {LOGS}")


def api(path):
    context = ssl.create_default_context(cafile=PKI / "ca.crt")
    context.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")
    with urllib.request.urlopen(f"https://127.0.0.1:{PORT}{path}", context=context, timeout=5) as reply:
        return reply.read()


def api_is_ready():
    try:
        return api("/readyz") == b"ok"
    except OSError:
        return False


def node_is_ready():
    try:
        conditions = json.loads(api("/api/v1/nodes/node1")).get("status", {}).get("conditions", [])
    except OSError:
        return False
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def containerd_answers():
    ctr = [programs.path("ctr"), "-a", SOCKET, "version"]
    return SOCKET.exists() and subprocess.run(ctr, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def prepare():
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for directory in ("cni/bin", "cni/conf", "bin", "kubelet", "settings", "pod-logs", "etcd", "tmp"):
        (RUN / directory).mkdir(parents=True)
    run("mount", "--make-rshared", "/")
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    # The kubelet and client libraries want to find a default route.
    run("ip", "link", "add", "outside", "type", "bridge")
    run("ip", "link", "set", "outside", "up")
    run("ip", "address", "add", "10.99.1.1/24", "dev", "outside")
    run("ip", "route", "add", "default", "via", "10.99.1.2", "dev", "outside", "onlink")
    run("hostname", "node1")
    for part in programs.PARTS:
        (RUN / "bin" / part).symlink_to(programs.path("kube"))
    (RUN / "cni/bin/loopback").symlink_to("/usr/lib/cni/loopback")
    (RUN / "cni/bin/closed").write_text(CLOSED_NETWORK)
    (RUN / "cni/bin/closed").chmod(0o755)
    (RUN / "cni/conf/10-closed.conflist").write_text('{"cniVersion":"1.0.0","name":"closed","plugins":[{"type":"closed"}]}')
    (RUN / "containerd.toml").write_text(CONTAINERD)
    (RUN / "kubelet.json").write_text(json.dumps(KUBELET))
    for name, value in SETTINGS.items():
        (RUN / "settings" / os.path.basename(name)).write_text(value)
    for hierarchy in pathlib.Path("/sys/fs/cgroup").iterdir():
        if not (hierarchy / "cgroup.procs").exists():
            continue
        group = hierarchy / GROUP
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / name).exists():
                (group / name).write_text((hierarchy / name).read_text())


def start_control_plane(processes):
    etcd = [
        "etcd", "--data-dir", RUN / "etcd/data", "--listen-client-urls", "http://127.0.0.1:12379",
        "--advertise-client-urls", "http://127.0.0.1:12379", "--listen-peer-urls", "http://127.0.0.1:12380",
        "--initial-advertise-peer-urls", "http://127.0.0.1:12380", "--initial-cluster", "default=http://127.0.0.1:12380",
        "--unsafe-no-fsync",
    ]  # fmt: skip
    if b"unsafe-no-fsync" not in subprocess.run(["etcd", "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout:
        etcd.pop()
    processes["etcd"] = start("etcd", *etcd)
    processes["kube-apiserver"] = start(
        "kube-apiserver", RUN / "bin/kube-apiserver", "--etcd-servers=http://127.0.0.1:12379", "--bind-address=127.0.0.1",
        f"--secure-port={PORT}", "--service-cluster-ip-range=10.0.0.0/24", "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none", f"--tls-cert-file={PKI}/apiserver.crt", f"--tls-private-key-file={PKI}/apiserver.key",
        f"--client-ca-file={PKI}/ca.crt", "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={PKI}/sa.pub", f"--service-account-signing-key-file={PKI}/sa.key",
        f"--kubelet-client-certificate={PKI}/apiserver-kubelet.crt", f"--kubelet-client-key={PKI}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={PKI}/ca.crt", "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--profiling=false", "--event-ttl=10m",
    )  # fmt: skip


def start_node(processes):
    processes["kube-controller-manager"] = start(
        "kube-controller-manager", RUN / "bin/kube-controller-manager", f"--kubeconfig={PKI}/kcm.kubeconfig",
        "--leader-elect=false", f"--service-account-private-key-file={PKI}/sa.key", f"--root-ca-file={PKI}/ca.crt",
        "--use-service-account-credentials=true", "--bind-address=127.0.0.1", f"--cluster-signing-cert-file={PKI}/ca.crt",
        f"--cluster-signing-key-file={PKI}/ca.key",
    )  # fmt: skip
    processes["kube-scheduler"] = start(
        "kube-scheduler", RUN / "bin/kube-scheduler", f"--kubeconfig={PKI}/sched.kubeconfig", "--leader-elect=false",
        "--bind-address=127.0.0.1",
    )  # fmt: skip
    # In a mount namespace of its own, where its settings of the machine are files; not in containerd's, because a covered
    # /proc keeps containers from mounting their own.
    covered = textwrap.dedent(f"""\
        mount --make-rprivate /proc
        for name in {" ".join(SETTINGS)}; do mount --bind {RUN}/settings/${{name##*/}} /proc/sys/$name; done
        exec "$@\"""")
    processes["kubelet"] = start(
        "kubelet", "unshare", "-m", "--propagation", "unchanged", "sh", "-ec", covered, "kubelet", RUN / "bin/kubelet",
        f"--config={RUN}/kubelet.json", f"--kubeconfig={PKI}/kubelet.kubeconfig", "--hostname-override=node1",
        f"--node-ip={ADDRESS}", f"--root-dir={RUN}/kubelet", f"--cert-dir={RUN}/kubelet/pki", "-v=2",
    )  # fmt: skip


def main():
    processes = {}
    prepare()
    os.environ["PATH"] = f"{programs.path('containerd').parent}:{programs.path('runc').parent}:{os.environ['PATH']}"
    os.environ["TMPDIR"] = str(RUN / "tmp")  # the machine's own would outlive the cluster
    start_control_plane(processes)
    processes["containerd"] = start("containerd", programs.path("containerd"), "-c", RUN / "containerd.toml")
    wait_for("containerd answers", containerd_answers, processes)
    for archive in sorted(STATE.glob("*.tar")):
        run(programs.path("ctr"), "-a", SOCKET, "-n", "k8s.io", "image", "import", "--local", archive, stdout=subprocess.DEVNULL)
    wait_for("the API server is ready", api_is_ready, processes)
    start_node(processes)
    wait_for("the node is ready", node_is_ready, processes)
    (STATE / "ready").touch()
    while not (STATE / "stop").exists():
        time.sleep(0.2)
    # The kubelet first, so that it does not start anything again.
    for name in ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-apiserver", "containerd", "etcd"):
        processes[name].kill()


STARTED = time.monotonic()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    main()
except Exception as error:  # the one place that is told outside
    (STATE / "failed").write_text(str(error))
    raise
