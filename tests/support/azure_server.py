"""A small server of Azure Blob Storage on loopback.

It follows the documentation of the REST API:

- https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-rest-api
- https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key
- https://learn.microsoft.com/en-us/rest/api/storageservices/create-account-sas
- https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-error-codes
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final
from urllib.parse import unquote, urlencode
from xml.sax.saxutils import escape

from object_server import Answer, ObjectServer, Request, StoredObject, select_range

from data_stack.io.storage_connectors import FsspecStorageConnector

ACCOUNT: Final = "lab"
#: The key of the account. Clients want base64.
KEY: Final = base64.b64encode(b"account-key-canary").decode()
#: A bearer token that the server takes.
TOKEN: Final = "bearer-token-canary"

#: The headers that a signature covers, in its order.
_SIGNED_HEADERS: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
#: The fields of a shared access signature of an account that its signature covers, in its order.
_SIGNED_SAS_FIELDS: Final = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses")
#: The permission that a shared access signature must have for a method.
_SAS_PERMISSIONS: Final = {"GET": "r", "HEAD": "r", "PUT": "w", "DELETE": "d"}
_CONDITION_NOT_MET: Final = "The condition specified using HTTP conditional header(s) is not met."


class AzureServer(ObjectServer):
    """Has one account, ``lab``, with one container, ``data``.

    Attributes:
        is_public: whether requests without a login may read.
        blocks: the staged blocks of blobs that are not committed, by key and id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_public = False
        self.blocks: dict[tuple[str, str], bytes] = {}

    def reset(self) -> None:
        super().reset()
        self.is_public = False
        self.blocks.clear()

    def store(self, place: str = "data/f", **options: Any) -> FsspecStorageConnector:
        """Return a store in a folder, by default with the key of the account."""
        login: dict[str, Any] = {"account_name": ACCOUNT, "account_key": KEY}
        if {"account_key", "sas_token", "connection_string", "anon"} & set(options):
            login = {"account_name": ACCOUNT}
        arguments: dict[str, Any] = {"timeout_seconds": 30.0, **login, **options}
        return FsspecStorageConnector(f"az://{place}", endpoint_url=self.url, **arguments)

    def sas_token(self, permissions: str = "rwdlac", *, lives_seconds: float = 3600.0) -> str:
        """Return a shared access signature of the account."""
        ends_at = datetime.now(timezone.utc) + timedelta(seconds=lives_seconds)
        fields = {
            "sv": "2022-11-02",
            "ss": "b",
            "srt": "sco",
            "sp": permissions,
            "se": ends_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "spr": "https,http",
        }
        return urlencode({**fields, "sig": _sas_signature(fields)})

    # ------------------------------------------------------------------ right answers

    def right_answer(self, request: Request) -> Answer:
        container, key = split_path(request.path)
        refused = self._check_login(request)
        if refused is not None:
            return refused
        if container != self.bucket:
            return refusal(404, "ContainerNotFound", "The specified container does not exist.")
        component = request.query.get("comp", "")
        if not key and component == "list":
            return self._list(request)
        if not key and request.query.get("restype") == "container":
            return Answer(200, b"", {"ETag": '"0x1"', "Last-Modified": _date(time.time())})
        if request.method == "PUT":
            return self._write(request, key, component)
        if key not in self.objects:
            return refusal(404, "BlobNotFound", "The specified blob does not exist.")
        failed = self._check_conditions(request, key)
        if failed is not None:
            return failed
        if request.method == "DELETE":
            del self.objects[key]
            return Answer(202)
        return self._content(request, key)

    def _write(self, request: Request, key: str, component: str) -> Answer:
        """Answer Put Blob, Put Block and Put Block List."""
        if component == "block":
            self.blocks[key, request.query["blockid"]] = request.body
            return Answer(201)
        failed = self._check_conditions(request, key)
        if failed is not None:
            return failed
        if component == "blocklist":
            return self._commit_blocks(request, key)
        if request.headers.get("x-ms-blob-type") != "BlockBlob":
            return refusal(400, "InvalidHeaderValue", "x-ms-blob-type must be BlockBlob.")
        if "content-length" not in request.headers:
            return refusal(411, "MissingContentLengthHeader", "Content-Length is missing.")
        return self._store(request, key, request.body)

    def _commit_blocks(self, request: Request, key: str) -> Answer:
        parts = []
        for element in ElementTree.fromstring(request.body):
            identity = (key, element.text or "")
            if identity not in self.blocks:
                return refusal(400, "InvalidBlockList", "The specified block list is invalid.")
            parts.append(self.blocks[identity])
        self.blocks = {name: data for name, data in self.blocks.items() if name[0] != key}
        return self._store(request, key, b"".join(parts))

    def _store(self, request: Request, key: str, data: bytes) -> Answer:
        """Store a blob, and return the answer that says so."""
        self.put(key, data)
        stored = replace(self.objects[key], metadata=_metadata_of(request))
        self.objects[key] = stored
        return Answer(201, b"", {"ETag": etag_of(stored), "Last-Modified": stored.last_modified})

    def _content(self, request: Request, key: str) -> Answer:
        """Answer Get Blob and Get Blob Properties."""
        stored = self.objects[key]
        headers = {
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
            "ETag": etag_of(stored),
            "Last-Modified": stored.last_modified,
            "x-ms-blob-type": "BlockBlob",
            "x-ms-creation-time": stored.last_modified,
            "x-ms-version": request.headers.get("x-ms-version", "2022-11-02"),
        }
        for name, value in stored.metadata.items():
            headers[f"x-ms-meta-{name}"] = value
        # If there are both, x-ms-range counts.
        asked = request.headers.get("x-ms-range", request.headers.get("range"))
        if asked is None or request.method == "HEAD":
            return Answer(200, stored.data, headers)
        selected = select_range(stored.data, asked)
        if selected is None:
            answer = refusal(416, "InvalidRange", "The range specified is invalid.")
            answer.headers["Content-Range"] = f"bytes */{len(stored.data)}"
            return answer
        start, stop = selected
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(stored.data)}"
        return Answer(206, stored.data[start:stop], headers)

    def _list(self, request: Request) -> Answer:
        prefix = request.query.get("prefix", "")
        delimiter = request.query.get("delimiter", "")
        limit = int(request.query.get("maxresults", "5000"))
        page = self.select_page(prefix, delimiter, request.query.get("marker", ""), limit)
        rows = [self._row(key) for key in page.keys]
        for folder in page.folders:
            rows.append(f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>")
        marker = escape(page.next_name or "")
        body = (
            '<?xml version="1.0" encoding="utf-8"?>'
            f'<EnumerationResults ServiceEndpoint="{self.url}" ContainerName="{self.bucket}">'
            f"<Prefix>{escape(prefix)}</Prefix><Blobs>{''.join(rows)}</Blobs>"
            f"<NextMarker>{marker}</NextMarker></EnumerationResults>"
        )
        return Answer(200, body.encode(), {"Content-Type": "application/xml"})

    def _row(self, key: str) -> str:
        stored = self.objects[key]
        # In listings, tags have no quotes.
        etag = etag_of(stored).strip('"')
        metadata = "".join(
            f"<{name}>{escape(value)}</{name}>" for name, value in stored.metadata.items()
        )
        return (
            f"<Blob><Name>{escape(key)}</Name><Properties>"
            f"<Creation-Time>{stored.last_modified}</Creation-Time>"
            f"<Last-Modified>{stored.last_modified}</Last-Modified><Etag>{etag}</Etag>"
            f"<Content-Length>{len(stored.data)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type>"
            f"<BlobType>BlockBlob</BlobType></Properties><Metadata>{metadata}</Metadata></Blob>"
        )

    def _check_conditions(self, request: Request, key: str) -> Answer | None:
        """Return the refusal of a request whose conditions do not hold; None if they do."""
        stored = self.objects.get(key)
        if request.headers.get("if-none-match") == "*" and stored is not None:
            if request.method == "PUT":
                return refusal(409, "BlobAlreadyExists", "The specified blob already exists.")
            return refusal(412, "ConditionNotMet", _CONDITION_NOT_MET)
        wanted = request.headers.get("if-match")
        if wanted is None:
            return None
        if stored is None or wanted not in ("*", etag_of(stored)):
            return refusal(412, "ConditionNotMet", _CONDITION_NOT_MET)
        return None

    # ------------------------------------------------------------------ logins

    def _check_login(self, request: Request) -> Answer | None:
        """Return the refusal of a request whose login is wrong or missing; None if it is right."""
        authorization = request.headers.get("authorization", "")
        if authorization.startswith("SharedKey "):
            is_right = authorization == f"SharedKey {ACCOUNT}:{_signature_of(request)}"
        elif authorization:
            is_right = authorization == f"Bearer {TOKEN}"
        elif "sig" in request.query:
            return _check_sas(request)
        else:
            is_right = self.is_public and request.method in ("GET", "HEAD")
            if not is_right:
                message = "Public access is not permitted on this storage account."
                return refusal(409, "PublicAccessNotPermitted", message)
        if is_right:
            return None
        message = "Server failed to authenticate the request. Make sure the value of Authorization"
        return refusal(403, "AuthenticationFailed", message)


def split_path(path: str) -> tuple[str, str]:
    """Return the container and the key of a URL.

    The URL of an emulator begins with the name of the account.
    """
    _, _, name = unquote(path).partition("/")
    name = name.removeprefix(f"{ACCOUNT}/")
    container, _, key = name.partition("/")
    return container, key


def key_of(request: Request) -> str:
    """Return the key that a request is for; empty for a listing."""
    return split_path(request.path)[1]


def etag_of(stored: StoredObject) -> str:
    """Return the ETag in headers, which grows with each write."""
    return f'"0x{stored.generation:X}"'


def refusal(status: int, code: str, message: str = "") -> Answer:
    """Return an error."""
    body = f"<Error><Code>{code}</Code><Message>{escape(message)}\nRequestId:1</Message></Error>"
    text = f'<?xml version="1.0" encoding="utf-8"?>{body}'
    return Answer(
        status, text.encode(), {"Content-Type": "application/xml", "x-ms-error-code": code}
    )


def _metadata_of(request: Request) -> dict[str, str]:
    """Return what a client stores with a blob."""
    return {
        name.removeprefix("x-ms-meta-"): value
        for name, value in request.headers.items()
        if name.startswith("x-ms-meta-")
    }


def _signature_of(request: Request) -> str:
    """Return the signature that a request must have."""
    lines = [request.method]
    for name in _SIGNED_HEADERS:
        value = request.headers.get(name, "")
        is_empty_length = name == "content-length" and value == "0"
        lines.append("" if is_empty_length else value)
    for name in sorted(request.headers):
        if name.startswith("x-ms-"):
            lines.append(f"{name}:{request.headers[name]}")
    lines.append(f"/{ACCOUNT}{request.path}")
    for name in sorted(request.query):
        lines.append(f"{name.lower()}:{request.query[name]}")
    return _sign("\n".join(lines))


def _check_sas(request: Request) -> Answer | None:
    """Return the refusal of a request with a shared access signature; None if it is right."""
    fields = request.query
    ends_at = datetime.strptime(fields["se"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    is_signed = fields["sig"] == _sas_signature(fields)
    if not is_signed or ends_at < datetime.now(timezone.utc):
        message = "Server failed to authenticate the request. Signature did not match"
        return refusal(403, "AuthenticationFailed", message)
    permission = "l" if fields.get("comp") == "list" else _SAS_PERMISSIONS[request.method]
    if permission not in fields["sp"]:
        message = "This request is not authorized to perform this operation using this permission."
        return refusal(403, "AuthorizationPermissionMismatch", message)
    return None


def _sas_signature(fields: dict[str, str]) -> str:
    lines = [ACCOUNT, *(fields.get(name, "") for name in _SIGNED_SAS_FIELDS), ""]
    return _sign("\n".join(lines))


def _sign(text: str) -> str:
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _date(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return moment.strftime("%a, %d %b %Y %H:%M:%S GMT")
