"""A TCP proxy that delays, throttles, cuts, swallows and corrupts what passes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any


class FaultyTCPProxy:
    """Passes connections on to ``host:port``, with the faults that :meth:`set` names; a context manager.

    "up" is from the client to the server, "down" the answer. Faults, any of them together:

    - ``latency``: seconds that each piece is late; ``rate``: bytes a second; ``slice``: most bytes written at once;
    - ``cut_up``, ``cut_down``: close both ends after so many more bytes; ``reset``: by RST, not FIN;
    - ``swallow_up``, ``swallow_down``: take and drop everything after so many more bytes, and keep the connection;
    - ``flip_up``, ``flip_down``: turn a bit of the byte round that comes after so many more.

    A fault that counts bytes happens once (swallowing goes on until :meth:`clear`).

    Attributes:
        port: where it listens on 127.0.0.1.
        n_faults: how many of the faults that count bytes have happened.
    """

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._faults: dict[str, float] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._transports: list[asyncio.WriteTransport] = []  # of all, also those that are closed when all is read
        self.n_faults = 0
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # a broken connection is its daily bread
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-tcp-proxy", daemon=True)
        self._thread.start()

    def set(self, **faults: float) -> None:
        """Let these faults happen from now on."""
        self._call(lambda: self._faults.update(faults))

    def clear(self) -> None:
        """No faults any more."""
        self._call(self._faults.clear)

    def cut_all(self) -> None:
        """Close all connections."""
        self._call(lambda: self._cut(list(self._writers)))

    def close(self) -> None:
        """Close all, and stop."""

        async def end() -> None:
            # What was accepted just now begins first: a server that is closed (Python 3.11), and a task that is cancelled before
            # it began, leave its socket open. Then each ends by itself, as its connection is cut.
            self._loop.remove_reader(self._server.sockets[0])
            await asyncio.sleep(0.01)
            self._server.close()
            while True:
                for transport in self._transports:
                    transport.abort()
                others = asyncio.all_tasks() - {asyncio.current_task()}
                if not others:
                    break
                await asyncio.wait(others, timeout=0.1)
            await asyncio.sleep(0.05)  # the loop closes sockets in its next rounds

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> FaultyTCPProxy:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ inside

    def _call(self, function: Callable[[], Any]) -> None:
        async def call() -> None:
            function()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    def _cut(self, writers: list[asyncio.StreamWriter]) -> None:
        for writer in writers:
            if self._faults.get("reset"):
                connection = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self._transports.append(writer.transport)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except OSError:
            self._writers.discard(writer)
            writer.close()
            return
        self._transports.append(far_writer.transport)
        pair = [writer, far_writer]
        self._writers.update(pair)
        try:
            await asyncio.gather(self._pump(reader, far_writer, "up", pair), self._pump(far_reader, writer, "down", pair))
        finally:
            self._writers.difference_update(pair)
            for each in pair:
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str, pair: list[Any]) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while data := await reader.read(65_536):
                if latency := self._faults.get("latency"):
                    await asyncio.sleep(latency)
                before, cuts = self._harmed(data, way)
                step = int(self._faults.get("slice", 0)) or max(1, int(self._faults.get("rate", 0)) // 20) or len(before)
                if not self._faults.get("rate") and not self._faults.get("slice"):
                    step = max(1, len(before))
                for start in range(0, len(before), step):
                    writer.write(before[start : start + step])
                    await writer.drain()
                    if rate := self._faults.get("rate"):
                        await asyncio.sleep(step / rate)
                if cuts:
                    self._cut(pair)
                    return
            if writer.can_write_eof():
                writer.write_eof()

    def _harmed(self, data: bytes, way: str) -> tuple[bytes, bool]:
        """What is passed on of ``data``, and whether the connection ends there."""
        at = self._count(f"flip_{way}", len(data))
        if at is not None:
            data = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        at = self._count(f"swallow_{way}", len(data), stays=True)
        if at is not None:
            return data[:at], False
        at = self._count(f"cut_{way}", len(data))
        return (data, False) if at is None else (data[:at], True)

    def _count(self, fault: str, n_bytes: int, *, stays: bool = False) -> int | None:
        """Where in the next ``n_bytes`` a fault happens; None if it does not."""
        left = self._faults.get(fault)
        if left is None:
            return None
        if left >= n_bytes:
            self._faults[fault] = left - n_bytes
            return None
        self.n_faults += 1
        if stays:
            self._faults[fault] = 0
        else:
            del self._faults[fault]
        return int(left)
