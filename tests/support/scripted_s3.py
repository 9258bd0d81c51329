"""A small S3 server on loopback whose answers a test may replace, one by one.

It follows https://docs.aws.amazon.com/AmazonS3/latest/API/.
"""

from __future__ import annotations

import time
from typing import Any, Literal
from urllib.parse import unquote
from xml.sax.saxutils import escape

from object_server import Answer, ObjectServer, Request, select_range

from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

#: The login of :meth:`ScriptedS3.place`.
LOGIN = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "secret-canary"}


class ScriptedS3(ObjectServer):
    """Has one bucket, ``data``. Requests need no login.

    Attributes:
        client: of the stores: "obstore" or "fsspec"; None for the default.
    """

    client: Literal["obstore", "fsspec"] | None = None

    def store(self, place: str = "data/f", **options: Any) -> FsspecStorageConnector:
        """Return a store in a folder, by default of the client of the server."""
        arguments: dict[str, Any] = {
            "client": self.client,
            "key": "k",
            "secret": "secret-canary",
            "client_kwargs": {"region_name": "us-east-1"},
            "timeout_seconds": 30.0,
            **options,
        }
        return FsspecStorageConnector(f"s3://{place}", endpoint_url=self.url, **arguments)

    def place(self, bucket: str = ObjectServer.bucket) -> str:
        """Return the URL of a store in the folder ``f`` of a bucket, for commands.

        They find :data:`LOGIN` in the environment.
        """
        url = f"s3://{bucket}/f?endpointUrl={self.url}&region=us-east-1"
        return url if self.client is None else f"{url}&client={self.client}"

    def put(self, key: str, data: bytes, *, age_seconds: float = 100.0, **metadata: str) -> None:
        super().put(key, data, age_seconds=age_seconds, **metadata)

    def make_old(self) -> None:
        """Make all objects older than the grace period of garbage."""
        for key, stored in self.objects.items():
            self.put(key, stored.data, age_seconds=90_000.0)

    # ------------------------------------------------------------------ right answers

    def right_answer(self, request: Request) -> Answer:
        bucket, key = _split_path(request.path)
        if bucket != self.bucket:
            return refusal(404, "NoSuchBucket", "The specified bucket does not exist")
        if is_listing(request):
            return self._list(request)
        if request.method == "PUT":
            return self._write(request, key)
        if request.method == "DELETE":
            return self._delete(request, key)
        if key not in self.objects:
            return refusal(404, "NoSuchKey", "The specified key does not exist")
        if request.headers.get("if-match") not in (None, self.etag(key)):
            return refusal(412, "PreconditionFailed")
        asked = request.headers.get("range")
        if asked is None:
            return Answer(200, self.objects[key].data, self.facts(key))
        selected = select_range(self.objects[key].data, asked)
        if selected is None:
            answer = refusal(416, "InvalidRange")
            answer.headers["Content-Range"] = f"bytes */{len(self.objects[key].data)}"
            return answer
        return self.part(key, *selected)

    def _write(self, request: Request, key: str) -> Answer:
        """Answer a request that writes, perhaps on a condition."""
        is_there = key in self.objects
        wanted_etag = request.headers.get("if-match")
        if wanted_etag is not None and not is_there:
            return refusal(404, "NoSuchKey", "The specified key does not exist")
        if is_there and request.headers.get("if-none-match") == "*":
            return refusal(412, "PreconditionFailed")
        if wanted_etag is not None and wanted_etag != self.etag(key):
            return refusal(412, "PreconditionFailed")
        self.put(key, _without_chunks(request), age_seconds=0.0)
        return Answer(headers={"ETag": self.etag(key)})

    def _delete(self, request: Request, key: str) -> Answer:
        """Answer a request that deletes, perhaps on a condition."""
        wanted_etag = request.headers.get("if-match")
        if key in self.objects and wanted_etag not in (None, self.etag(key)):
            return refusal(412, "PreconditionFailed")
        self.objects.pop(key, None)
        return Answer(204)

    def _list(self, request: Request) -> Answer:
        page = self.select_page(
            request.query.get("prefix", ""),
            request.query.get("delimiter", ""),
            request.query.get("continuation-token", ""),
            int(request.query.get("max-keys", "1000")),
        )
        rows = [self.row(key) for key in page.keys]
        for folder in page.folders:
            rows.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
        return listing_of(*rows, token=page.next_name)

    # ------------------------------------------------------------------ parts of answers

    def part(self, key: str, start: int, stop: int) -> Answer:
        """Return the answer with a part of an object."""
        data = self.objects[key].data
        sent = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        return Answer(206, data[start:stop], self.facts(key) | sent)

    def row(self, key: str) -> str:
        """Return an object as listings describe it."""
        stored = self.objects[key]
        date = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.modified))
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{date}</LastModified>"
            f"<ETag>{escape(self.etag(key))}</ETag><Size>{len(stored.data)}</Size></Contents>"
        )

    def etag(self, key: str) -> str:
        """Return the tag of an object."""
        return f'"{self.objects[key].md5.hex()}"'

    def facts(self, key: str) -> dict[str, str]:
        """Return the headers of an object."""
        return {"ETag": self.etag(key), "Last-Modified": self.objects[key].last_modified}


def refusal(status: int, code: str, message: str = "") -> Answer:
    """Return an error as S3 sends it."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


def listing_of(*rows: str, end: str = "", token: str | None = None) -> Answer:
    """Return a page of a listing.

    Args:
        rows: elements of objects and folders.
        token: where the next page begins; None: this is the last one.
        end: what a page says of the next one, instead of a token.
    """
    if token is not None:
        token_element = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>"
        end = f"<IsTruncated>true</IsTruncated>{token_element}"
    end = end or "<IsTruncated>false</IsTruncated>"
    body = f"<ListBucketResult>{end}{''.join(rows)}</ListBucketResult>"
    return Answer(200, body.encode(), {"Content-Type": "application/xml"})


def is_listing(request: Request) -> bool:
    """Return whether a request is for a page of a listing."""
    return "list-type" in request.query


def key_of(request: Request) -> str:
    """Return the key that a request is for; empty for a listing."""
    return _split_path(request.path)[1]


def _split_path(path: str) -> tuple[str, str]:
    """Return the bucket and the key of a URL."""
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    return bucket, key


def _without_chunks(request: Request) -> bytes:
    """Return the content of a body that a client of AWS may have sent in chunks."""
    body = request.body
    if "x-amz-decoded-content-length" not in request.headers:
        return body
    content = b""
    while body:
        line, _, body = body.partition(b"\r\n")
        n_bytes = int(line.split(b";")[0] or b"0", 16)
        content += body[:n_bytes]
        body = body[n_bytes + 2 :] if n_bytes else b""
    return content
