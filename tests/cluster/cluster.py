"""A Kubernetes cluster for tests, in namespaces of its own: real API server, controllers, scheduler, kubelet and containerd.

  cluster.py build          build the programs that are missing (Go; minutes, once)
  cluster.py up [AGENT]     start it, with an image that has caisson-agent (default: of build/dev or build/release)
  cluster.py status         is it up, and how caisson is told about it
  cluster.py exec COMMAND…  run a command in its network namespace, with CAISSON_KUBERNETES set
  cluster.py image [AGENT]  write the image with the agent, and import it into the running cluster
  cluster.py down           end it; nothing is left

Needs root. One cluster at a time."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import image
import programs
from programs import say

HERE = pathlib.Path(__file__).resolve().parent
STATE = programs.CACHE / "state"
PKI = STATE / "pki"
PORT = 16443
GROUP = "k8s-caisson"
NAMESPACE = "caisson"
IMAGE = "caisson.local/agent:dev"
PAUSE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void down(int signal) { _exit(signal == SIGCHLD); }
static void reap(int signal) { while (signal == SIGCHLD && waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) { signal(SIGINT, down); signal(SIGTERM, down); signal(SIGCHLD, reap); for (;;) pause(); }
"""
# What the runtime may do: proven to be enough, and each verb to be needed, by kubernetes_test.py.
RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/attach"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], cwd=PKI, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_certificate(name, subject, usage, names=""):
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
    openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
    (PKI / f"{name}.ext").write_text(f"extendedKeyUsage={usage}\n" + (f"subjectAltName={names}\n" if names else ""))
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt")


def write_kubeconfig(path, user, namespace="default"):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{PORT}", "certificate-authority": f"{PKI}/ca.crt"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "current-context": "x",
    }
    pathlib.Path(path).write_text(json.dumps(document))


def make_pki():
    PKI.mkdir(mode=0o700)
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key")
    openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=cluster", "-days", "2", "-out", "ca.crt")
    node = "/O=system:nodes/CN=system:node:node1"
    make_certificate("apiserver", "/CN=kube-apiserver", "serverAuth", "IP:127.0.0.1,IP:10.99.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes")
    make_certificate("admin", "/O=system:masters/CN=admin", "clientAuth")
    make_certificate("kcm", "/CN=system:kube-controller-manager", "clientAuth")
    make_certificate("sched", "/CN=system:kube-scheduler", "clientAuth")
    make_certificate("kubelet", node, "clientAuth")
    make_certificate("kubelet-server", node, "serverAuth", "IP:127.0.0.1,IP:10.99.0.1,DNS:node1")
    make_certificate("apiserver-kubelet", "/O=system:masters/CN=apiserver-kubelet", "clientAuth")
    openssl("genrsa", "-out", "sa.key", "2048")
    openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    for name in ("admin", "kcm", "sched", "kubelet"):
        write_kubeconfig(PKI / f"{name}.kubeconfig", {"client-certificate": f"{PKI}/{name}.crt", "client-key": f"{PKI}/{name}.key"})


def find_agent(given=None):
    top = HERE.parents[1]
    for path in [given] if given else [top / "build/dev/src/caisson-agent", top / "build/release/src/caisson-agent"]:
        if pathlib.Path(path).exists():
            return pathlib.Path(path)
    sys.exit("cluster: no caisson-agent; build it first: ./dev build")


def make_images(agent):
    image.write_agent_image(agent, STATE / "agent.tar", IMAGE, programs.CACHE)
    root = STATE / "pause"
    root.mkdir()
    subprocess.run(["gcc", "-static", "-O1", "-x", "c", "-", "-o", root / "pause"], input=PAUSE.encode(), check=True)
    layer = subprocess.run(["tar", "-C", root, "-cf", "-", "."], check=True, stdout=subprocess.PIPE).stdout
    image.write_archive(STATE / "pause.tar", "caisson.local/pause:1", [layer], {"Entrypoint": ["/pause"]})


def node_pid():
    """The first process of the cluster; None when there is none."""
    try:
        outer = int((STATE / "pid").read_text())
        children = pathlib.Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(children[0]) if children else None
    except (OSError, ValueError):
        return None


def api(method, path, body=None, content="application/json"):
    """The answer of the API server to its administrator. For processes in the cluster's network namespace."""
    context = ssl.create_default_context(cafile=PKI / "ca.crt")
    context.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"https://127.0.0.1:{PORT}{path}", data, {"Content-Type": content}, method=method)
    with urllib.request.urlopen(request, context=context, timeout=30) as reply:
        return json.loads(reply.read())


