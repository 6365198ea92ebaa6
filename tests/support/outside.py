"""A small internet for tests: one network namespace for the machine that runs caisson, one for the servers, and a cable between
them. Addresses are public ones, so no rule of a profile has to make an exception for them; nothing leaves the two namespaces.

    with Outside() as outside:            # root only
        outside.at_host("caisson", …)     # a command line that runs on the machine
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from support import caisson, postgres

HERE = pathlib.Path(__file__).resolve().parent
HOST, SERVER, NAMES = "93.184.216.1", "93.184.216.10", "93.184.216.53"
SITES = ("web", "apt", "index", "registry", "crates", "goproxy", "git", "grpc", "db")

# Holds a namespace until its standard input ends.
HOLD = """
import ctypes, os, sys
for scope in ("all", "default"):
    try:
        with open(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "w") as file: file.write("1")
    except OSError: pass  # a kernel without IPv6
if len(sys.argv) > 1:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(sys.argv[1].encode(), os.path.realpath("/etc/resolv.conf").encode(), None, 4096, None) != 0:
        raise OSError(ctypes.get_errno(), "mount resolv.conf")
print("up", flush=True)
sys.stdin.read()
"""

NGINX = """
pid {top}/nginx.pid;
error_log {top}/nginx.log;
worker_processes 1;
user root;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  default_type application/octet-stream;
  client_body_temp_path {top}/nginx-body; proxy_temp_path {top}/nginx-proxy; fastcgi_temp_path {top}/nginx-1;
  uwsgi_temp_path {top}/nginx-2; scgi_temp_path {top}/nginx-3;
  client_max_body_size 0;
  keepalive_requests 1000000;
  server {{
    listen {server}:80;
    listen {server}:443 ssl http2;
    ssl_certificate {top}/certificate.pem;
    ssl_certificate_key {top}/key.pem;
    server_name *.example;
    root {top}/site/$host;
    location ~ ^/(git/|stream|upload|ws) {{
      proxy_pass http://127.0.0.1:8081;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $http_connection;
    }}
    location / {{ index index.html; }}
  }}
}}
"""

SSHD = """
Port 22
ListenAddress {server}
HostKey {top}/host_key
PidFile none
AuthorizedKeysFile {top}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr.decode(errors='replace')}")
    return done.stdout


