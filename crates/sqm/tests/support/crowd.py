"""Holds many hostile connections of one kind until it is killed:

    crowd.py KIND SERVER PLACE COUNT [HEADER]

KIND is one of those below. SERVER is `socket`, `page` or `metrics`. PLACE is the path of the socket or a port on this machine; at
the socket it first becomes the user `nobody`. HEADER is added to requests that have a body. Prints `there` once COUNT connections
have been made. It replaces each connection that the server ends, so that there are always as many as the server allows."""

import os
import resource
import socket
import sys
import time

kind, server, place, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
header = sys.argv[5] + "\r\n" if len(sys.argv) > 5 else ""
host = "localhost"
path, post, events = {
    "socket": ("/v1/status", "/v1/apply", "/v1/events"),
    "page": ("/api/v1/history?points=3600", "/api/v1/session", "/api/v1/events"),
    "metrics": ("/metrics", "/metrics", "/metrics"),
}[server]
GET = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
POST = f"POST {post} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{header}Content-Length: 100\r\n\r\n"
STREAM = f"GET {events} HTTP/1.1\r\nHost: {host}\r\n\r\n"

# The bytes sent first, the bytes sent every second, and the number of bytes read each second.
first, later, taken = {
    "idle": (b"", b"", 0),
    "line": (b"GET /v1/sta", b"", 0),
    "head": (GET[:-2] + b"X: ", b"y", 0),
    "body": (POST.encode(), b" ", 0),
    "pipeline": (GET * 4000, b"", 0),
    "drip": (GET * 4000, b"", 1),
    "flood": (GET * 20, GET * 20, 1 << 20),
    "churn": (GET[:9], b"", 0),
    "stream": (STREAM.encode(), b"", 0),
    "handshake": (bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]), b"", 0),
}[kind]
# Never zero: in virtual time the clock advances only while processes wait.
HURRY = 0.01
pause = HURRY if kind in ("flood", "churn") else 1


def connect():
    """Connects; returns the socket and the bytes still to be sent on it."""
    peer = socket.socket(socket.AF_UNIX if server == "socket" else socket.AF_INET)
    try:
        peer.settimeout(5)
        peer.connect(place if server == "socket" else ("127.0.0.1", int(place)))
        peer.setblocking(False)
    except OSError:
        peer.close()
        return None
    return [peer, first]


def goes_on(connection):
    """Sends and reads what can be sent and read now; false if the server has ended the connection."""
    peer, rest = connection
    try:
        while rest:
            rest = rest[peer.send(rest):]
    except BlockingIOError:
        pass
    except OSError:
        return False
    connection[1] = rest
    try:
        return bool(peer.recv(taken or 1, 0 if taken else socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
if server == "socket":
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)

connections, made = [], 0
while True:
    while len(connections) < count:
        connection = connect()
        if connection is None:
            break
        made += 1
        if made == count:
            print("there", flush=True)
        if goes_on(connection) and kind != "churn":
            connections.append(connection)
        else:
            connection[0].close()
        if made % count == 0:
            break
    left = []
    for connection in connections:
        connection[1] = connection[1] or later
        if goes_on(connection):
            left.append(connection)
        else:
            connection[0].close()
    # An evicted connection is replaced at once.
    time.sleep(pause if len(left) == len(connections) == count else HURRY)
    connections = left
