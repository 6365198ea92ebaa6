"""The servers of tests/support/outside.py that are not programs of Debian: DNS, and an HTTP server behind nginx for git, uploads,
streams and WebSockets; gRPC where python3-grpcio is installed. Runs in the network namespace that stands for the internet.

  outside_servers.py DIRECTORY ADDRESS DNS_ADDRESS    prints "up"; ends with its standard input
"""

import base64
import contextlib
import hashlib
import http.server
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading

CHUNK = bytes(range(256)) * 256
STREAM_CHUNKS = 160  # 10 MiB


def serve_names(address, answer, log):
    """Answers every name below .example but denied ones with `answer`; writes each name asked for to the log."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    while True:
        packet, peer = server.recvfrom(2000)
        labels, at = [], 12
        while packet[at]:
            labels.append(packet[at + 1 : at + 1 + packet[at]].decode("latin-1"))
            at += 1 + packet[at]
        name, kind = ".".join(labels).lower(), struct.unpack_from(">H", packet, at + 1)[0]
        log.write(name + "\n")
        log.flush()
        if name.startswith("silent."):
            continue
        known = name.endswith(".example")
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 30, 4) + socket.inet_aton(answer) if known and kind == 1 else b""
        header = packet[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, 1 if record else 0, 0, 0)
        server.sendto(header + packet[12 : at + 5] + record, peer)


class Backend(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory = None

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, body, kind="text/plain", status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def git(self):
        path, _, query = self.path.partition("?")
        environment = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.directory), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                       "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                       "REMOTE_USER": "tester", "REMOTE_ADDR": "192.0.2.1", "HOME": str(self.directory),
                       "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                       "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                       "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
                       "GIT_CONFIG_KEY_1": "http.receivepack", "GIT_CONFIG_VALUE_1": "true"}  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=self.body(), env=environment, capture_output=True, check=False)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(STREAM_CHUNKS):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK))
        self.wfile.write(b"0\r\n\r\n")

    def websocket(self):
        """Returns every frame without its mask, until the client closes."""
        accept = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.end_headers()
        self.close_connection = True
        while len(first := self.rfile.read(2)) == 2:
            size, code = first[1] & 127, first[0] & 15
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(size)))
            head = bytes([first[0], size]) if size < 126 else bytes([first[0], 126]) + struct.pack(">H", size)
            self.wfile.write(head + data)
            self.wfile.flush()
            if code == 8:
                return

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            self.websocket()
        elif self.path.startswith("/git/"):
            self.git()
        elif self.path == "/stream":
            self.stream()
        else:
            self.answer(b"no such page\n", status=404)

    def do_POST(self):
        if self.path.startswith("/git/"):
            return self.git()
        return self.answer(hashlib.sha256(self.body()).hexdigest().encode())

    do_PUT = do_POST


def serve_grpc(directory, address):
    with contextlib.suppress(ImportError):
        import grpc
        from concurrent import futures

        def count(request, _):
            for number in range(int(request)):
                yield str(number).encode()

        handler = grpc.method_handlers_generic_handler("test.Counter", {
            "Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
            "Count": grpc.unary_stream_rpc_method_handler(count)})  # fmt: skip
        server = grpc.server(futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((handler,))
        pair = ((directory / "key.pem").read_bytes(), (directory / "certificate.pem").read_bytes())
        server.add_secure_port(f"{address}:8443", grpc.ssl_server_credentials([pair]))
        server.start()
        return server
    return None


def main():
    directory, address, names = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    Backend.directory = directory / "repositories"
    backend = http.server.ThreadingHTTPServer(("127.0.0.1", 8081), Backend)
    threading.Thread(target=backend.serve_forever, daemon=True).start()
    log = open(directory / "asked", "a", encoding="ascii")
    threading.Thread(target=serve_names, args=(names, address, log), daemon=True).start()
    server = serve_grpc(directory, address)
    print("up", flush=True)
    sys.stdin.read()
    if server:
        server.stop(0)
    os._exit(0)


main()
