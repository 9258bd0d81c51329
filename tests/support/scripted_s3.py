"""A small S3 server on loopback whose answers a test may replace, one by one."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from typing_extensions import Self

from data_stack.io.storage_connectors.object_store import FsspecStorageConnector


@dataclass(frozen=True)
class S3Request:
    """A request as it arrived.

    Attributes:
        method: of HTTP.
        key: of the object, in the bucket ``data``.
        prefix: of a listing; None for other requests.
        headers: names in lower case.
        query: the parameters.
    """

    method: str
    key: str
    prefix: str | None
    headers: dict[str, str]
    query: dict[str, str]


@dataclass
class S3Answer:
    """An answer to a request.

    Attributes:
        status: of HTTP.
        body: what is sent, but to HEAD.
        headers: besides Content-Length, which may be among them.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, code: str, message: str = "") -> S3Answer:
    """An error as S3 sends it."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return S3Answer(status, body.encode(), {"Content-Type": "application/xml"})


class ScriptedS3:
    """Has one bucket, ``data``; a context manager.

    Attributes:
        objects: content and time of the objects by key.
        rule: is asked before each request: an answer, or None for the right one.
        requests: what arrived, in order.
        client: of the stores: "obstore" or "fsspec"; None for the default.
    """

    bucket = "data"
    client: Literal["obstore", "fsspec"] | None = None

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.rule: Callable[[S3Request], S3Answer | None] = lambda request: None
        self.requests: list[S3Request] = []
        #: Held while an object is written.
        self._writing = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
                parsed = parse_qs(parts.query, keep_blank_values=True)
                query = {name: values[0] for name, values in parsed.items()}
                headers = {name.lower(): value for name, value in self.headers.items()}
                prefix = query.get("prefix", "") if "list-type" in query else None
                request = S3Request(self.command, key, prefix, headers, query)
                body = self.rfile.read(int(headers.get("content-length", "0")))
                outer.requests.append(request)
                answer = outer.rule(request)
                if answer is None:
                    answer = outer.right_answer(bucket, request, body)
                self.send_response(answer.status)
                for name, value in {
                    "Content-Length": str(len(answer.body)),
                    **answer.headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_HEAD = do_PUT = do_DELETE = do_GET

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client goes away when it has heard enough

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint_url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def store(self, bucket: str = bucket, **options: Any) -> FsspecStorageConnector:
        """A store in the folder ``f`` of a bucket."""
        login: dict[str, Any] = {
            "key": "k",
            "secret": "secret-canary",
            "client_kwargs": {"region_name": "us-east-1"},
        }
        return FsspecStorageConnector(
            f"s3://{bucket}/f",
            endpoint_url=self.endpoint_url,
            timeout_seconds=30,
            **{"client": self.client, **login, **options},
        )

    def place(self, bucket: str = bucket) -> str:
        """The URL of the same store, for commands, which find the login in the environment."""
        url = f"s3://{bucket}/f?endpointUrl={self.endpoint_url}&region=us-east-1"
        return url if self.client is None else f"{url}&client={self.client}"

    def put(self, key: str, data: bytes, *, age_seconds: float = 100.0) -> None:
        """Put an object as another tool does."""
        self.objects[key] = data, time.time() - age_seconds

    def make_old(self) -> None:
        """Make all objects older than the grace period of garbage."""
        for key, (data, _) in self.objects.items():
            self.put(key, data, age_seconds=90_000.0)

    # ------------------------------------------------------------------ right answers

    def right_answer(self, bucket: str, request: S3Request, body: bytes) -> S3Answer:
        """What S3 answers."""
        if bucket != self.bucket:
            return refusal(404, "NoSuchBucket", "The specified bucket does not exist")
        if request.prefix is not None:
            return self.listing(request.prefix, delimiter=request.query.get("delimiter", ""))
        if request.method == "PUT":
            with self._writing:
                return self._put(request, _without_chunks(body, request.headers))
        if request.method == "DELETE":
            with self._writing:
                return self._delete(request)
        if request.key not in self.objects:
            return refusal(404, "NoSuchKey", "The specified key does not exist")
        data, _ = self.objects[request.key]
        asked_etag = request.headers.get("if-match")
        if asked_etag is not None and asked_etag != self.etag(request.key):
            return refusal(412, "PreconditionFailed")
        asked = request.headers.get("range", "")
        if not asked:
            return S3Answer(200, data, self.facts(request.key))
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return self.part(request.key, int(first), min(int(last) + 1, len(data)))

    def _put(self, request: S3Request, content: bytes) -> S3Answer:
        """The answer to a request that writes, perhaps on a condition."""
        is_there = request.key in self.objects
        wanted_etag = request.headers.get("if-match")
        if wanted_etag is not None and not is_there:
            return refusal(404, "NoSuchKey", "The specified key does not exist")
        if is_there and request.headers.get("if-none-match") == "*":
            return refusal(412, "PreconditionFailed")
        if wanted_etag is not None and wanted_etag != self.etag(request.key):
            return refusal(412, "PreconditionFailed")
        self.objects[request.key] = content, time.time()
        return S3Answer(headers={"ETag": self.etag(request.key)})

    def _delete(self, request: S3Request) -> S3Answer:
        """The answer to a request that deletes, perhaps on a condition."""
        wanted_etag = request.headers.get("if-match")
        is_there = request.key in self.objects
        if is_there and wanted_etag not in (None, self.etag(request.key)):
            return refusal(412, "PreconditionFailed")
        self.objects.pop(request.key, None)
        return S3Answer(204)

    def part(self, key: str, start: int, stop: int) -> S3Answer:
        """A part of an object."""
        data, _ = self.objects[key]
        if start >= len(data):
            answer = refusal(416, "InvalidRange")
            answer.headers["Content-Range"] = f"bytes */{len(data)}"
            return answer
        sent = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        return S3Answer(206, data[start:stop], self.facts(key) | sent)

    def listing(self, prefix: str, *, delimiter: str = "") -> S3Answer:
        """All objects whose keys begin with a prefix."""
        rows, folders = [], set()
        for key in sorted(self.objects):
            if not key.startswith(prefix):
                continue
            name, mark, _ = key[len(prefix) :].partition(delimiter or "\0")
            if mark:
                folders.add(prefix + name + delimiter)
            else:
                rows.append(self.row(key))
        for folder in sorted(folders):
            rows.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
        return listing_of(*rows)

    def row(self, key: str) -> str:
        """An object in a listing."""
        data, modified = self.objects[key]
        date = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(modified))
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{date}</LastModified>"
            f"<ETag>{escape(self.etag(key))}</ETag><Size>{len(data)}</Size></Contents>"
        )

    def etag(self, key: str) -> str:
        """The tag of an object."""
        digest = hashlib.md5(self.objects[key][0], usedforsecurity=False)
        return f'"{digest.hexdigest()}"'

    def facts(self, key: str) -> dict[str, str]:
        """The headers of an object."""
        return {
            "ETag": self.etag(key),
            "Last-Modified": formatdate(self.objects[key][1], usegmt=True),
        }


def listing_of(*rows: str, end: str = "<IsTruncated>false</IsTruncated>") -> S3Answer:
    """A listing with these rows."""
    body = f"<ListBucketResult>{end}{''.join(rows)}</ListBucketResult>"
    return S3Answer(200, body.encode(), {"Content-Type": "application/xml"})


def _without_chunks(body: bytes, headers: dict[str, str]) -> bytes:
    """The content of a body that a client of AWS sent in chunks."""
    if "x-amz-decoded-content-length" not in headers:
        return body
    content = b""
    while body:
        line, _, body = body.partition(b"\r\n")
        n_bytes = int(line.split(b";")[0] or b"0", 16)
        content += body[:n_bytes]
        body = body[n_bytes + 2 :] if n_bytes else b""
    return content


#: Of :meth:`ScriptedS3.place`, for commands.
LOGIN = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "secret-canary"}
