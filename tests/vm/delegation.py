"""Inside the virtual machine: a part of the cgroup tree given to the user, as systemd gives it."""

import os
import pathlib

CGROUPS = pathlib.Path("/sys/fs/cgroup")


def delegate(name, controllers):
    """What systemd does for Delegate=: the directory and three files become the user's, the limits above stay root's.
    Returns the group, as seen from CGROUPS, that the user's processes are to be put into."""
    enable = " ".join("+" + controller for controller in controllers)
    (CGROUPS / "cgroup.subtree_control").write_text(enable)
    (CGROUPS / "user.slice" / "cgroup.subtree_control").write_text(enable)
    group = CGROUPS / "user.slice" / name
    (group / "shell.scope").mkdir(parents=True)
    for path in (group, group / "shell.scope"):
        for part in (path, path / "cgroup.procs", path / "cgroup.threads", path / "cgroup.subtree_control"):
            os.chown(part, 1000, 1000)
    return f"user.slice/{name}/shell.scope"