def enter_network():
    """Moves this process into the cluster's network namespace; nothing else of it changes."""
    descriptor = os.open(f"/proc/{node_pid()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


def make_account(name, rules, namespace=NAMESPACE):
    """A service account with these rights and the path of its kubeconfig."""
    top = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    api("POST", f"{top}/roles", {"metadata": {"name": name}, "rules": rules})
    api("POST", f"{top}/rolebindings", {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    })  # fmt: skip
    token = api("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", {"spec": {"expirationSeconds": 86400}})
    (STATE / f"{name}.token").write_text(token["status"]["token"] + "\n")
    write_kubeconfig(STATE / f"{name}.kubeconfig", {"tokenFile": f"{STATE}/{name}.token"}, namespace)
    return STATE / f"{name}.kubeconfig"


def write_settings(path, kubeconfig, **more):
    settings = {"version": 1, "image": IMAGE, "pull_policy": "Never", "kubeconfig": str(kubeconfig)} | more
    pathlib.Path(path).write_text(json.dumps(settings))
    return pathlib.Path(path)


def prepare_namespace():
    """Runs in a process of its own, in the cluster's network namespace."""
    enter_network()
    enforce = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    api("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": enforce}})
    write_settings(STATE / "kubernetes.yaml", make_account("caisson", RULES))


def up(agent=None):
    if os.geteuid() != 0:
        sys.exit("cluster: needs root")
    if node_pid():
        say("is up already")
        return
    if lacking := programs.missing():
        sys.exit("cluster: missing " + ", ".join(lacking) + "; fix: ./dev cluster build")
    shutil.rmtree(STATE, ignore_errors=True)
    (STATE / "log").mkdir(parents=True)
    say("certificates and images")
    make_pki()
    make_images(find_agent(agent))
    with open(STATE / "log/node.log", "wb") as log:
        node = subprocess.Popen(
            ["unshare", "-m", "-n", "-p", "-u", "--fork", "--kill-child", "--mount-proc", sys.executable, "-B", HERE / "node.py", STATE],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    (STATE / "pid").write_text(str(node.pid))
    told = 0
    while not (STATE / "ready").exists():
        lines = (STATE / "log/node.log").read_text(errors="replace").splitlines()
        for line in lines[told:]:
            say(line)
        told = len(lines)
        if node.poll() is not None:
            down()
            sys.exit("cluster: did not start")
        time.sleep(0.2)
    # Service accounts and the caches of controllers come a moment after the node.
    done = subprocess.run([sys.executable, "-B", __file__, "prepare"])
    if done.returncode != 0:
        down()
        sys.exit("cluster: could not be prepared")
    say("up; try: ./dev cluster exec caisson run --runtime kubernetes -- python3 -c 'print(1)'")


def remove_groups():
    for _ in range(100):
        left = [path for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/{GROUP}")] + list(pathlib.Path("/sys/fs/cgroup").glob(GROUP))
        if not left:
            return
        for top in left:
            for directory, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(directory)
                except OSError:
                    pass  # a process in it is still ending
        time.sleep(0.1)
    say(f"cgroups are left: {', '.join(map(str, left))}")


def down():
    outer = int((STATE / "pid").read_text()) if (STATE / "pid").exists() else 0
    if outer and node_pid():
        (STATE / "stop").touch()
        for _ in range(50):
            if not node_pid():
                break
            time.sleep(0.1)
        if node_pid():
            os.kill(node_pid(), signal.SIGKILL)  # its namespace ends with it
            time.sleep(0.5)
    remove_groups()
    shutil.rmtree(STATE, ignore_errors=True)


def status():
    if not node_pid():
        lacking = programs.missing()
        print("down" + (f"; missing: {', '.join(lacking)} (./dev cluster build)" if lacking else ""))
        return 1
    print(f"up\nCAISSON_KUBERNETES={STATE}/kubernetes.yaml\nlogs: {STATE}/log")
    return 0


def execute(command):
    if not node_pid():
        sys.exit("cluster: down")
    enter_network()
    os.environ["CAISSON_KUBERNETES"] = f"{STATE}/kubernetes.yaml"
    os.environ["PATH"] += f":{HERE.parents[1]}/build/release/src:{HERE.parents[1]}/build/dev/src"
    os.execvp(command[0], command)


def import_image(agent=None):
    programs.CACHE.mkdir(parents=True, exist_ok=True)
    out = (STATE if node_pid() else pathlib.Path.cwd()) / "agent.tar"
    image.write_agent_image(find_agent(agent), out, IMAGE, programs.CACHE)
    if node_pid():
        inside = ["nsenter", "-t", node_pid(), "-m", "-p", "--", programs.path("ctr"), "-a", "/run/cluster/containerd.sock", "-n", "k8s.io"]
        subprocess.run([*map(str, inside), "image", "import", "--local", str(out)], check=True, stdout=subprocess.DEVNULL)
    say(f"{IMAGE} in {out}")


if __name__ == "__main__":
    command, arguments = (sys.argv[1:2] or ["help"])[0], sys.argv[2:]
    actions = {
        "build": programs.build, "up": up, "down": down, "image": import_image, "prepare": prepare_namespace,
        "status": lambda: sys.exit(status()), "exec": lambda *words: execute(list(words)), "help": lambda: print(__doc__),
    }  # fmt: skip
    if command not in actions or (command == "exec" and not arguments):
        sys.exit(__doc__)
    actions[command](*arguments)