class Outside:
    def __init__(self):
        if not caisson.STARTED_BY_ROOT:
            caisson.skip("root", "needs network namespaces of its own")
        if shutil.which("ip") is None:
            caisson.skip("root", "the package iproute2 is not installed")
        self.stack = contextlib.ExitStack()
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-", dir="/tmp"))
        self.stack.callback(shutil.rmtree, self.top, ignore_errors=True)
        self.top.chmod(0o755)
        self.missing = {}  # server -> the package that is not installed

    def __enter__(self):
        try:
            self.make_networks()
            self.make_certificates()
            for site in SITES:
                (self.top / "site" / f"{site}.example").mkdir(parents=True)
            (self.top / "repositories/git").mkdir(parents=True)
            self.serve("/usr/bin/python3", "-B", HERE / "outside_servers.py", self.top, SERVER, NAMES)
            self.start_nginx()
            self.start_sshd()
            self.start_postgres()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def hold(self, *command):
        """Starts a program that says "up" and ends with its standard input."""
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.stack.callback(self.release, process)
        if process.stdout.readline() != "up\n":
            raise AssertionError(f"{command} did not start")
        return process.pid

    @staticmethod
    def release(process):
        process.stdin.close()
        process.stdout.close()
        process.wait(20)

    def make_networks(self):
        (self.top / "resolv.conf").write_text(f"nameserver {NAMES}\n")
        python = ["/usr/bin/python3", "-B", "-c", HOLD]
        self.host = self.hold("unshare", "--net", "--mount", "--propagation", "private", *python, self.top / "resolv.conf")
        self.internet = self.hold("unshare", "--net", *python)
        run(*self.at_host("ip", "link", "add", "caisson0", "type", "veth", "peer", "name", "caisson1", "netns", self.internet))
        for place, addresses, link in ((self.at_host, [HOST], "caisson0"), (self.at_internet, [SERVER, NAMES], "caisson1")):
            run(*place("ip", "link", "set", "lo", "up"))
            for address in addresses:
                run(*place("ip", "address", "add", f"{address}/24", "dev", link))
            run(*place("ip", "link", "set", link, "up"))

    def at_host(self, *command):
        return ["nsenter", f"--net=/proc/{self.host}/ns/net", f"--mount=/proc/{self.host}/ns/mnt", *(str(word) for word in command)]

    def at_internet(self, *command):
        return ["nsenter", f"--net=/proc/{self.internet}/ns/net", *(str(word) for word in command)]

    def make_certificates(self):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        run("openssl", "req", "-x509", *key, "-subj", "/CN=Test authority", "-keyout", self.top / "ca-key.pem", "-out", self.top / "ca.pem")
        run("openssl", "req", *key, "-subj", "/CN=web.example", "-keyout", self.top / "key.pem", "-out", self.top / "request.pem")
        names = ",".join(f"DNS:{site}.example" for site in SITES)
        (self.top / "names").write_text(f"subjectAltName={names}\n")
        run("openssl", "x509", "-req", "-in", self.top / "request.pem", "-CA", self.top / "ca.pem", "-CAkey", self.top / "ca-key.pem",
            "-CAcreateserial", "-days", "2", "-extfile", self.top / "names", "-out", self.top / "certificate.pem")  # fmt: skip

    def serve(self, *command):
        return self.hold(*self.at_internet(*command))

    def daemon(self, name, command, ready):
        """A server that stays in the foreground, until the test ends. Waits until its port answers."""
        log = open(self.top / f"{name}.out", "w", encoding="utf-8")
        process = subprocess.Popen(self.at_internet(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.stack.callback(log.close)
        self.stack.callback(self.stop, process)
        probe = ["/usr/bin/python3", "-c", f"import socket; socket.create_connection(({SERVER!r}, {ready}), 1)"]

        def answers():
            if process.poll() is not None:
                raise AssertionError(f"{name} ended: {(self.top / f'{name}.out').read_text()}")
            return subprocess.run(self.at_internet(*probe), capture_output=True, check=False).returncode == 0

        caisson.wait_until(answers, 30, f"{name} answers")

    @staticmethod
    def stop(process):
        process.terminate()
        process.wait(20)

    def start_nginx(self):
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
        if program is None:
            self.missing["nginx"] = "nginx-light"
            return
        (self.top / "nginx.conf").write_text(NGINX.format(top=self.top, server=SERVER))
        self.daemon("nginx", [program, "-c", self.top / "nginx.conf", "-g", "daemon off;"], 443)

    def start_sshd(self):
        program = shutil.which("sshd", path="/usr/sbin")
        if program is None:
            self.missing["sshd"] = "openssh-server"
            return
        for name in ("host_key", "user_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.top / name)
        (self.top / "sshd.conf").write_text(SSHD.format(top=self.top, server=SERVER))
        place = pathlib.Path("/run/sshd")  # compiled in: an empty directory that sshd locks a process into
        if not place.exists():
            place.mkdir(mode=0o755)
            self.stack.callback(place.rmdir)
        self.daemon("sshd", [program, "-D", "-e", "-f", self.top / "sshd.conf"], 22)

    def start_postgres(self):
        if postgres.programs() is None:
            self.missing["postgres"] = "postgresql"
            return
        server = postgres.Postgres()
        self.stack.callback(shutil.rmtree, server.root, ignore_errors=True)
        with open(server.root / "data/postgresql.conf", "a", encoding="ascii") as settings:
            settings.write(f"listen_addresses = '{SERVER}'\n")
        with open(server.root / "data/pg_hba.conf", "a", encoding="ascii") as settings:
            settings.write("host all all 0.0.0.0/0 trust\n")
        self.daemon("postgres", [*server.as_user, server.bin / "postgres", "-D", server.root / "data"], 5432)

    def asked(self):
        """The names that the DNS server was asked for."""
        path = self.top / "asked"
        return set(path.read_text().split()) if path.exists() else set()
