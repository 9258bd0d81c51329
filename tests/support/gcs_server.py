"""A small server of Google Cloud Storage on loopback, with its XML API and its JSON API.

obstore uses the XML API, gcsfs the JSON API:

- https://cloud.google.com/storage/docs/xml-api/reference-methods
- https://cloud.google.com/storage/docs/xml-api/reference-status
- https://cloud.google.com/storage/docs/json_api/v1/objects
It gives tokens, too: to a service account, to a user, to a workload of another provider, and as the
metadata server of a machine:

- https://developers.google.com/identity/protocols/oauth2/service-account
- https://developers.google.com/identity/protocols/oauth2/web-server#offline
- https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token
- https://cloud.google.com/compute/docs/access/authenticate-workloads
"""

from __future__ import annotations

import base64
import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from object_server import Answer, ObjectServer, Page, Request, StoredObject, select_range

from data_stack.io.storage_connectors import FsspecStorageConnector

# gcsfs imports what it needs for gRPC, which takes a second, unless this is set before its import.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

_ACCOUNT: Final = "reader@project.iam.gserviceaccount.com"
_JSON_API: Final = "/storage/v1/b/"
_DOWNLOADS: Final = "/download/storage/v1/b/"
_UPLOADS: Final = "/upload/storage/v1/b/"
_TOKEN_PATH: Final = "/token"
_METADATA_PATH: Final = "/computeMetadata/v1/"
#: What the access tokens begin with.
_ACCESS_TOKEN: Final = "access-token-canary-"
_REFRESH_TOKEN: Final = "refresh-token-canary"
_CLIENT_SECRET: Final = "client-secret-canary"
_SUBJECT_TOKEN: Final = "subject-token-canary"


