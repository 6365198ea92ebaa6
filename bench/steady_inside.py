"""One workload, timed by itself: steady_inside.py WORKLOAD SCRATCH SCALE. The same file inside the sandbox and outside.

Prints a JSON object: {"seconds": {measure: seconds}, "digest": what came out, to be the same inside and outside}. Reads
what it needs from its own directory, writes below SCRATCH alone. SCALE shrinks the work of a trial run; it is 1 otherwise.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def python_loop(scratch, scale):
    total = 0
    for number in range(round(6_000_000 * scale)):
        total = (total * 31 + number) & 0xFFFFFFFF
    return str(total)


def c_loop(scratch, scale):
    return subprocess.run([HERE / "loop", str(round(300_000_000 * scale))], capture_output=True, text=True, check=True).stdout


def gcc(scratch, scale):
    """Each file by a compiler of its own, as make would do it."""
    sources = sorted(path.name for path in (HERE / "source").glob("*.c"))
    objects = [scratch / name.replace(".c", ".o") for name in sources]
    for name, compiled in zip(sources, objects):
        subprocess.run(["gcc", "-O1", "-c", "-o", compiled, name], cwd=HERE / "source", check=True)
    subprocess.run(["gcc", "-Wl,--build-id=none", "-o", "program", *(path.name for path in objects)], cwd=scratch, check=True)
    return hashlib.sha256((scratch / "program").read_bytes()).hexdigest()


def git_clone(scratch, scale):
    settings = scratch / "gitconfig"
    settings.write_text("[safe]\n\tdirectory = *\n")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "clone", "-q", "--no-local", "repository", scratch / "clone"], cwd=HERE, env=environment, check=True)
    listed = subprocess.run(["git", "-C", scratch / "clone", "rev-parse", "HEAD^{tree}"], env=environment, capture_output=True, text=True, check=True)
    return listed.stdout


def files(scratch, scale):
    """10,000 small files in a hundred directories: written, read, removed; a time for each."""
    paths = [scratch / str(number % 100) / f"{number}.txt" for number in range(round(10_000 * scale))]
    times, content = {}, b"a line of text\n" * 20
    begin = time.perf_counter()
    for number in range(100):
        (scratch / str(number)).mkdir()
    for path in paths:
        path.write_bytes(content)
    times["10,000 files written"] = time.perf_counter() - begin
    begin = time.perf_counter()
    size = sum(len(path.read_bytes()) for path in paths)
    times["10,000 files read"] = time.perf_counter() - begin
    begin = time.perf_counter()
    for path in paths:
        path.unlink()
    times["10,000 files removed"] = time.perf_counter() - begin
    return str(size), times


def main():
    name, scratch = sys.argv[1], pathlib.Path(sys.argv[2]) / sys.argv[1]
    scratch.mkdir()
    begin = time.perf_counter()
    result = globals()[name](scratch, float(sys.argv[3]))
    seconds = {name: time.perf_counter() - begin}
    shutil.rmtree(scratch)
    digest, parts = result if isinstance(result, tuple) else (result, {})
    print(json.dumps({"seconds": parts or seconds, "digest": digest}))


if __name__ == "__main__":
    main()
