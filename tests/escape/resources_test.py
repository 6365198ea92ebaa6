"""The inventory of kernel resources (resources.yaml) is complete, and says what the source and a running sandbox say."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import REPOSITORY, both_callers, skip

try:
    import yaml
except ImportError:
    yaml = None

MODES = ("v2", "hybrid", "delegated", "none")


def inventory():
    if yaml is None:
        skip("yaml", "python3-yaml is not installed")
    return yaml.safe_load((REPOSITORY / "tests/escape/resources.yaml").read_text(encoding="utf-8"))


def of_mode(value, mode):
    return value[mode] if isinstance(value, dict) else value


def absent_in(mode):
    """The names under which isolation.degraded lists what has neither wall nor meter in this mode."""
    walls = [of_mode(one["wall"], mode) for one in inventory() if "wall" in one]
    return {wall["reported"] for wall in walls if isinstance(wall, dict)}


class Inventory(unittest.TestCase):
    def test_every_resource_has_a_wall_or_a_meter_or_says_why_not(self):
        ids = [one["id"] for one in inventory()]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertGreater(len(ids), 25)
        for one in inventory():
            with self.subTest(one["id"]):
                self.assertTrue(one["what"])
                self.assertNotEqual("unused" in one, "wall" in one)
                self.assertEqual("meter" in one, "wall" in one)
                for mode in MODES if "wall" in one else ():
                    wall, meter = of_mode(one["wall"], mode), of_mode(one["meter"], mode)
                    if isinstance(wall, dict):
                        self.assertEqual(set(wall), {"absent", "reported"})
                        continue
                    # Without a wall there must be a meter that ends the run.
                    self.assertFalse(wall.startswith("none") and meter.startswith("none"), mode)

    def test_every_row_exists(self):
        rows = {path.name[:3].upper() for path in (REPOSITORY / "tests/escape").glob("[a-k][0-9][0-9]_*.cc")}
        for one in inventory():
            with self.subTest(one["id"]):
                self.assertTrue(one["rows"])
                self.assertEqual(set(one["rows"]) - rows, set())

    def test_mechanisms_are_in_the_source(self):
        source = "".join(path.read_text() for path in (REPOSITORY / "src/sandbox").glob("*.cc"))
        source += "".join(path.read_text() for path in (REPOSITORY / "profiles/seccomp").glob("*.json"))
        text = json.dumps(inventory())
        words = set(re.findall(r"`((?:cpu|memory|pids)\.[\w.]+|[A-Z][A-Z]+_\w+|max_\w+|nr_inodes|oom_kill|smaps_rollup|VmPTE|sysvipc/shm|1/net/netlink)`", text))
        self.assertGreater(len(words), 20)
        self.assertEqual({word for word in words if word not in source}, set())

    def test_losses_are_those_of_the_source(self):
        source = (REPOSITORY / "src/sandbox/sandbox.cc").read_text()
        (losses,) = re.findall(r"kLossesWithoutCgroup\[\] = \{(.*?)\};", source, re.S)
        self.assertEqual(set(re.findall(r'"(\w+): ', losses)), absent_in("none"))
        for mode in ("v2", "hybrid", "delegated"):
            self.assertEqual(absent_in(mode), set())


@both_callers
class Running:
    def test_what_is_absent_is_reported(self):
        done = subprocess.run(
            self.command("run", "--json", "--", "/bin/true"),
            env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip
        isolation = json.loads(done.stdout)["isolation"]
        driver = isolation["cgroup"]["driver"]
        names = {entry.split(":")[0] for entry in isolation["degraded"]}
        mode = "delegated" if driver == "v2" and self.AS_USER else driver
        # A machine may lack more than that (Landlock, the cpu controller).
        self.assertEqual(absent_in(mode) - names, set())
        self.assertEqual("cgroup" in names, driver == "none")


if __name__ == "__main__":
    unittest.main()
