// What the rows about a sandbox with an allowlist share. The sandbox may reach api.example.com (TLS, port 443) and the
// names below example.net; nothing of it is ever dialled, because each attempt ends before that.
//
// A control has a network namespace of its own in which the same things exist: a DNS server that knows every name and
// a server that takes every connection.
#pragma once

#include <string>
#include <vector>

namespace caisson::escape {

inline std::vector<std::string> AllowlistFlags() {
  return {"--network",      "allowlist",     "--allow-domain", "api.example.com",
          "--allow-domain", "*.example.net", "--deny-domain",  "no.example.net"};
}

// Python: look_up(name) gives the address or None, reach(address, port, data) the first bytes that come back.
inline constexpr char kEgressPrelude[] = R"(
import fcntl, threading
CONTROL = 'CAISSON_CONTROL_DIRECTORY' in os.environ
def wire(name): return b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0'
def parse(packet):
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    return '.'.join(labels), at + 5
def answer_names(server):
    while True:
        packet, peer = server.recvfrom(2000)
        _, end = parse(packet)
        record = b'\xc0\x0c' + struct.pack('>HHIH', 1, 1, 30, 4) + socket.inet_aton('198.18.0.2')
        server.sendto(packet[:2] + struct.pack('>HHHHH', 0x8180, 1, 1, 0, 0) + packet[12:end] + record, peer)
def answer_all(server):
    while True:
        peer, _ = server.accept()
        peer.recv(4096)
        peer.sendall(b'REACHED')
        peer.close()
def make_outside():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack('16sH14s', b'lo', 0x49, b''))
        packed = lambda ip: struct.pack('16sH2s4s8s', b'lo:1', socket.AF_INET, b'\0\0', socket.inet_aton(ip), b'')
        fcntl.ioctl(s, 0x8916, packed('198.18.0.1'))
        fcntl.ioctl(s, 0x891C, packed('255.254.0.0'))
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(('127.0.0.53', 53))
    threading.Thread(target=answer_names, args=(names,), daemon=True).start()
    for port in (443, 444):
        server = socket.socket()
        server.bind(('0.0.0.0', port))
        server.listen(8)
        threading.Thread(target=answer_all, args=(server,), daemon=True).start()
if CONTROL:
    try: make_outside()
    except OSError as error: not_applicable('no network namespace of its own: ' + str(error))
def look_up(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.sendto(struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + wire(name) + struct.pack('>HH', 1, 1), ('127.0.0.53', 53))
        answer = s.recv(2000)
    return socket.inet_ntoa(answer[-4:]) if answer[3] & 15 == 0 and answer[7] == 1 else None
def reach(address, port, data):
    try:
        with socket.create_connection((address, port), 5) as s:
            s.sendall(data)
            got = s.recv(100)
    except OSError as error: blocked(error)
    if got.startswith(b'REACHED'): escaped('the server answered')
    blocked(0, 'closed after ' + repr(got))
def hello(*names):
    entries = b''.join(b'\0' + struct.pack('>H', len(n)) + n for n in names)
    sni = struct.pack('>H', len(entries)) + entries
    extensions = struct.pack('>HH', 0, len(sni)) + sni if names else b''
    body = b'\3\3' + b'r' * 32 + b'\0' + b'\0\2\x13\1' + b'\1\0' + struct.pack('>H', len(extensions)) + extensions
    message = b'\1' + struct.pack('>I', len(body))[1:] + body
    return b'\x16\3\1' + struct.pack('>H', len(message)) + message
)";

}  // namespace caisson::escape
