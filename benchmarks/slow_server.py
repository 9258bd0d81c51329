"""A web and S3 server behind a slow line: each request waits 20 ms, and all answers together pass
at 1 Gbit/s.

Run: python slow_server.py FOLDER [MILLISECONDS MEBIBYTES_PER_SECOND]. It prints its port. GET and
HEAD of files with ranges, and listings as S3 answers them
(https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html), without signatures; the
first part of a path is the bucket. ``/-/log`` answers at once with a line for each request since
the last such question: when it came, when its answer ended, in seconds since 1970, the bytes of the
answer, and the request.
"""

from __future__ import annotations

import email.utils
import json
import os
import re
import socket
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_CHUNK_BYTES = 64 << 10  # half a millisecond of the line


class Line:
    """What all connections share."""

    def __init__(self, seconds: float, bytes_per_second: float) -> None:
        self.seconds, self._rate = seconds, bytes_per_second
        self._lock, self._free = threading.Lock(), 0.0
        self.log: list[tuple[float, float, int, str]] = []

    def wait(self, n_bytes: int) -> None:
        """Return when so many more bytes have passed."""
        with self._lock:
            self._free = due = max(self._free, time.monotonic()) + n_bytes / self._rate
        time.sleep(max(0.0, due - time.monotonic()))


def _listing(bucket: Path, query: dict[str, list[str]]) -> bytes:
    prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
    contents, folders = [], set()
    for path in sorted(each for each in bucket.rglob("*") if each.is_file()):
        key = path.relative_to(bucket).as_posix()
        if not key.startswith(prefix):
            continue
        if delimiter and delimiter in key[len(prefix) :]:
            folders.add(prefix + key[len(prefix) :].partition(delimiter)[0] + delimiter)
            continue
        status = path.stat()
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(status.st_mtime))
        facts = f'<LastModified>{when}</LastModified><ETag>"{status.st_mtime_ns:x}"</ETag><Size>{status.st_size}</Size>'
        contents.append(f"<Contents><Key>{escape(key)}</Key>{facts}</Contents>")
    found = "".join(contents) + "".join(
        f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()


def _answer(client: socket.socket, head: str, root: Path, line: Line) -> int:
    """Answer a request; the bytes of its body."""
    method, target, _ = head.split("\r\n", 1)[0].split(" ")
    parts = urlsplit(target)
    path, query = root / unquote(parts.path).lstrip("/"), parse_qs(parts.query)
    file, body, facts = None, b"", ""
    status, start, stop = "200 OK", 0, 0
    if "list-type" in query:
        body = _listing(path, query)
    elif path.is_file() and root in path.resolve().parents:
        file, size = path.open("rb"), path.stat().st_size
        stop, modified = size, path.stat().st_mtime
        facts = f'Accept-Ranges: bytes\r\nETag: "{path.stat().st_mtime_ns:x}"\r\n'
        facts += f"Last-Modified: {email.utils.formatdate(modified, usegmt=True)}\r\n"
        if asked := re.search(r"\r\nrange: *bytes=(\d+)-(\d*)", head, re.IGNORECASE):
            start, stop = int(asked[1]), min(size, int(asked[2] or size) + 1)
            status, facts = (
                "206 Partial Content",
                f"{facts}Content-Range: bytes {start}-{stop - 1}/{size}\r\n",
            )
            if start >= size:
                status, start, stop = "416 Range Not Satisfiable", 0, 0
    else:
        status, body = (
            "404 Not Found",
            b"<Error><Code>NoSuchKey</Code><Message>missing</Message></Error>",
        )
    n_bytes = len(body) or stop - start
    client.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {n_bytes}\r\n{facts}\r\n".encode())
    if method == "HEAD":
        return 0
    client.sendall(body)
    if file is not None:
        with file:
            while start < stop:
                line.wait(min(_CHUNK_BYTES, stop - start))
                end = min(stop, start + _CHUNK_BYTES)
                while start < end:
                    start += os.sendfile(client.fileno(), file.fileno(), start, end - start)
    return n_bytes


def _serve(client: socket.socket, root: Path, line: Line) -> None:
    with client:
        received = b""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                while b"\r\n\r\n" not in received:
                    if not (data := client.recv(1 << 16)):
                        return
                    received += data
                came = time.time()
                head, _, received = received.partition(b"\r\n\r\n")
                if head.startswith(b"GET /-/log"):
                    log, line.log = line.log, []
                    body = json.dumps(log).encode()
                    client.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                    )
                    continue
                time.sleep(line.seconds)
                n_bytes = _answer(client, head.decode(), root, line)
                line.log.append((came, time.time(), n_bytes, head.decode().split(" HTTP/")[0]))
        except OSError:  # the client is gone
            return


def main() -> None:
    """Serve until this is killed."""
    root = Path(sys.argv[1]).resolve()
    milliseconds, mebibytes = map(float, sys.argv[2:4] or (20, 1e9 / 8 / (1 << 20)))
    line = Line(milliseconds / 1000, mebibytes * (1 << 20))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(
            target=_serve, args=(listener.accept()[0], root, line), daemon=True
        ).start()


if __name__ == "__main__":
    main()
