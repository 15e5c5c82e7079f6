"""Loopback ports that no neighbour can take, also while nobody listens there.

    held = ports.Held()
    held.port               the system's choice; a program may listen on it, end,
                            and come back to it
    held.close()            it is anybody's again

A bound socket that never listens keeps the port: the system gives it to nobody
else, and who asks for it is told that it is taken. Linux lets a listener in
beside it if both set SO_REUSEADDR, as servers do.

As a program, `ports.py N` prints N such ports on a line and keeps them until it
is ended.
"""

from __future__ import annotations

import signal
import socket
import sys


class Held:
    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


if __name__ == "__main__":
    held = [Held() for _ in range(int(sys.argv[1]))]
    print(*(one.port for one in held), flush=True)
    signal.pause()
