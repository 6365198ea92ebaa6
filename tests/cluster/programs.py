"""The programs of a cluster: kube (API server, controllers, scheduler and kubelet in one program), containerd and runc,
built once from their Go modules and kept below ${XDG_CACHE_HOME:-~/.cache}/caisson/cluster by version. etcd and the CNI
plugin for the loopback come from Debian."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

KUBERNETES, CONTAINERD, RUNC = "1.34.4", "2.2.5", "1.5.2"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "caisson", "cluster")
PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
BUILT = {
    f"kubernetes-{KUBERNETES}": ("kube",),
    f"containerd-{CONTAINERD}": ("containerd", "containerd-shim-runc-v2", "ctr"),
    f"runc-{RUNC}": ("runc",),
}
DEBIAN = {"etcd": "etcd-server", "/usr/lib/cni/loopback": "containernetworking-plugins", "openssl": "openssl", "gcc": "gcc"}

MAIN = """// The parts of a cluster in one program, chosen by the name it is called by.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	parts := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	if part, known := parts[filepath.Base(os.Args[0])]; known {
		os.Exit(cli.Run(part()))
	}
	println("call it by the name of a part")
	os.Exit(2)
}
"""


def path(name):
    """Where a built program is."""
    (folder,) = [folder for folder, names in BUILT.items() if name in names]
    return CACHE / folder / name


def missing():
    """What a cluster lacks here; empty: nothing."""
    lacking = [str(path(name)) for names in BUILT.values() for name in names if not path(name).exists()]
    lacking += [f"{name} (apt-get install {package})" for name, package in DEBIAN.items() if shutil.which(name) is None]
    return lacking


def say(text):
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def fetch(module, version, work):
    """A writable copy of a module's source."""
    done = subprocess.run(["go", "mod", "download", "-json", f"{module}@v{version}"], cwd=work, check=True, stdout=subprocess.PIPE)
    target = work / module.replace("/", "_")
    shutil.copytree(json.loads(done.stdout)["Dir"], target)
    subprocess.run(["chmod", "-R", "u+w", target], check=True)
    return target


def go_build(source, package, output, flags, ldflags="", cgo="0"):
    say(f"building {output.name}; the first time takes minutes")
    output.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": cgo, "GOMAXPROCS": os.environ.get("GOMAXPROCS", "1")}
    partial = output.with_name(output.name + ".partial")
    subprocess.run(
        ["nice", "-n", "19", "go", "build", "-p", "1", "-trimpath", *flags, "-ldflags", f"-s -w {ldflags}", "-o", partial, package],
        cwd=source, env=environment, check=True,
    )  # fmt: skip
    partial.rename(output)


def build_kubernetes(work):
    source = fetch("k8s.io/kubernetes", KUBERNETES, work)
    for name in ("go.work", "go.work.sum"):
        (source / name).unlink(missing_ok=True)
    # The module's own replacements name folders that the module lacks; the same code is published as modules.
    text = (source / "go.mod").read_text()
    minor = KUBERNETES.removeprefix("1.")
    text = re.sub(r"(?m)^(\t(k8s\.io/[a-z0-9-]+) => )\./staging/.*$", rf"\1\2 v0.{minor}", text)
    (source / "go.mod").write_text(text)
    main = source / "cmd/hyper/main.go"
    main.parent.mkdir()
    main.write_text(MAIN)
    major, minor, _ = KUBERNETES.split(".")
    ldflags = " ".join(
        f"-X {package}.gitVersion=v{KUBERNETES} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} "
        f"-X {package}.gitTreeState=clean -X {package}.gitCommit=module -X {package}.buildDate=2026-01-01T00:00:00Z"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    )
    go_build(source, "./cmd/hyper", path("kube"), [], ldflags)


def build_containerd(work):
    source = fetch("github.com/containerd/containerd/v2", CONTAINERD, work)
    for name in BUILT[f"containerd-{CONTAINERD}"]:
        go_build(
            source, f"./cmd/{name}", path(name), ["-tags", "no_btrfs no_devmapper no_zfs no_aufs"],
            f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD}",
        )  # fmt: skip


def build_runc(work):
    source = fetch("github.com/opencontainers/runc", RUNC, work)
    go_build(
        source, ".", path("runc"), ["-tags", "seccomp netgo osusergo"],
        f"-X main.version={RUNC} -linkmode external -extldflags -static", cgo="1",
    )  # fmt: skip


def build():
    """Builds what is missing."""
    for package in (package for name, package in DEBIAN.items() if shutil.which(name) is None):
        sys.exit(f"cluster: apt-get install {package}")
    if not missing():
        return
    if shutil.which("go") is None:
        sys.exit("cluster: the programs of the cluster are built with Go 1.25 or newer; put go into PATH")
    builders = {f"kubernetes-{KUBERNETES}": build_kubernetes, f"containerd-{CONTAINERD}": build_containerd, f"runc-{RUNC}": build_runc}
    for folder, builder in builders.items():
        if all(path(name).exists() for name in BUILT[folder]):
            continue
        with tempfile.TemporaryDirectory(prefix="cluster-build-", dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
            builder(pathlib.Path(work))
