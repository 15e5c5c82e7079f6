"""The two ends of the link, played by the test: a rank's agent, and a proxy (agent/LINK.md).

    Agent(address, …)   links to a proxy and answers its pings
    Listener(key)       stands where a proxy would and welcomes every agent
"""
import contextlib
import hmac
import json
import secrets
import socket
import threading


class Lines:
    """One connection after its upgrade: lines in, lines out."""

    def __init__(self, connection):
        self.connection, self.file = connection, connection.makefile("rb")
        self.lines, self.ended, self.lock = [], False, threading.Lock()

    def head(self):
        """The head's fields, lower case."""
        first, fields = self.file.readline(), {}
        assert first, "no head"
        while (line := self.file.readline().strip()):
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        return fields

    def say(self, message):
        with self.lock:
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def run(self):
        with contextlib.suppress(OSError, ValueError):
            for line in self.file:
                message = json.loads(line)
                if message["t"] == "ping":
                    self.say({"t": "pong"})
                else:
                    self.lines.append(message)
                    self.on_message(message)
        self.ended = True

    def on_message(self, message):
        pass

    def got(self, kind):
        return [m for m in list(self.lines) if m["t"] == kind]

    def close(self):
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def prove(key, side, nonces):
    return hmac.new(key, side + b"".join(nonces), "sha256").hexdigest()


class Agent(Lines):
    """A rank; every peer that it is told of can be read."""

    def __init__(self, address, key, url, role, rank=0, world=1, card=None, boot=None, receive=None):
        connection = socket.socket()
        if receive:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        host, port = address.rsplit(":", 1)
        connection.connect((host, int(port)))
        super().__init__(connection)
        nonce = secrets.token_hex(32).encode()
        connection.sendall(b"GET /agent/v1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: baton-agent/1\r\nBaton-Nonce: " + nonce + b"\r\n\r\n")
        nonces = [nonce, self.head()[b"baton-nonce"]]
        self.hello = {"t": "hello", "v": 1, "features": ["want", "unheard_of"], "engine": url, "engine_boot": "77", "boot": boot or "%x" % (secrets.randbits(62) | 1),
                      "rank": rank, "world": world, "tp": world, "pp": 1, "role": role, "url": url, "blocks": 1000, "block_tokens": 16,
                      "fingerprint": "f", "proof": prove(key, b"agent", nonces), "card": card or {}}

    def start(self):
        self.say(self.hello)
        threading.Thread(target=self.run, daemon=True).start()
        return self

    def on_message(self, message):
        if message["t"] == "welcome":
            self.say({"t": "sync", "records": [], "last": True})
        elif message["t"] == "peer_up" and "peer" not in message:
            self.say({"t": "peer_want", "engine": message["engine"], "boot": message["boot"], "ranks": [self.hello["rank"]]})
        elif message["t"] in ("peer_up", "card"):
            peer = message["peer"]
            self.say({"t": "peer_ready", "engine": peer["engine"], "rank": peer["rank"], "boot": peer["boot"], "provider": "x", "us": 1})


class Listener:
    """Welcomes agents as a proxy of this boot; what each said is in its lines."""

    def __init__(self, key, boot="f00"):
        self.key, self.boot, self.agents = key, boot, []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(Lines(self.server.accept()[0]),), daemon=True).start()

    def serve(self, agent):
        nonces = [agent.head()[b"baton-nonce"], secrets.token_hex(32).encode()]
        agent.connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: baton-agent/1\r\nBaton-Nonce: " + nonces[1]
                                 + b"\r\nBaton-Proof: " + prove(self.key, b"proxy", nonces).encode() + b"\r\n\r\n")
        hello = json.loads(agent.file.readline())
        agent.role = hello["role"]
        agent.say({"t": "welcome", "v": 1, "boot": self.boot, "features": [], "lease_ms": 30000, "ping_ms": 1000, "dead_ms": 60000})
        self.agents.append(agent)
        agent.run()

    def tell(self, message):
        for agent in list(self.agents):
            agent.say(message)

    def got(self, kind):
        return [m for agent in list(self.agents) for m in agent.got(kind)]

    def close(self):
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for agent in self.agents:
            agent.close()
