"""Programs that people use, inside a sandbox with an allowlist, and the servers that they are made for outside: installs, clones,
pushes, queries and streams work where the policy allows the host, and fail at once where it does not. The servers have public
addresses in network namespaces of the test (tests/support/outside.py); the profile makes no exception for them. What leaves the
machine is seen on its cable.

CAISSON_EGRESS_ATTEMPTS=10000 makes so many attempts that must not leave, instead of 1000.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.caisson import CallerCase, both_callers, need_tool, skip  # noqa: E402
from support.outside import SERVER, Outside, run  # noqa: E402

PROFILE = """
version: 1
name: clients
extends: balanced
on_violation: report
network:
  mode: allowlist
  allow: [web.example, "web.example:80", "apt.example:80", index.example, registry.example, crates.example, goproxy.example, git.example,
          "tcp://git.example:22", "tcp://db.example:5432", "tls://grpc.example:8443", "silent.example:80"]
"""
# Longer than any client needs to be told no, shorter than any time-out of a connection.
AT_ONCE = 15
TRUST = {name: "/workspace/ca.pem" for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO",
                                                "PIP_CERT", "NPM_CONFIG_CAFILE")}  # fmt: skip
SETTINGS = {"HOME": "/scratch", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NPM_CONFIG_UPDATE_NOTIFIER": "false", "NPM_CONFIG_AUDIT": "false",
            "NPM_CONFIG_FUND": "false", "NPM_CONFIG_FETCH_RETRIES": "0", "GOSUMDB": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local",
            "GOPATH": "/scratch/go", "GOCACHE": "/scratch/gocache", "CARGO_HOME": "/scratch/cargo", "CARGO_NET_RETRY": "0",
            "GIT_TERMINAL_PROMPT": "0"}  # fmt: skip

FETCH_JAVA = """
import java.net.URI;
import java.net.http.*;
public class Fetch {
  public static void main(String[] arguments) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
    System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
  }
}
"""
FETCH_NODE = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t)).catch(e => { console.error(e.cause); process.exit(6) })"
# A text frame of 20,000 bytes there and back, through the upgrade of Node's own HTTP client.
WEBSOCKET_NODE = """
const request = require(process.argv[1].startsWith('https') ? 'https' : 'http').request(process.argv[1], {headers: {Connection: 'Upgrade',
  Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': Buffer.from('0123456789abcdef').toString('base64')}});
request.on('error', e => { console.error(e.code); process.exit(6) });
request.on('upgrade', (answer, socket, head) => {
  const text = Buffer.alloc(20000, 'caisson '), mask = Buffer.from([1, 2, 3, 4]);
  let got = head;
  socket.on('data', part => {
    got = Buffer.concat([got, part]);
    if (got.length < 4 + text.length) return;
    console.log(got.subarray(4).equals(text));
    socket.end(); process.exit(0);
  });
  const size = Buffer.alloc(4); size[0] = 0x81; size[1] = 0xfe; size.writeUInt16BE(text.length, 2);
  socket.write(Buffer.concat([size, mask, Buffer.from(text.map((byte, at) => byte ^ mask[at % 4]))]));
});
request.end();
"""
GRPC_PYTHON = """
import grpc, sys
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials(open("/workspace/ca.pem", "rb").read()))
try:
    print(len(channel.unary_unary("/test.Counter/Echo")(b"x" * 100000, timeout=20)),
          sum(int(one) for one in channel.unary_stream("/test.Counter/Count")(b"1000", timeout=20)))
except grpc.RpcError as error:
    sys.exit(f"{error.code()} {error.details()}")
"""

_outside = None


def outside():
    global _outside
    if _outside is None:
        made = Outside()
        made.__enter__()
        unittest.addModuleCleanup(made.__exit__)
        site = made.top / "site"
        (site / "web.example/page.txt").write_text("a page\n")
        _outside = made
    return _outside


class ClientCase:
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.outside = outside()

    def setUp(self):
        super().setUp()
        self.files = self.directory({"profile.yaml": PROFILE, "ca.pem": (self.outside.top / "ca.pem").read_text()})

    def as_caller(self, *command):
        return self.outside.at_host(*super().as_caller(*command))

    def need(self, *servers):
        for server in servers:
            if server in self.outside.missing:
                skip("egress_clients", f"the package {self.outside.missing[server]} is not installed")

    def inside(self, *argv, flags=(), env=None):
        variables = [word for name, value in (TRUST | SETTINGS | (env or {})).items() for word in ("-e", f"{name}={value}")]
        done = self.caisson("run", "--json", "--profile", self.files / "profile.yaml", "--workspace", self.files, *variables, *flags, "--",
                            *argv, timeout=90)  # fmt: skip
        self.assertNotEqual(done.stdout, b"", done.stderr)
        return self.read_result(done.stdout)

    def works(self, *argv, name, **options):
        """The command's output. It reached `name`, and tried nothing that is not allowed."""
        result = self.inside(*argv, **options)
        self.assertEqual(result["exit_code"], 0, self.story(result))
        self.assertEqual([one for one in result["violations"] if one["class"] == "NetworkAccessViolation"], [], self.story(result))
        uses = [use for use in result["network"] if use["name"] == name and use["protocol"] != "dns" and use["decision"] == "allowed"]
        self.assertTrue(uses and all(use["address"] == SERVER for use in uses), result["network"])
        return result["stdout"]

    def fails(self, *argv, name, **options):
        """The command fails at once, the result says which name it wanted, and that name was asked for nowhere."""
        begin = time.monotonic()
        result = self.inside(*argv, **options)
        self.assertLess(time.monotonic() - begin, AT_ONCE, self.story(result))
        self.assertNotEqual(result["exit_code"], 0, self.story(result))
        self.assertNotEqual(result["terminal_event"], "timeout")
        self.assertIn(name, [one["evidence"].get("name") for one in result["violations"]], self.story(result))
        self.assertNotIn(name, self.outside.asked())
        return result

    def site(self, name, files):
        for path, content in files.items():
            place = self.outside.top / "site" / f"{name}.example" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())


@both_callers
class Fetching(ClientCase):
    def test_curl(self):
        self.need("nginx")
        need_tool("curl", "curl")
        for flags, url in (((), "https://web.example/page.txt"), (("--http1.1",), "https://web.example/page.txt"),
                           ((), "http://web.example/page.txt")):  # fmt: skip
            self.assertEqual(self.works("curl", "-sS", *flags, url, name="web.example"), "a page\n")
        for url in ("https://denied.example/", "http://denied.example/"):
            self.fails("curl", "-sS", url, name="denied.example")

    def test_psql(self):
        self.need("postgres")
        need_tool("postgres", "psql")
        query = "SELECT sum(n), repeat('x', 3) FROM generate_series(1, 100000) n"
        got = self.works("psql", "-h", "db.example", "-U", "caisson", "-d", "postgres", "-Atc", query, name="db.example")
        self.assertEqual(got, "5000050000|xxx\n")
        self.fails("psql", "-h", "denied.example", "-U", "caisson", "-d", "postgres", "-c", "SELECT 1", name="denied.example")


class Clients(ClientCase, CallerCase):
    def test_streams(self):
        """10 MiB each way, with lengths and in chunks, over HTTP/2, HTTP/1.1 and without TLS."""
        self.need("nginx")
        need_tool("curl", "curl")
        whole = bytes(range(256)) * 256 * 160
        digest = hashlib.sha256(whole).hexdigest()
        (self.files / "large").write_bytes(whole)
        script = "curl -sS -N $1 $2/stream | sha256sum; curl -sS $1 -T /workspace/large $2/upload; echo; " \
                 "cat /workspace/large | curl -sS $1 -T - $2/upload"  # fmt: skip
        for flag, url in (("--http2", "https://web.example"), ("--http1.1", "https://web.example"), ("--http1.1", "http://web.example")):
            got = self.works("sh", "-c", script, "sh", flag, url, name="web.example").split()
            self.assertEqual([one for one in got if one != "-"], [digest] * 3, (flag, url))

    def test_wget(self):
        self.need("nginx")
        need_tool("wget", "wget")
        command = ("wget", "-qO-", "--ca-certificate=/workspace/ca.pem")
        self.assertEqual(self.works(*command, "https://web.example/page.txt", name="web.example"), "a page\n")
        self.fails(*command, "https://denied.example/page.txt", name="denied.example")

    def repository(self, name):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
        work, bare = self.directory({"file": "text\n"}), self.outside.top / "repositories/git" / name
        home = os.environ | {"HOME": str(work)}
        for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"], ["clone", "-q", "--bare", ".", bare]):
            run(*git, *command, cwd=work, env=home)
        return bare

    def push(self, bare, url, name, prepare="", **options):
        script = (f"{prepare} git clone -q {url} /scratch/clone && cd /scratch/clone && cat file && echo more >> file && "
                  "git -c user.name=t -c user.email=t@t commit -qam two && git push -q origin HEAD")  # fmt: skip
        self.assertEqual(self.works("sh", "-c", script, name=name, **options), "text\n")
        pushed = run("git", "-c", "safe.directory=*", "-C", bare, "show", "main:file")
        self.assertEqual(pushed, b"text\nmore\n")

    def test_git_over_https(self):
        self.need("nginx")
        need_tool("git", "git")
        self.push(self.repository("https.git"), "https://git.example/git/https.git", "git.example")
        self.fails("git", "clone", "-q", "https://denied.example/git/https.git", "/scratch/clone", name="denied.example")

    def test_git_over_ssh(self):
        self.need("sshd")
        need_tool("git", "git", "ssh")
        bare = self.repository("ssh.git")
        for name in ("user_key", "host_key.pub"):
            shutil.copy(self.outside.top / name, self.files / name)
            (self.files / name).chmod(0o644)
        ssh = "ssh -i /scratch/key -o UserKnownHostsFile=/scratch/known -o BatchMode=yes"
        prepare = "umask 077; cp /workspace/user_key /scratch/key; echo \"git.example $(cat /workspace/host_key.pub)\" > /scratch/known;"
        self.push(bare, f"ssh://root@git.example{bare}", "git.example", prepare, env={"GIT_SSH_COMMAND": ssh})
        self.fails("git", "clone", "-q", f"ssh://root@denied.example{bare}", "/scratch/clone", name="denied.example",
                   env={"GIT_SSH_COMMAND": "ssh -o BatchMode=yes"})  # fmt: skip

    def test_pip(self):
        self.need("nginx")
        if not pathlib.Path("/usr/lib/python3/dist-packages/pip").is_dir():
            skip("egress_clients", "the package python3-pip is not installed")
        wheel = "demo-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.files / wheel, "w") as archive:
            archive.writestr("demo.py", "TEXT = 'installed by pip'\n")
            archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
            archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("demo-1.0.dist-info/RECORD", "")
        content = (self.files / wheel).read_bytes()
        link = f'<a href="/files/{wheel}#sha256={hashlib.sha256(content).hexdigest()}">{wheel}</a>'
        self.site("index", {"simple/demo/index.html": f"<!DOCTYPE html><html><body>{link}</body></html>", f"files/{wheel}": content})
        pip = "python3 -m pip install -q --retries 0 --target /scratch/site --index-url https://{}.example/simple/ demo"
        show = " && PYTHONPATH=/scratch/site python3 -c 'import demo; print(demo.TEXT)'"
        self.assertEqual(self.works("sh", "-c", pip.format("index") + show, name="index.example"), "installed by pip\n")
        self.fails("sh", "-c", pip.format("denied"), name="denied.example")

    def test_npm(self):
        self.need("nginx")
        need_tool("npm", "npm", "node")
        (self.files / "package").mkdir()
        (self.files / "package/package.json").write_text('{"name": "demo", "version": "1.0.0", "main": "index.js"}')
        (self.files / "package/index.js").write_text("module.exports = 'installed by npm'\n")
        with tarfile.open(self.files / "demo.tgz", "w:gz") as archive:
            archive.add(self.files / "package", "package")
        content = (self.files / "demo.tgz").read_bytes()
        version = {"name": "demo", "version": "1.0.0", "dist": {"tarball": "https://registry.example/files/demo.tgz",
                                                               "shasum": hashlib.sha1(content).hexdigest()}}  # fmt: skip
        packument = {"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        self.site("registry", {"demo": json.dumps(packument), "files/demo.tgz": content})
        script = "mkdir /scratch/p && cd /scratch/p && npm install --silent --registry https://{}.example/ demo && node -p 'require(\"demo\")'"
        self.assertEqual(self.works("sh", "-c", script.format("registry"), name="registry.example").split("\n")[-2], "installed by npm")
        self.fails("sh", "-c", script.format("denied"), name="denied.example")

    def test_apt(self):
        """Plain HTTP, with requests that do not wait for each other's answers."""
        self.need("nginx")
        if shutil.which("dpkg-deb") is None or shutil.which("apt-ftparchive") is None:
            skip("egress_clients", "the package apt-utils is not installed")
        site = self.outside.top / "site/apt.example"
        for number in range(12):
            tree = self.directory({"DEBIAN/control": f"Package: demo{number}\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\n"})
            tree.chmod(0o755)
            run("dpkg-deb", "--root-owner-group", "-b", tree, site / f"demo{number}_1_all.deb")
        (site / "Packages").write_bytes(run("apt-ftparchive", "packages", ".", cwd=site))
        script = """set -e
mkdir -p /scratch/a/lists/partial /scratch/a/archives/partial /scratch/a/etc && touch /scratch/a/status
echo "deb [trusted=yes] http://$1.example ./" > /scratch/a/etc/sources.list
apt() { apt-get -q -o Dir=/scratch/a -o Dir::State=/scratch/a -o Dir::State::status=/scratch/a/status -o Dir::Cache=/scratch/a \
  -o Dir::Etc=/scratch/a/etc -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=0 "$@"; }
apt -o APT::Update::Error-Mode=any update >&2
cd /scratch/a && apt download $(seq -f demo%g 0 11) >&2
ls *.deb | wc -l"""
        self.assertEqual(self.works("sh", "-c", script, "sh", "apt", name="apt.example"), "12\n")
        self.fails("sh", "-c", script, "sh", "denied", name="denied.example")

    def test_cargo(self):
        self.need("nginx")
        program = shutil.which("cargo")
        if program is None:
            skip("egress_clients", "cargo is not installed")
        place = pathlib.Path(run("rustc", "--print", "sysroot").decode().strip())  # of rustup, or /usr
        flags = () if place == pathlib.Path("/usr") else ("-v", f"{place}:/opt/rust:ro")
        cargo = "/usr/bin/cargo" if place == pathlib.Path("/usr") else "/opt/rust/bin/cargo"
        tree = self.directory({"demo-1.0.0/Cargo.toml": '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2021"\n',
                               "demo-1.0.0/src/lib.rs": "pub fn text() {}\n"})  # fmt: skip
        with tarfile.open(self.files / "demo.crate", "w:gz") as archive:
            archive.add(tree / "demo-1.0.0", "demo-1.0.0")
        content = (self.files / "demo.crate").read_bytes()
        entry = {"name": "demo", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(content).hexdigest(), "features": {}, "yanked": False}
        self.site("crates", {"config.json": json.dumps({"dl": "https://crates.example/files/{crate}-{version}.crate"}),
                             "de/mo/demo": json.dumps(entry) + "\n", "files/demo-1.0.0.crate": content})  # fmt: skip
        manifest = '[package]\nname = "user"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ndemo = {version = "1", registry = "test"}\n'
        script = (f"mkdir -p /scratch/u/src && cd /scratch/u && touch src/lib.rs && printf '%s' '{manifest}' > Cargo.toml && "
                  f"{cargo} fetch -q && ls /scratch/cargo/registry/cache/*")  # fmt: skip
        rust = {"RUSTC": cargo.removesuffix("cargo") + "rustc"}
        registry = rust | {"CARGO_REGISTRIES_TEST_INDEX": "sparse+https://crates.example/"}
        self.assertEqual(self.works("sh", "-c", script, name="crates.example", flags=flags, env=registry), "demo-1.0.0.crate\n")
        registry = rust | {"CARGO_REGISTRIES_TEST_INDEX": "sparse+https://denied.example/"}
        self.fails("sh", "-c", script, name="denied.example", flags=flags, env=registry)

    def test_go(self):
        self.need("nginx")
        program = shutil.which("go")
        if program is None or not os.path.realpath(program).startswith("/usr/"):
            skip("egress_clients", "go is not installed below /usr")
        with zipfile.ZipFile(self.files / "v1.0.0.zip", "w") as archive:
            archive.writestr("demo.example/mod@v1.0.0/go.mod", "module demo.example/mod\n")
            archive.writestr("demo.example/mod@v1.0.0/mod.go", "package mod\n")
        versions = "demo.example/mod/@v/"
        self.site("goproxy", {versions + "list": "v1.0.0\n", versions + "v1.0.0.info": '{"Version": "v1.0.0"}',
                              versions + "v1.0.0.mod": "module demo.example/mod\n",
                              versions + "v1.0.0.zip": (self.files / "v1.0.0.zip").read_bytes()})  # fmt: skip
        script = "mkdir /scratch/m && cd /scratch/m && " + f"{program} mod download -json demo.example/mod@v1.0.0"
        got = json.loads(self.works("sh", "-c", script, name="goproxy.example", env={"GOPROXY": "https://goproxy.example"}))
        self.assertEqual(got["Version"], "v1.0.0")
        self.fails("sh", "-c", script, name="denied.example", env={"GOPROXY": "https://denied.example"})

    def test_java(self):
        self.need("nginx")
        need_tool("java", "java", "javac", "keytool")
        (self.files / "Fetch.java").write_text(FETCH_JAVA)
        run("javac", "-d", self.files, self.files / "Fetch.java")
        run("keytool", "-importcert", "-noprompt", "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "t", "-file", self.files / "ca.pem",
            "-keystore", self.files / "trust.p12")  # fmt: skip
        for path in self.files.iterdir():
            path.chmod(0o644)
        java = ("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Djavax.net.ssl.trustStore=/workspace/trust.p12",
                "-Djavax.net.ssl.trustStorePassword=changeit", "-cp", "/workspace", "Fetch")  # fmt: skip
        self.assertEqual(self.works(*java, "https://web.example/page.txt", name="web.example"), "a page\n")
        self.fails(*java, "https://denied.example/page.txt", name="denied.example")

    def test_node(self):
        self.need("nginx")
        need_tool("node", "node")
        self.assertEqual(self.works("node", "-e", FETCH_NODE, "https://web.example/page.txt", name="web.example"), "a page\n")
        for url in ("https://web.example/ws", "http://web.example/ws"):
            self.assertEqual(self.works("node", "-e", WEBSOCKET_NODE, url, name="web.example"), "true\n")
        self.fails("node", "-e", FETCH_NODE, "https://denied.example/page.txt", name="denied.example")
        self.fails("node", "-e", WEBSOCKET_NODE, "https://denied.example/ws", name="denied.example")

    def test_grpc(self):
        if not pathlib.Path("/usr/lib/python3/dist-packages/grpc").is_dir():
            skip("egress_clients", "the package python3-grpcio is not installed")
        got = self.works("python3", "-c", GRPC_PYTHON, "grpc.example:8443", name="grpc.example")
        self.assertEqual(got, "100000 499500\n")
        self.fails("python3", "-c", GRPC_PYTHON, "denied.example:8443", name="denied.example")

    def test_another_port_of_an_allowed_host(self):
        """Refused at once, as by a server that does not listen there."""
        need_tool("curl", "curl")
        result = self.inside("curl", "-sS", "https://web.example:8443/")
        self.assertEqual(result["exit_code"], 7, self.story(result))
        self.assertLess(result["duration_ms"], AT_ONCE * 1000)

    def test_a_name_server_that_does_not_answer(self):
        """The client waits for its own connection only, and is told in time."""
        need_tool("curl", "curl")
        script = ("curl -sS -o /dev/null -w '%{http_code}' http://silent.example/ & sleep 0.2; curl -sS http://web.example/page.txt; wait")
        begin = time.monotonic()
        result = self.inside("sh", "-c", script)
        self.assertTrue(result["stdout"].startswith("a page\n"), self.story(result))
        self.assertIn("502", result["stdout"])
        self.assertLess(time.monotonic() - begin, 25)


# Runs on the machine that runs caisson. Counts the packets on its cable while a sandbox tries what it may not.
CAPTURE = """
import json, socket, subprocess, sys
command = json.loads(sys.argv[1])
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.bind(("caisson0", 0))
packets.setblocking(False)
def seen():
    found = []
    while True:
        try: found.append(packets.recv(65536).hex())
        except BlockingIOError: return found
for code in sys.argv[2:]:
    done = subprocess.run([*command, code], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not done.stdout: sys.exit(done.stderr.decode())
    print(json.dumps([seen(), json.loads(done.stdout)]), flush=True)
"""

ATTEMPTS = """
import socket, ssl
def tried(deed):
    try: deed()
    except OSError: return 1
    return 0
def look_up(name): socket.getaddrinfo(name, 443, socket.AF_INET)
def hello(name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("web.example", 443), 5) as peer: context.wrap_socket(peer, server_hostname=name)
def request(host):
    with socket.create_connection(("web.example", 80), 5) as peer:
        peer.sendall(f"GET / HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
        if b" 403 " in peer.recv(100): raise OSError
def connect(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as peer:
        peer.settimeout(5); peer.connect(address); peer.send(b"secret")
names = [f"n{i}.%s.example" % ("evil", "web", "git")[i % 3] for i in range(attempts)]
failed = sum(tried(lambda: look_up(name)) for name in names)
for i in range(30):
    failed += tried(lambda: hello(f"h{i}.evil.example")) + tried(lambda: request(f"h{i}.evil.example"))
for address in (("93.184.216.10", 443), ("93.184.216.53", 53), ("8.8.8.8", 53), ("169.254.169.254", 80), ("198.18.0.200", 443)):
    failed += tried(lambda: connect(address))
    if not address[0].startswith("198.18."): failed += tried(lambda: connect(address, socket.SOCK_DGRAM))
print(failed)
"""


@both_callers
class Captured(ClientCase):
    def test_what_is_denied_sends_no_packet(self):
        self.need("nginx")
        attempts = int(os.environ.get("CAISSON_EGRESS_ATTEMPTS", "1000"))
        command = [str(self.binary), "run", "--json", "--profile", str(self.files / "profile.yaml"), "--workspace", str(self.files), "--timeout", "300s",
                   "--", "python3", "-S", "-c"]  # fmt: skip
        inner = CallerCase.as_caller(self, *command)
        allowed = "import socket; s = socket.create_connection(('web.example', 80), 10); s.sendall(b'GET / HTTP/1.0\\r\\nHost: web.example\\r\\n\\r\\n'); print(s.recv(9))"
        done = subprocess.run(self.outside.at_host("/usr/bin/python3", "-B", "-c", CAPTURE, json.dumps(inner), f"attempts = {attempts}" + ATTEMPTS,
                                                   allowed),
                              env=self.environment(), cwd=self.home, capture_output=True, timeout=600, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        (packets, denied), (control, reached) = (json.loads(line) for line in done.stdout.splitlines())
        self.assertEqual(packets, [], "a packet left")
        self.assertEqual((denied["exit_code"], denied["stdout"]), (0, f"{attempts + 69}\n"), self.story(denied))
        self.assertGreaterEqual(sum(one["count"] for one in denied["violations"]), attempts + 60)
        self.assertEqual(reached["exit_code"], 0, self.story(reached))
        self.assertGreater(len(control), 5, "the capture sees what is allowed")


if __name__ == "__main__":
    unittest.main()
