"""The web servers of hostile_server.py: plain HTTP for `--url` and `--upload-url`, HTTP/2 over TLS for `--rpm`."""

import os
import socket
import ssl
import struct
import tempfile
import threading
import time

NOISE = os.urandom(16 << 10)
ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x1b[2J"

# A key for tests only, because it is public.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgf7cnWKTwCtpFrrkt
m9kNRgY4rfZcSg0MQNTdtFKzkwShRANCAARc7/oQgZdZOpOSqhpWCs0/bJ1koPrb
5cgUeWJ/JEqhFh6lJlr9QdKhczJqQTxY8Y+H332DQ2ocBc8v+qMMWKIG
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBojCCAUegAwIBAgIUJCq/jeuGbSctOoICmzT8m/WAwqkwCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMaG9zdGlsZS50ZXN0MCAXDTI2MTEyNzAwMzU1OFoYDzIxMjYx
MTAzMDAzNTU4WjAXMRUwEwYDVQQDDAxob3N0aWxlLnRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAARc7/oQgZdZOpOSqhpWCs0/bJ1koPrb5cgUeWJ/JEqhFh6l
Jlr9QdKhczJqQTxY8Y+H332DQ2ocBc8v+qMMWKIGo28wbTAdBgNVHQ4EFgQUOSTc
FHDoIKKsGLEATy/N7bZQfhgwHwYDVR0jBBgwFoAUOSTcFHDoIKKsGLEATy/N7bZQ
fhgwDwYDVR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEw
CgYIKoZIzj0EAwIDSQAwRgIhAP5mn7hxPSNrkRcc3uf+GFEI4cIbPcvjO2mjwuKy
OUKOAiEA9iKyUi9q7uLFh0R1juPyj7L4iuVqFFuztpsNhqxGbEs=
-----END CERTIFICATE-----
"""

HTTP = [
    "silence",
    "close",
    "reset",
    "garbage",
    "drip-head",
    "endless-head",
    "many-heads",
    "redirects",
    "slow-redirects",
    "escaped-redirect",
    "redirect-port",
    "refusal",
    "body-silence",
    "body-drip",
    "body-flood",
    "body-reset",
    "huge-chunk",
    "tiny-chunks",
    "then-silence",
]
POST = ["silence", "close", "unread", "refusal", "many-heads", "drip-head"]
RPM = [
    "silence",
    "close",
    "garbage",
    "tls-drip",
    "no-http2",
    "h2-silence",
    "goaway",
    "settings-flood",
    "ping-flood",
    "continuation-flood",
    "config-drip",
    "config-endless",
    "config-escapes",
    "config-elsewhere",
    "small-silence",
    "small-drip",
    "large-silence",
    "large-reset",
    "large-flood",
    "upload-silence",
]
WEB = [f"http-{how}" for how in HTTP] + [f"post-{how}" for how in POST] + [f"rpm-{how}" for how in RPM]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
STATUS_200 = b"\x88"


def drip(sock, data):
    for byte in data:
        sock.sendall(bytes([byte]))
        time.sleep(1)


def forever(sock, data):
    while True:
        sock.sendall(data)


def until_closed(sock):
    while sock.recv(65536):
        pass


class Web:
    """Plain HTTP on one port; of `rpm-` HTTP/2 on four, one for each resource."""

    def __init__(self, behaviour, address, port, after, rate):
        self.kind, _, self.how = behaviour.partition("-")
        self.address, self.rate, self.after = address, rate, after
        self.begun = 0
        self.listeners = {"configuration": self.listen(port)}
        self.port = self.listeners["configuration"].getsockname()[1]
        if self.kind == "rpm":
            for name in ["small", "large", "upload"]:
                self.listeners[name] = self.listen(0)
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(CERTIFICATE)
                file.flush()
                self.tls.load_cert_chain(file.name)
            self.tls.set_alpn_protocols(["http/1.1"] if self.how == "no-http2" else ["h2"])

    def listen(self, port):
        sock = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.address, port))
        sock.listen(128)
        return sock

    def run(self):
        for name, listener in self.listeners.items():
            threading.Thread(target=self.accept, args=[name, listener], daemon=True).start()
        time.sleep(1e6)

    def accept(self, name, listener):
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=self.serve, args=[name, sock], daemon=True).start()

    def serve(self, name, sock):
        try:
            self.rpm(name, sock) if self.kind == "rpm" else self.http(sock)
        except (OSError, EOFError, ssl.SSLError):
            pass
        finally:
            sock.close()

    # --- HTTP/1.1 ---

    def http(self, sock):
        self.begun += 1
        if self.how == "close":
            return
        head = b""
        while b"\r\n\r\n" not in head:
            more = sock.recv(4096)
            if not more:
                return
            head += more
        getattr(self, "http_" + self.how.replace("-", "_"))(sock)

    def http_silence(self, sock):
        # Further input is not read.
        time.sleep(1e6)

    http_unread = http_silence

    def http_reset(self, sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def http_garbage(self, sock):
        forever(sock, NOISE)

    def http_drip_head(self, sock):
        drip(sock, OK)

    def http_endless_head(self, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        forever(sock, b"x" * 4096)

    def http_many_heads(self, sock):
        forever(sock, b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    def http_redirects(self, sock):
        sock.sendall(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")

    def http_slow_redirects(self, sock):
        time.sleep(5)
        self.http_redirects(sock)

    def http_escaped_redirect(self, sock):
        place = f"ftp://{ESCAPES}/" + "x" * 60_000
        sock.sendall(b"HTTP/1.1 302 " + ESCAPES.encode() + b"\r\nLocation: " + place.encode() + b"\r\n\r\n")

    def http_redirect_port(self, sock):
        sock.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/\r\nContent-Length: 0\r\n\r\n")

    def http_refusal(self, sock):
        sock.sendall(b"HTTP/1.1 503 " + b"No way" + b"\r\nContent-Length: 0\r\n\r\n")

    def http_body_silence(self, sock):
        sock.sendall(OK)
        until_closed(sock)

    def http_body_drip(self, sock):
        sock.sendall(OK)
        drip(sock, b"x" * 1000)

    def http_body_flood(self, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        forever(sock, NOISE)

    def http_body_reset(self, sock):
        sock.sendall(OK + NOISE)
        time.sleep(0.2)
        self.http_reset(sock)

    def http_huge_chunk(self, sock):
        sock.sendall(CHUNKED + b"fffffffffffffff0\r\n")
        forever(sock, b"x")

    def http_tiny_chunks(self, sock):
        sock.sendall(CHUNKED)
        forever(sock, b"1;" + b"e" * 1000 + b"\r\nx\r\n")

    def http_then_silence(self, sock):
        """Answers the first request correctly and no other."""
        if self.begun > 1:
            time.sleep(1e6)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")

    # --- HTTP/2 ---

    def url(self, name):
        return f"https://{self.address}:{self.listeners[name].getsockname()[1]}/{name}"

    def configuration(self):
        urls = ",".join(f'"{name}": "{self.url(path)}"' for name, path in [
            ("small_download_url", "small"),
            ("large_download_url", "large"),
            ("upload_url", "upload"),
        ])
        extra = ""
        if self.how == "config-escapes":
            urls = '"small_download_url": "\\u001b[31m\\u202e' + "x" * 50_000 + '"'
        elif self.how == "config-elsewhere":
            extra = ', "test_endpoint": "\\u001b[31mno.such.host.invalid"'
        return ('{"version": 1, "urls": {' + urls + "}" + extra + "}").encode()

    def rpm(self, name, plain):
        if self.how == "close":
            return
        if self.how == "silence":
            until_closed(plain)
        if self.how == "garbage":
            forever(plain, NOISE)
        if self.how == "tls-drip":
            drip(plain, b"\x16\x03\x03\x40\x00" + NOISE)
        sock = self.tls.wrap_socket(plain, server_side=True)
        if self.how == "h2-silence" or self.how == "no-http2":
            until_closed(sock)
            return
        Http2(self, name, sock).run()


class Http2:
    def __init__(self, server, name, sock):
        self.server, self.name, self.sock = server, name, sock
        self.lock = threading.Lock()
        self.is_loaded = False

    def send(self, kind, flags, stream, payload=b""):
        head = struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream)
        with self.lock:
            self.sock.sendall(head + payload)

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.sock.recv(length - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def run(self):
        how = self.server.how
        self.exactly(24)
        self.send(SETTINGS, 0, 0)
        if how == "goaway":
            self.send(GOAWAY, 0, 0, struct.pack(">II", 0, 11) + ESCAPES.encode() * 100)
        while how == "settings-flood":
            self.send(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535) * 100)
        while how == "ping-flood":
            self.send(PING, 0, 0, b"12345678")
        while True:
            head = self.exactly(9)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            stream = int.from_bytes(head[5:], "big")
            self.exactly(length)
            if kind == SETTINGS and not flags & 1:
                self.send(SETTINGS, 1, 0)
            elif kind == HEADERS:
                threading.Thread(target=self.answer, args=[stream], daemon=True).start()

    def answer(self, stream):
        try:
            self.respond(stream)
        except (OSError, ValueError):
            pass

    def head(self, stream):
        self.send(HEADERS, 4, stream, STATUS_200)

    def whole(self, stream, body):
        self.head(stream)
        self.send(DATA, 1, stream, body)

    def respond(self, stream):
        how, name = self.server.how, self.name
        # The first request of a connection loads the line, the others are probes.
        if self.is_loaded:
            name = "small"
        self.is_loaded |= name in ("large", "upload")
        if how == "continuation-flood":
            self.send(HEADERS, 0, stream, STATUS_200)
            while True:
                self.send(CONTINUATION, 0, stream, b"\x00\x01x\x01y" * 1000)
        if name == "configuration":
            self.respond_configuration(stream, how)
        elif name == "small":
            if how == "small-silence":
                return
            self.head(stream)
            while how == "small-drip":
                self.send(DATA, 0, stream, b"x")
                time.sleep(1)
            self.send(DATA, 1, stream, b"x")
        elif name == "large":
            self.respond_large(stream, how)
        elif how != "upload-silence":
            self.head(stream)

    def respond_configuration(self, stream, how):
        if how == "config-drip":
            self.head(stream)
            for byte in self.server.configuration():
                self.send(DATA, 0, stream, bytes([byte]))
                time.sleep(1)
        if how == "config-endless":
            self.head(stream)
            while True:
                self.send(DATA, 0, stream, NOISE)
        self.whole(stream, self.server.configuration())

    def respond_large(self, stream, how):
        if how == "large-silence":
            return
        if how == "large-reset":
            self.send(RST_STREAM, 0, stream, struct.pack(">I", 2))
            return
        self.head(stream)
        per_s = self.server.rate * 125_000
        while True:
            self.send(DATA, 0, stream, NOISE)
            if how != "large-flood":
                time.sleep(len(NOISE) / per_s)
