"""Checks every #include and every link of src/ against src/LAYERS, that no folder is missing, and that the version is one."""
import pathlib
import re
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
# Headers with a folder in their name that are the system's, not a third party's.
SYSTEM = {"arpa", "asm", "bits", "linux", "net", "netinet", "sys"}


def read_layers():
    layers = {}
    for line in (SOURCE / "LAYERS").read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, allowed = line.split(":", 1)
        own, _, foreign = allowed.partition("|")
        layers[folder.strip()] = (set(own.split()) - {"none"}, set(foreign.split()))
    return layers


def folder_of(path, layers):
    """The most specific listed folder: runtime/native before runtime."""
    candidates = [name for name in layers if path == name or path.startswith(name + "/")]
    return max(candidates, key=len, default=None)


class LayersTest(unittest.TestCase):
    def test_every_include_is_allowed(self):
        layers = read_layers()
        faults = []
        files = sorted(p for p in SOURCE.rglob("*") if p.suffix in (".cc", ".h"))
        self.assertGreater(len(files), 30)
        for file in files:
            relative = file.relative_to(SOURCE).as_posix()
            folder = folder_of(relative, layers)
            if folder is None:
                faults.append(f"{relative}: its folder is not in src/LAYERS")
                continue
            own, foreign = layers[folder]
            is_test = file.stem.endswith("_test")
            for kind, name in INCLUDE.findall(file.read_text()):
                if kind == '"':
                    target = folder_of(name, layers)
                    if is_test and name.startswith("support/"):
                        continue
                    if target != folder and target not in own:
                        faults.append(f'{relative}: may not include "{name}"')
                elif "/" in name:
                    top = name.split("/")[0]
                    if top in SYSTEM or top in foreign or (is_test and top in ("gtest", "nlohmann")):
                        continue
                    faults.append(f"{relative}: may not include <{name}>")
        self.assertEqual(faults, [])

    def test_every_grant_is_used(self):
        """A grant that no file needs is a way in that no reviewer is asked about."""
        layers = read_layers()
        used = {name: (set(), set()) for name in layers}
        for file in SOURCE.rglob("*"):
            if file.suffix not in (".cc", ".h"):
                continue
            own, foreign = used[folder_of(file.relative_to(SOURCE).as_posix(), layers)]
            for kind, name in INCLUDE.findall(file.read_text()):
                if kind == '"':
                    own.add(folder_of(name, layers))
                else:
                    foreign.add(name.split("/")[0].removesuffix(".h"))
        unused = {
            name: sorted((own - used[name][0]) | (foreign - used[name][1])) for name, (own, foreign) in layers.items()
        }
        self.assertEqual({name: grants for name, grants in unused.items() if grants}, {})

    def test_every_link_is_granted(self):
        """What CMake links into a room is a room that its files may include, and every such room is reached by a link."""
        layers = read_layers()
        rooms = {"caisson_" + name.replace("/", "_"): name for name in layers}
        links = {name: set() for name in layers}
        build = (SOURCE / "CMakeLists.txt").read_text()
        for target, libraries in re.findall(r"target_link_libraries\((caisson_\w+)\s+PUBLIC([^)]*)\)", build):
            links[rooms[target]].update(rooms[library] for library in libraries.split() if library in rooms)
        self.assertGreater(sum(map(len, links.values())), 30)
        ungranted = {name: sorted(links[name] - own) for name, (own, _) in layers.items() if links[name] - own}
        self.assertEqual(ungranted, {})
        compiled = {rooms["caisson_" + name] for name in re.findall(r"caisson_layer\((\w+)", build) if "caisson_" + name in rooms}

        def reached(name, seen):
            for other in links[name] - seen:
                seen.add(other)
                reached(other, seen)
            return seen

        for name, (own, _) in layers.items():
            if name in compiled and links[name]:
                self.assertEqual(sorted((own & compiled) - reached(name, set())), [], f"{name} includes what it does not link")

    def test_the_rules_bite(self):
        layers = read_layers()
        self.assertEqual(layers["base"], (set(), set()))
        self.assertNotIn("sandbox", layers["verify"][0])
        self.assertEqual(layers["sandbox"][1], set())
        self.assertTrue(all("bin" not in own for own, _ in layers.values()))


class VersionTest(unittest.TestCase):
    def test_program_and_build_agree(self):
        program = re.search(r'kVersion\[\] = "([^"]+)"', (SOURCE / "base/version.h").read_text())[1]
        build = re.search(r"project\(caisson VERSION (\S+)", (SOURCE.parent / "CMakeLists.txt").read_text())[1]
        self.assertEqual(program, build)


if __name__ == "__main__":
    unittest.main()
