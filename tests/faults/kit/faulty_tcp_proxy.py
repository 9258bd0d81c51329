"""A TCP proxy that delays, throttles, cuts, swallows and corrupts what passes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

Pair = tuple[socket.socket, socket.socket]


class FaultyTCPProxy:
    """Passes connections on to ``host:port``, with the faults that :meth:`set` names; a context
    manager.

    "up" is from the client to the server, "down" the answer. Faults, any of them together:

    - ``latency``: seconds that each piece is late; ``rate``: bytes a second; ``slice``: most bytes
      written at once;
    - ``cut_up``, ``cut_down``: close both ends after so many more bytes; ``reset``: by RST, not
      FIN;
    - ``swallow_up``, ``swallow_down``: take and drop everything after so many more bytes, and keep
      the connection;
    - ``flip_up``, ``flip_down``: turn a bit of the byte round that comes after so many more.

    A fault that counts bytes happens once (swallowing goes on until :meth:`clear`).

    Attributes:
        port: where it listens on 127.0.0.1.
        n_faults: how many of the faults that count bytes have happened.
    """

    def __init__(self, host: str, port: int) -> None:
        self._to, self._faults, self.n_faults = (host, port), dict[str, float](), 0
        self._pairs: dict[Pair, int] = {}  # with how many of its ends are still read
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._threads[0].start()

    def set(self, **faults: float) -> None:
        """Let these faults happen from now on."""
        self._faults.update(faults)

    def clear(self) -> None:
        """No faults any more."""
        self._faults.clear()

    def cut_all(self) -> None:
        """Close all connections."""
        for pair in list(self._pairs):
            self._cut(pair)

    def __enter__(self) -> FaultyTCPProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(10)
        self._listener.close()
        self.clear()
        self.cut_all()
        for thread in self._threads:
            thread.join(10)

    # ------------------------------------------------------------------ inside

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._to)
                except OSError:
                    near.close()
                    continue
                self._pairs[near, far] = 2
                for arguments in ((near, far, "up", (near, far)), (far, near, "down", (near, far))):
                    self._threads.append(
                        threading.Thread(target=self._pump, args=arguments, daemon=True)
                    )
                    self._threads[-1].start()

    def _cut(self, pair: Pair) -> None:
        """Let both ends stop reading; the last of them closes both."""
        for end in pair:
            with contextlib.suppress(OSError):
                if self._faults.get("reset"):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD if self._faults.get("reset") else socket.SHUT_RDWR)

    def _pump(self, source: socket.socket, target: socket.socket, way: str, pair: Pair) -> None:
        try:
            while data := source.recv(65_536):
                time.sleep(self._faults.get("latency", 0))
                before, cuts = self._harmed(data, way)
                rate = self._faults.get("rate", 0)
                step = max(1, int(self._faults.get("slice", 0) or rate / 20 or len(before)))
                for start in range(0, len(before), step):
                    target.sendall(before[start : start + step])
                    time.sleep(step / rate if rate else 0)
                if cuts:
                    self._cut(pair)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            self._cut(pair)
        finally:
            with self._lock:
                self._pairs[pair] -= 1
                if not self._pairs[pair]:
                    del self._pairs[pair]
                    for end in pair:
                        end.close()

    def _harmed(self, data: bytes, way: str) -> tuple[bytes, bool]:
        """What is passed on of ``data``, and whether the connection ends there."""
        at = self._count(f"flip_{way}", len(data))
        if at is not None:
            data = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        at = self._count(f"swallow_{way}", len(data))
        if at is not None:
            self._faults[f"swallow_{way}"] = 0
            return data[:at], False
        at = self._count(f"cut_{way}", len(data))
        return data[:at], at is not None

    def _count(self, fault: str, n_bytes: int) -> int | None:
        """Where in the next ``n_bytes`` a fault happens; None if it does not."""
        with self._lock:
            left = self._faults.pop(fault, None)
            if left is None or left >= n_bytes:
                self._faults.update({} if left is None else {fault: left - n_bytes})
                return None
            self.n_faults += 1
            return int(left)
