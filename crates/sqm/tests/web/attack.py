"""Repeats every attack that is possible on the port: attack.py PORT SECONDS prints the outcomes.

A thousand idle connections, half of them in the middle of a request, stay open all the time."""

import collections
import json
import os
import random
import re
import socket
import sys
import time

port, seconds = int(sys.argv[1]), float(sys.argv[2])
host = f"127.0.0.1:{port}"
chance = random.Random(8)
seen = collections.Counter()


def connect():
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def exchange(name, *pieces):
    """Sends this and counts the answer by its code; `closed` if there is none."""
    with connect() as peer:
        try:
            for piece in pieces:
                peer.sendall(piece)
        except OSError:
            pass  # Evicted before its end.
        try:
            head = peer.recv(65536)
        except OSError:
            head = b""
    code = head.split(b" ")[1].decode() if head.startswith(b"HTTP/1.1 ") else "closed"
    seen[f"{name} {code}"] += 1


def request(line, *headers, body=b"", address=host):
    lines = [f"{line} HTTP/1.1", f"Host: {address}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


with connect() as peer:
    peer.sendall(request("GET /api/v1/session"))
    token = re.search(rb'"token":"(\w+)"', peer.makefile("rb").read())[1].decode()

JSON = "Content-Type: application/json"
KNOWN = f"X-SQM-Token: {token}"
PIECE = b" " * 65536
CHUNK = b"10000\r\n" + PIECE + b"\r\n"

ATTACKS = [
    lambda: exchange("rebinding", request("GET /api/v1/config", address="evil.example")),
    lambda: exchange("other-origin", request("PUT /api/v1/config", JSON, "Origin: http://evil.example", "Content-Length: 2", body=b"{}")),
    lambda: exchange("no-token", request("POST /api/v1/config/revert", JSON, "Content-Length: 2", body=b"{}")),
    lambda: exchange("guess", request("POST /api/v1/session", JSON, KNOWN, "Content-Length: 16", body=b'{"password":"a"}')),
    lambda: exchange("fixation", request("DELETE /api/v1/session", "Cookie: sqm_session=" + "f" * 64, "X-SQM-Token: 0")),
    lambda: exchange("traversal", request("GET /..%2f..%2f..%2fetc%2fpasswd")),
    lambda: exchange("length", request("POST /api/v1/config/check", JSON, KNOWN, "Content-Length: 100000000"), *[PIECE] * 1600),
    lambda: exchange("chunks", request("POST /api/v1/config/check", JSON, KNOWN, "Transfer-Encoding: chunked"), *[CHUNK] * 1600),
    lambda: exchange("frames", request("GET /api/v1/session", "Upgrade: websocket", "Sec-WebSocket-Version: 13"), b"\x8f\xff" * 4000),
    lambda: exchange("noise", bytes(chance.randrange(256) for _ in range(2000))),
]

idle = []
for n in range(1000):
    peer = connect()
    if n % 2:
        try:
            peer.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        except OSError:
            pass  # Evicted for newer connections.
    idle.append(peer)
end = time.monotonic() + seconds
rounds = 0
while time.monotonic() < end:
    for attack in ATTACKS:
        attack()
    rounds += 1
    # In virtual time the clock advances only while processes wait.
    time.sleep(0.02)
print(json.dumps({"rounds": rounds, "idle": len(idle), "seen": seen}))
sys.stdout.flush()
os._exit(0)
