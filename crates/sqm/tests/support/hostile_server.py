#!/usr/bin/env python3
"""A test server that misbehaves on purpose, for tests of `sqm test`, `sqm tune` and the daemon.

Usage: hostile_server.py BEHAVIOUR [PORT] [--listen ADDRESS] [--after TESTS] [--rate MBIT]
       hostile_server.py --list
       hostile_server.py --many

It speaks the protocol of `sqm serve` correctly up to the phase in which the behaviour begins. The first line of its output is
the port (TCP and UDP). It listens on 127.0.0.1 unless --listen names another address. With --after N it behaves well during the
first N tests. Downloads are sent at --rate (20 Mbit/s in all by default).

--many starts a server for each behaviour on standard input, one a line, in a process of its own, and answers with a line: the
process and the port. The servers end with the input.

--list prints one behaviour a line. Names that begin with `challenge-` need a client with a secret (any will do), `http-` are for
`sqm test --url http://ADDRESS:PORT/`, `post-` for `--upload-url`, `rpm-` for `sqm test --rpm --insecure --port PORT`.
"""

import argparse
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x1b[2J \x9b31m \u202eesrever\u202c \x7f\r\n\x08 "
NOISE = os.urandom(64 << 10)


# --- Messages of a server -----------------------------------------------------------------------------------------------------


def frame(message):
    body = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
    return struct.pack(">I", len(body)) + body


def exactly(sock, length):
    data = b""
    while len(data) < length:
        more = sock.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def hear(sock):
    (length,) = struct.unpack(">I", exactly(sock, 4))
    return json.loads(exactly(sock, length))


def progress(test, seconds, received=None):
    received = [0] * test.up if received is None else received
    return {"reply": "progress", "elapsed_ms": int(seconds * 1000), "received": received}


def flow(direction, number, **seen):
    return {"reply": "flow", "direction": direction, "flow": number, "seen": seen}


def until_closed(sock):
    """Waits for the client to close, and discards what it sends."""
    while sock.recv(65536):
        pass


# --- Ways to misbehave in any phase -------------------------------------------------------------------------------------------


def silence(sock, test):
    until_closed(sock)


def close(sock, test):
    sock.close()


def reset(sock, test):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def drip(sock, test):
    """A frame that arrives a byte a second."""
    for byte in frame(b'{"reply":"progress",' + b" " * 4000):
        sock.sendall(bytes([byte]))
        time.sleep(1)


def words(sock, test):
    """Sends valid messages as fast as the client reads them."""
    for turn in range(1 << 60):
        sock.sendall(frame(progress(test, turn / 1000)) * 50)


def slow_words(sock, test):
    """Sends a valid message each second, but never the last one."""
    for turn in range(1 << 60):
        sock.sendall(frame(progress(test, turn)))
        time.sleep(1)


def huge(sock, test):
    """Sends valid frames of almost 4 MiB."""
    padding = "x" * ((4 << 20) - 200)
    while True:
        sock.sendall(frame({"reply": "error" if test is None else "progress", "reason": "", "padding": padding}))


def values(sock, test):
    """Frames of almost 4 MiB that hold as many values as possible."""
    body = b'{"reply":"done","busiest_cpu":null,"x":[' + b"0," * ((2 << 20) - 100) + b"0]}"
    while True:
        sock.sendall(frame(body))


def oversized(sock, test):
    """A frame of 4 GiB."""
    sock.sendall(struct.pack(">I", 0xFFFF_FFFF))
    while True:
        sock.sendall(NOISE)


def garbage(sock, test):
    while True:
        sock.sendall(NOISE)


def nested(sock, test):
    while True:
        sock.sendall(frame(b"[" * 60_000))


def escapes(sock, test):
    sock.sendall(frame({"reply": "error", "reason": ESCAPES}))
    until_closed(sock)


def long_reason(sock, test):
    sock.sendall(frame({"reply": "error", "reason": ESCAPES * 3000}))
    until_closed(sock)


def done_early(sock, test):
    """Sends the results after half of the load, as if all of it were over."""
    time.sleep(test.load_ms / 2000)
    for message in results(test):
        sock.sendall(frame(message))
    until_closed(sock)


ANYWHERE = {
    "silence": silence,
    "close": close,
    "reset": reset,
    "drip": drip,
    "words": words,
    "slow-words": slow_words,
    "huge": huge,
    "values": values,
    "oversized": oversized,
    "garbage": garbage,
    "nested": nested,
    "escapes": escapes,
    "long-reason": long_reason,
}
# Only during the load.
LOAD = {"done-early": done_early}
# The misbehaviour replaces the welcome, the answer to the proof, the answer on a data connection, progress, or results.
PHASES = ["hello", "challenge", "attach", "load", "results"]


# --- False figures in valid messages ------------------------------------------------------------------------------------------


def welcome_lies(message, how):
    if how == "names":
        message.update(program=ESCAPES * 20, kernel=ESCAPES * 20)
    elif how == "no-probes":
        message.update(max_probes_per_s=0)
    elif how == "version":
        message.update(version=99)


def attach_lies(message, how):
    if how == "dscp":
        message.update(dscp_arrived=255)
    elif how == "names":
        message.update(congestion=ESCAPES * 20)


def samples(times, amount):
    return [[t, amount] for t in times]


def results(test, up=None, down=None):
    """The messages of an honest server. `up` and `down` may change the figures of a flow; None leaves the flow out."""
    up, down = up or (lambda seen, number: seen), down or (lambda seen, number: seen)
    every = [("down", n, down({}, n)) for n in range(test.down)]
    every += [("up", n, up({"samples": [[test.load_ms, r]]}, n)) for n, r in enumerate(test.received)]
    for direction, number, seen in every:
        if seen is not None:
            yield flow(direction, number, **seen)
    yield {"reply": "done", "busiest_cpu": 0.1}


def contradictions(test, how):
    """Messages in place of the results that contradict earlier messages, the client's own figures or each other, or that leave
    a part out. None for other kinds of false figures."""
    length = test.load_ms

    def sampled(samples):
        return results(test, up=lambda seen, number: {"samples": samples(test.received[number])})

    def kernel(totals=None, mss=32768, **sample):
        """Downloads with the kernel figures of a real server, except for the given ones."""
        share = int(test.sent / max(1, test.down))
        honest = dict(rtt_ms=0.05, rttvar_ms=0.01, min_rtt_ms=0.02, cwnd=10, retransmits=0, delivery_mbit=100)
        honest |= dict(delivered=100, delivered_ce=0) | sample
        account = dict(bytes_sent=share, bytes_retransmitted=0, retransmits=0, delivered_ce=0, busy_ms=length - 100)
        account |= dict(rwnd_limited_ms=10, sndbuf_limited_ms=0) | (totals or {})
        tcp = [dict(honest, t_ms=t) for t in range(200, length + 1, 200)]
        seen = {"mss": mss, "tcp": tcp, "totals": account}
        return results(test, down=lambda _, number: seen)

    ways = {
        "less": lambda: sampled(lambda n: [[length, n // 50]]),
        "empty": lambda: sampled(lambda n: []),
        "no-time": lambda: sampled(lambda n: [[500, 0], [500, n], [length, 0]]),
        "short": lambda: sampled(lambda n: [[length - 500, n]]),
        "swapped": lambda: results(
            test,
            up=lambda seen, number: {},
            down=lambda seen, number: {"samples": [[length, test.received[number % test.up]]]},
        ),
        "roles": lambda: results(test, down=lambda seen, number: {"samples": [[length, 1000]]}),
        "omit-some-up": lambda: results(test, up=lambda seen, number: None if number else seen),
        "omit-down": lambda: results(test, down=lambda seen, number: None),
        "omit-all": lambda: [{"reply": "done", "busiest_cpu": 0.1}],
        "honest": lambda: kernel(),
        "tcp-sent": lambda: kernel(dict(bytes_sent=1)),
        "tcp-sent-much": lambda: kernel(dict(bytes_sent=2**53 - 1)),
        "tcp-again": lambda: kernel(dict(bytes_retransmitted=2**53 - 1)),
        "tcp-most-again": lambda: kernel(dict(bytes_retransmitted=int(test.sent / max(1, test.down) * 0.9))),
        "tcp-segments-again": lambda: kernel(dict(retransmits=2**50)),
        "tcp-marked": lambda: kernel(dict(delivered_ce=2**50)),
        "tcp-busy": lambda: kernel(dict(busy_ms=1e8)),
        "tcp-limited": lambda: kernel(dict(rwnd_limited_ms=length + 500)),
        "tcp-sample-again": lambda: kernel(retransmits=2**50),
        "tcp-delivered": lambda: kernel(delivered=10**15),
        "tcp-least-rtt": lambda: kernel(min_rtt_ms=1000),
        "tcp-rtt": lambda: kernel(rtt_ms=1e8),
        "tcp-rate": lambda: kernel(delivery_mbit=1e9),
        "tcp-mss-0": lambda: kernel(mss=0),
        "tcp-mss-1": lambda: kernel(mss=1),
        "tcp-cwnd": lambda: kernel(cwnd=0),
    }
    return ways if how is None else ways.get(how, lambda: None)()


def result_lies(test, how):
    """Yields the messages in place of the results."""
    contradiction = contradictions(test, how)
    if contradiction is not None:
        yield from contradiction
        return
    length = test.load_ms
    good = [100 * n for n in range(1, length // 100 + 1)]
    every = [("down", n) for n in range(test.down)] + [("up", n) for n in range(test.up)]
    seen = {
        "too-much": dict(samples=samples(good, 10**12)),
        "overflow": dict(samples=samples(good, 2**64 - 1)),
        "negative": dict(samples=samples([-t for t in reversed(good)], 1000)),
        "future": dict(samples=samples([1e300, 1.1e300], 1000)),
        "backwards": dict(samples=samples(reversed(good), 1000)),
        "counters": dict(
            totals=dict(
                bytes_sent=2**64 - 1,
                bytes_retransmitted=2**64 - 1,
                retransmits=2**64 - 1,
                delivered_ce=2**64 - 1,
                busy_ms=1e308,
                rwnd_limited_ms=1e308,
                sndbuf_limited_ms=-1e308,
            ),
            tcp=[dict(t_ms=t, rtt_ms=-1e308, cwnd=1e308, delivered=2**64 - 1) for t in good],
            mss=2**32 - 1,
        ),
        "many-samples": dict(samples=samples(range(100_000), 1)),
        "many-tcp": dict(tcp=[{"t_ms": 0}] * 370_000),
    }.get(how)
    if seen:
        for direction, number in every:
            yield flow(direction, number, **seen)
    elif how == "unknown-flow":
        yield flow("up", 4_000_000_000)
    elif how == "endless":
        while True:
            yield flow("down" if test.down else "up", 0)
    elif how == "nan":
        yield b'{"reply":"flow","direction":"up","flow":0,"seen":{"samples":[[NaN,1]]}}'
    elif how == "infinite":
        yield b'{"reply":"flow","direction":"up","flow":0,"seen":{"samples":[[1e999,1]]}}'
    elif how == "processor":
        yield {"reply": "done", "busiest_cpu": 1e308}
    yield {"reply": "done", "busiest_cpu": None}


RESULT_LIES = [
    "too-much",
    "overflow",
    "negative",
    "future",
    "backwards",
    "counters",
    "many-samples",
    "many-tcp",
    "unknown-flow",
    "endless",
    "nan",
    "infinite",
    "processor",
]


class AnyTest:
    """A test that exists only to list the names of the false figures."""

    load_ms = 0


RESULT_LIES += contradictions(AnyTest, None)


def progress_lies(test, how, seconds):
    if how == "future":
        return progress(test, 1e12)
    if how == "shrinking":
        return progress(test, seconds, [max(0, 10**9 - int(seconds * 10**8))] * test.up)
    if how == "too-much":
        return progress(test, seconds, [int(seconds * 10**12)] * test.up)
    return progress(test, seconds, [2**64 - 1] * test.up)


PROGRESS_LIES = ["future", "shrinking", "too-much", "overflow"]
PROBE_LIES = ["silence", "held", "clock", "random-clock", "future", "unasked", "flood", "duplicates", "short", "marks"]
FLOWS = ["close", "reset", "stall", "drip", "flood"]


# --- The server ---------------------------------------------------------------------------------------------------------------


class Test:
    def __init__(self, hello):
        self.token = os.urandom(16)
        self.down, self.up, self.load_ms = hello["down"], hello["up"], hello["load_ms"]
        self.flows = {}
        self.received = [0] * self.up
        self.sent = 0
        self.is_over = threading.Event()
        self.windows = {}


def listen(family, address, port):
    """A TCP and a UDP socket of one port. A port of the kernel's choice may be another program's in UDP: then another is tried."""
    while True:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        echo = socket.socket(family, socket.SOCK_DGRAM)
        try:
            echo.bind((address, listener.getsockname()[1]))
            return listener, echo
        except OSError:
            if port:
                raise
            listener.close()
            echo.close()


class Server:
    def __init__(self, behaviour, address, port, after, rate):
        self.phase, _, self.action = behaviour.partition("-")
        self.after, self.rate = after, rate
        self.begun = 0
        self.tests = {}
        self.origin = time.monotonic_ns()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener, self.echo = listen(family, address, port)
        self.port = self.listener.getsockname()[1]
        self.listener.listen(0 if self.phase == "connect" else 128)
        if self.phase == "connect":
            # Fills the backlog of the listening socket, so that further handshakes get no answer.
            self.own = [socket.socket(family, socket.SOCK_STREAM) for _ in range(4)]
            for sock in self.own:
                sock.setblocking(False)
                sock.connect_ex((address, self.port))

    def run(self):
        threading.Thread(target=self.answer_probes, daemon=True).start()
        if self.phase == "connect":
            time.sleep(1e6)
        while True:
            sock, _ = self.listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=[sock], daemon=True).start()

    def is_bad(self, phase, actions=None):
        """True if the server misbehaves in this phase, in one of these ways."""
        return self.begun > self.after and self.phase == phase and (actions is None or self.action in actions)

    def serve(self, sock):
        try:
            if self.is_bad("accept") or (self.phase == "accept" and self.after == 0):
                ANYWHERE[self.action](sock, None)
                return
            hello = hear(sock)
            if hello["hello"] == "control":
                self.control(sock, Test(hello))
            else:
                self.data(sock, hello)
        except (OSError, EOFError, ValueError):
            pass

    def misbehaves(self, phase, sock, test, also={}):
        ways = ANYWHERE | also
        if not self.is_bad(phase, ways):
            return False
        ways[self.action](sock, test)
        return True

    def control(self, sock, test):
        self.begun += 1
        if self.misbehaves("hello", sock, None):
            return
        if self.phase == "challenge":
            sock.sendall(frame({"reply": "challenge", "nonce": "00" * 16}))
            if self.action == "again":
                while True:
                    hear(sock)
                    sock.sendall(frame({"reply": "challenge", "nonce": "00" * 16}))
            hear(sock)
            if self.misbehaves("challenge", sock, None):
                return
        self.tests[test.token] = test
        message = {
            "reply": "welcome",
            "version": 2,
            "token": test.token.hex(),
            "program": "0.0.0",
            "kernel": "0.0.0",
            "max_probes_per_s": 1000,
        }
        if self.is_bad("welcome"):
            welcome_lies(message, self.action)
        sock.sendall(frame(message))
        try:
            hear(sock)
            self.load(sock, test)
            if not self.is_bad("load"):
                self.results(sock, test)
            until_closed(sock)
        finally:
            test.is_over.set()
            for data in test.flows.values():
                data.close()
            self.tests.pop(test.token, None)

    def load(self, sock, test):
        for key, data in test.flows.items():
            threading.Thread(target=self.transfer, args=[data, test, *key], daemon=True).start()
        began = time.monotonic()
        if self.misbehaves("load", sock, test, LOAD):
            return
        sock.settimeout(0.05)
        told = 0
        while time.monotonic() - began < test.load_ms / 1000:
            try:
                if not sock.recv(4096):
                    raise EOFError
                break
            except TimeoutError:
                pass
            seconds = time.monotonic() - began
            if seconds >= told + 1:
                told += 1
                message = progress(test, seconds, list(test.received))
                if self.is_bad("progress"):
                    message = progress_lies(test, self.action, seconds)
                sock.sendall(frame(message))
        sock.settimeout(None)

    def results(self, sock, test):
        if self.misbehaves("results", sock, test):
            return
        if self.is_bad("results"):
            for message in result_lies(test, self.action):
                sock.sendall(frame(message))
            return
        for message in results(test):
            sock.sendall(frame(message))

    def data(self, sock, hello):
        test = self.tests[bytes.fromhex(hello["token"])]
        if self.misbehaves("attach", sock, None):
            return
        test.flows[(hello["direction"], hello["flow"])] = sock
        message = {"reply": "attached", "congestion": "cubic", "dscp_arrived": None}
        if self.is_bad("attach"):
            attach_lies(message, self.action)
        sock.sendall(frame(message))

    def transfer(self, sock, test, direction, number):
        try:
            if self.is_bad("flows", ["close", "reset"]):
                ANYWHERE[self.action](sock, test)
            elif self.is_bad("flows", ["stall"]):
                test.is_over.wait()
            elif direction == "up":
                self.take(sock, test, number)
            else:
                self.give(sock, test)
        except OSError:
            pass

    def take(self, sock, test, number):
        # Slowly, so that the tests do not keep the processors busy.
        per_s = self.rate * 125_000 / max(1, test.up)
        began = time.monotonic()
        while not test.is_over.is_set():
            more = len(sock.recv(16 << 10))
            if not more:
                return
            test.received[number] += more
            time.sleep(max(0, began + test.received[number] / per_s - time.monotonic()))

    def give(self, sock, test):
        per_s = self.rate * 125_000 / max(1, test.down)
        piece = NOISE[: max(1, int(per_s / 50))]
        while not test.is_over.is_set():
            if self.is_bad("flows", ["drip"]):
                piece = b"x"
                time.sleep(1)
            elif not self.is_bad("flows", ["flood"]):
                time.sleep(len(piece) / per_s)
            sock.sendall(piece)
            test.sent += len(piece)

    # --- Probes over UDP ---

    def answer_probes(self):
        while True:
            probe, client = self.echo.recvfrom(2048)
            arrived = time.monotonic_ns() - self.origin
            test = self.tests.get(probe[4:20])
            if len(probe) < 56 or probe[:4] != b"sqm2" or test is None:
                continue
            how = self.action if self.is_bad("probes") else None
            if how == "silence":
                continue
            for answer in self.answers(probe, arrived, test, how):
                self.echo.sendto(answer, client)
            if how == "flood" and not test.windows.get("flood"):
                test.windows["flood"] = True
                threading.Thread(target=self.flood, args=[test, answer, client], daemon=True).start()

    def answers(self, probe, arrived, test, how):
        series, sequence = struct.unpack(">H", probe[20:22])[0], struct.unpack(">I", probe[24:28])[0]
        window = (test.windows.get(series, 0) << 1 | 1) & (2**64 - 1)
        test.windows[series] = window
        held, mark = time.monotonic_ns() - self.origin - arrived, probe[22]
        if how == "held":
            held = 2**32 - 1
        elif how == "clock":
            arrived = 2**64 - 1
        elif how == "random-clock":
            arrived = int.from_bytes(os.urandom(8), "big") >> 2
        elif how == "future":
            arrived += 10**18 * (sequence % 2)
        elif how == "marks":
            mark = os.urandom(1)[0]
        numbers = {"unasked": [sequence + 1_000_000, 2**32 - 1], "duplicates": [sequence] * 100}.get(how, [sequence])
        for number in numbers:
            answer = probe[:23] + struct.pack(">BIQIQ", mark, number, arrived, held, window) + probe[48:]
            yield answer[:30] if how == "short" else answer

    def flood(self, test, answer, client):
        while not test.is_over.is_set():
            self.echo.sendto(answer, client)


def behaviours():
    names = ["connect-silence"]
    names += [f"accept-{way}" for way in ["silence", "close", "reset", "drip", "garbage"]]
    for phase in PHASES:
        ways = [way for way in ANYWHERE if phase in ("load", "results") or way not in ("words", "slow-words")]
        names += [f"{phase}-{way}" for way in ways]
    names += [f"load-{way}" for way in LOAD]
    names += [f"welcome-{how}" for how in ["names", "no-probes", "version"]] + ["challenge-again"]
    names += [f"attach-{how}" for how in ["dscp", "names"]]
    names += [f"progress-{how}" for how in PROGRESS_LIES]
    names += [f"results-{how}" for how in RESULT_LIES]
    names += [f"flows-{how}" for how in FLOWS]
    names += [f"probes-{how}" for how in PROBE_LIES]
    return names


def main():
    from hostile_web import WEB, Web

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviour", nargs="?")
    parser.add_argument("port", nargs="?", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--rate", type=float, default=20)
    args = parser.parse_args()
    known = behaviours() + WEB
    if args.list:
        print("\n".join(known))
        return
    if args.many:
        many(args, Web)
        return
    if args.behaviour not in known:
        sys.exit(f"hostile_server.py: no behaviour {args.behaviour!r}; --list lists them")
    server = start(args.behaviour, args, Web)
    print(server.port, flush=True)
    server.run()


def start(behaviour, args, web):
    kind = web if behaviour.startswith(("http-", "post-", "rpm-")) else Server
    return kind(behaviour, args.listen, args.port, args.after, args.rate)


def many(args, web):
    """Forks a process for each server: to start an interpreter takes more time than most tests."""
    # The kernel then forgets processes that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.setpgid(0, 0)
    for line in sys.stdin:
        if os.fork() == 0:
            try:
                server = start(line.strip(), args, web)
            except OSError as reason:
                sys.exit(print(reason, flush=True))
            print(os.getpid(), server.port, flush=True)
            server.run()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