def make_private_key() -> rsa.RSAPrivateKey:
    """Return a new key of a service account."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class GCSServer(ObjectServer):
    """Has one bucket, ``data``.

    Attributes:
        is_public: whether requests without a login are answered.
        private_key: the key of the service account that may read and write.
        token_seconds: for how long an access token is valid.
        n_tokens: how many access tokens were given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_public = True
        self.private_key = make_private_key()
        self.token_seconds = 3600
        self.n_tokens = 0
        self._expires_at: dict[str, float] = {}

    def reset(self) -> None:
        super().reset()
        self.is_public = False

    def store(self, place: str = "data/f", **options: Any) -> FsspecStorageConnector:
        """Return a store in a folder, by default without a login."""
        arguments: dict[str, Any] = {"token": "anon", "timeout_seconds": 30.0, **options}
        return FsspecStorageConnector(f"gs://{place}", endpoint_url=self.url, **arguments)

    def write_key_file(self, path: Path, private_key: rsa.RSAPrivateKey | None = None) -> None:
        """Write the file of a service account, for ``GOOGLE_APPLICATION_CREDENTIALS``.

        Args:
            path: the file.
            private_key: its key; None: the right one.
        """
        path.write_text(json.dumps(self.service_account(private_key)), encoding="utf-8")

    def service_account(self, private_key: rsa.RSAPrivateKey | None = None) -> dict[str, str]:
        """Return the service account, as its file describes it.

        Args:
            private_key: its key; None: the right one.
        """
        key = self.private_key if private_key is None else private_key
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return {
            "type": "service_account",
            "project_id": "project",
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": _ACCOUNT,
            "client_id": "1",
            "token_uri": f"{self.url}{_TOKEN_PATH}",
        }

    def user_login(self) -> dict[str, str]:
        """Return the arguments of ``google.oauth2.credentials.Credentials`` of a user."""
        return {
            "refresh_token": _REFRESH_TOKEN,
            "client_id": "client",
            "client_secret": _CLIENT_SECRET,
            "token_uri": f"{self.url}{_TOKEN_PATH}",
        }

    def write_workload_file(self, path: Path) -> None:
        """Write the file of a workload of another provider, whose token is in a file beside it."""
        token_path = path.with_suffix(".token")
        token_path.write_text(_SUBJECT_TOKEN, encoding="utf-8")
        workload = {
            "type": "external_account",
            "audience": "//iam.googleapis.com/locations/global/workforcePools/pool/providers/p",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.url}{_TOKEN_PATH}",
            "credential_source": {"file": str(token_path)},
        }
        path.write_text(json.dumps(workload), encoding="utf-8")

    def token_requests(self) -> list[Request]:
        """Return the requests for access tokens that arrived."""
        is_for_token = (_TOKEN_PATH, f"{_METADATA_PATH}instance/service-accounts/default/token")
        return [request for request in self.requests if request.path in is_for_token]

    # ------------------------------------------------------------------ right answers

    def right_answer(self, request: Request) -> Answer:
        if request.path == _TOKEN_PATH:
            return self._give_token(request)
        if request.headers.get("metadata-flavor") == "Google":
            return self._answer_metadata(request)
        is_json = request.path.startswith((_JSON_API, _DOWNLOADS, _UPLOADS))
        refusal = json_refusal if is_json else xml_refusal
        if not self._is_allowed(request.headers.get("authorization")):
            return refusal(401, "AuthenticationRequired", "Authentication required.")
        bucket, key = _split_path(request.path)
        if bucket != self.bucket:
            return refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        if is_json:
            return self._answer_json(request, key)
        return self._answer_xml(request, key)

    def _is_allowed(self, authorization: str | None) -> bool:
        """Return whether a request has a right login, or needs none."""
        if authorization is None:
            return self.is_public
        token = authorization.removeprefix("Bearer ")
        expires_at = self._expires_at.get(token)
        if expires_at is not None:
            return time.time() < expires_at
        return self._is_signed(token)

    def _is_signed(self, token: str) -> bool:
        """Return whether a JSON Web Token is signed by the service account, and still valid."""
        try:
            signed, _, signature = token.rpartition(".")
            claims = json.loads(_decode(signed.partition(".")[2]))
            self.private_key.public_key().verify(
                _decode(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except (InvalidSignature, ValueError):
            return False
        is_valid: bool = claims["iss"] == _ACCOUNT and claims["exp"] > time.time()
        return is_valid

    def _give_token(self, request: Request) -> Answer:
        form = dict(parse_qsl(request.body.decode()))
        if not self._is_login(form):
            return _json(400, {"error": "invalid_grant", "error_description": "Invalid JWT"})
        return self._new_token()

    def _is_login(self, form: dict[str, str]) -> bool:
        """Return whether the form of a request for a token has a right login."""
        grant_type = form["grant_type"].rpartition(":")[2]
        if grant_type == "jwt-bearer":
            return self._is_signed(form["assertion"])
        if grant_type == "refresh_token":
            return (form["refresh_token"], form["client_secret"]) == (
                _REFRESH_TOKEN,
                _CLIENT_SECRET,
            )
        return grant_type == "token-exchange" and form["subject_token"] == _SUBJECT_TOKEN

    def _answer_metadata(self, request: Request) -> Answer:
        """Answer as the metadata server of a machine in Google's cloud."""
        name = request.path.removeprefix(_METADATA_PATH)
        if name == "instance/service-accounts/default/token":
            answer = self._new_token()
        elif name.startswith("instance/service-accounts/default"):
            answer = _json(200, {"email": _ACCOUNT, "scopes": ["all"], "aliases": ["default"]})
        else:
            # The root, and the name of the project.
            answer = Answer(200, b"project", {"Content-Type": "application/text"})
        answer.headers["Metadata-Flavor"] = "Google"
        return answer

    def expire_tokens(self) -> None:
        """Refuse all tokens that were issued so far."""
        for token in self._expires_at:
            self._expires_at[token] = 0.0

    def _new_token(self) -> Answer:
        self.n_tokens += 1
        token = f"{_ACCESS_TOKEN}{self.n_tokens}"
        self._expires_at[token] = time.time() + self.token_seconds
        lifetime = {"expires_in": self.token_seconds, "token_type": "Bearer"}
        issued = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        return _json(200, {"access_token": token, **lifetime, **issued})

    # ------------------------------------------------------------------ XML API

    def _answer_xml(self, request: Request, key: str) -> Answer:
        if not key:
            return self._list_xml(request)
        if request.method == "PUT":
            condition = request.headers.get("x-goog-if-generation-match")
            if not self._fulfills(key, condition):
                return xml_refusal(412, "PreconditionFailed", "The pre-conditions did not hold.")
            self.put(key, request.body)
            return Answer(headers=_headers_of(self.objects[key]))
        if key not in self.objects or not self._fulfills(key, request.query.get("generation")):
            return xml_refusal(404, "NoSuchKey", "The specified key does not exist.")
        if request.method == "DELETE":
            del self.objects[key]
            return Answer(204)
        stored = self.objects[key]
        condition = request.headers.get("if-match")
        if condition not in (None, "*", etag_of(stored)):
            return xml_refusal(412, "PreconditionFailed", "The pre-conditions did not hold.")
        return _content(request, stored, xml_refusal(416, "InvalidRange", "Not satisfiable."))

    def _list_xml(self, request: Request) -> Answer:
        page = self.select_page(
            request.query.get("prefix", ""),
            request.query.get("delimiter", ""),
            request.query.get("continuation-token", ""),
            int(request.query.get("max-keys", "1000")),
        )
        rows = [self._xml_row(key) for key in page.keys]
        for folder in page.folders:
            rows.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
        end = "<IsTruncated>false</IsTruncated>"
        if page.next_name is not None:
            token = f"<NextContinuationToken>{escape(page.next_name)}</NextContinuationToken>"
            end = f"<IsTruncated>true</IsTruncated>{token}"
        body = f"<ListBucketResult><Name>{self.bucket}</Name>{''.join(rows)}{end}"
        return _xml(200, f"{body}</ListBucketResult>")

    def _xml_row(self, key: str) -> str:
        stored = self.objects[key]
        return (
            f"<Contents><Key>{escape(key)}</Key><Generation>{stored.generation}</Generation>"
            f"<MetaGeneration>1</MetaGeneration><LastModified>{_timestamp(stored)}</LastModified>"
            f"<ETag>{escape(etag_of(stored))}</ETag><Size>{len(stored.data)}</Size></Contents>"
        )

    # ------------------------------------------------------------------ JSON API

    def _answer_json(self, request: Request, key: str) -> Answer:
        if request.path.startswith(_UPLOADS):
            return self._upload(request)
        if not key and request.path.endswith("/o"):
            return self._list_json(request)
        if not key:
            return _json(200, {"kind": "storage#bucket", "name": self.bucket})
        if key not in self.objects:
            message = f"No such object: {self.bucket}/{key}"
            return json_refusal(404, "notFound", message)
        stored = self.objects[key]
        if request.method == "DELETE":
            if not self._fulfills(key, request.query.get("ifGenerationMatch")):
                return json_refusal(412, "conditionNotMet", "At least one condition did not hold.")
            del self.objects[key]
            return Answer(204)
        if request.query.get("alt") == "media":
            refusal = json_refusal(416, "requestedRangeNotSatisfiable", "Not satisfiable")
            return _content(request, stored, refusal)
        return _json(200, self._json_row(key))

    def _upload(self, request: Request) -> Answer:
        """Store the object of a request.

        A body of the type "multipart" is its description, then its data.
        """
        if request.query["uploadType"] == "media":
            return self._store_if(request, request.query["name"], request.body)
        boundary = request.headers["content-type"].partition("boundary=")[2].strip('"')
        mark = f"--{boundary}".encode()
        # The data itself may hold the mark: what is before the last one is data.
        _, described, remainder = request.body.split(mark, 2)
        data_part = remainder.rpartition(mark + b"--")[0]
        description = json.loads(described.partition(b"\n\n")[2])
        data = data_part.partition(b"\n\n")[2]
        return self._store_if(request, description["name"], data.removesuffix(b"\n"))

    def _store_if(self, request: Request, key: str, data: bytes) -> Answer:
        """Store an object if the condition of a request holds."""
        if not self._fulfills(key, request.query.get("ifGenerationMatch")):
            return json_refusal(412, "conditionNotMet", "At least one condition did not hold.")
        self.put(key, data)
        return _json(200, self._json_row(key))

    def _list_json(self, request: Request) -> Answer:
        page: Page = self.select_page(
            request.query.get("prefix", ""),
            request.query.get("delimiter", ""),
            request.query.get("pageToken", ""),
            int(request.query.get("maxResults", "1000")),
        )
        listing: dict[str, Any] = {"kind": "storage#objects"}
        if page.keys:
            listing["items"] = [self._json_row(key) for key in page.keys]
        if page.folders:
            listing["prefixes"] = page.folders
        if page.next_name is not None:
            listing["nextPageToken"] = page.next_name
        return _json(200, listing)

    def _json_row(self, key: str) -> dict[str, Any]:
        stored = self.objects[key]
        return {
            "kind": "storage#object",
            "bucket": self.bucket,
            "name": key,
            "size": str(len(stored.data)),
            "generation": str(stored.generation),
            "metageneration": "1",
            "etag": base64.b64encode(str(stored.generation).encode()).decode(),
            "md5Hash": stored.md5_base64,
            "timeCreated": _timestamp(stored),
            "updated": _timestamp(stored),
        }

    def _fulfills(self, key: str, generation: str | None) -> bool:
        """Return whether an object has a generation; 0: there must be no object."""
        if generation is None:
            return True
        stored = self.objects.get(key)
        if stored is None:
            return generation == "0"
        return generation == str(stored.generation)


def etag_of(stored: StoredObject) -> str:
    """Return the ETag in headers and in the XML API."""
    return f'"{stored.md5.hex()}"'


def xml_refusal(status: int, code: str, message: str = "") -> Answer:
    """Return an error of the XML API."""
    return _xml(status, f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>")


def refusal(request: Request, status: int, code: str, message: str = "") -> Answer:
    """Return an error of the API of a request."""
    if request.path.startswith((_JSON_API, _DOWNLOADS, _UPLOADS)):
        return json_refusal(status, code, message)
    return xml_refusal(status, code, message)


def key_of(request: Request) -> str:
    """Return the key that a request is for; empty: a listing, or an upload by gcsfs."""
    return _split_path(request.path)[1]


def _split_path(path: str) -> tuple[str, str]:
    """Return the bucket and the key of a URL."""
    for beginning in (_JSON_API, _DOWNLOADS, _UPLOADS):
        if path.startswith(beginning):
            bucket, _, rest = path.removeprefix(beginning).partition("/")
            key = "" if rest == "o" else rest.removeprefix("o/")
            return unquote(bucket), unquote(key)
    bucket, _, key = path.removeprefix("/").partition("/")
    return unquote(bucket), unquote(key)


def _headers_of(stored: StoredObject) -> dict[str, str]:
    return {
        "Content-Type": "application/octet-stream",
        "ETag": etag_of(stored),
        "Last-Modified": stored.last_modified,
        "x-goog-generation": str(stored.generation),
        "x-goog-metageneration": "1",
        "x-goog-hash": f"md5={stored.md5_base64}",
        "x-goog-stored-content-length": str(len(stored.data)),
    }


def _content(request: Request, stored: StoredObject, out_of_range: Answer) -> Answer:
    """Return an object, or the range of it that a request asks for."""
    headers = _headers_of(stored)
    asked = request.headers.get("range")
    if asked is None:
        return Answer(200, stored.data, headers)
    selected = select_range(stored.data, asked)
    if selected is None:
        return out_of_range
    start, stop = selected
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(stored.data)}"
    return Answer(206, stored.data[start:stop], headers)


def _timestamp(stored: StoredObject) -> str:
    modified = datetime.fromtimestamp(stored.modified, tz=timezone.utc)
    return modified.strftime("%Y-%m-%dT%H:%M:%S.") + f"{modified.microsecond // 1000:03}Z"


def _decode(text: str) -> bytes:
    """Decode base64url without its padding, as JSON Web Tokens have it."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _xml(status: int, text: str) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode()
    return Answer(status, body, {"Content-Type": "application/xml; charset=UTF-8"})


def _json(status: int, value: object) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def json_refusal(status: int, code: str, message: str = "") -> Answer:
    """Return an error of the JSON API."""
    errors = [{"message": message, "domain": "global", "reason": code}]
    return _json(status, {"error": {"code": status, "message": message, "errors": errors}})
