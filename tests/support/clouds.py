"""The object stores of three clouds, for tests of what they have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import azure_server
import gcs_server
import scripted_s3
from azure_server import AzureServer
from gcs_server import GCSServer
from object_server import Answer, ObjectServer, Request
from scripted_s3 import ScriptedS3

from data_stack.io.storage_connectors import FsspecStorageConnector


class Cloud(ABC):
    """A server, and what is peculiar to it.

    Attributes:
        server: the server, which holds nothing at first.
        scheme: of the URLs of its stores.
    """

    server: ObjectServer
    scheme: ClassVar[str]

    def store(self, place: str = "data/f", **options: Any) -> FsspecStorageConnector:
        """Return a store that is logged in, and that our web client lists."""
        return FsspecStorageConnector(f"{self.scheme}://{place}", **self.arguments(**options))

    def arguments(self, **options: Any) -> dict[str, Any]:
        """Return the arguments of a store."""
        arguments = {"timeout_seconds": 30.0, **self.login(), **options}
        return {"endpoint_url": self.server.url, **arguments}

    def listings(self) -> list[Request]:
        """Return the requests for pages that arrived."""
        return [request for request in self.server.requests if self.is_listing(request)]

    @abstractmethod
    def login(self) -> dict[str, Any]:
        """Return the arguments that log a store in."""

    @abstractmethod
    def login_with_secret(self) -> dict[str, Any]:
        """Return the arguments of a login whose requests carry a secret."""

    @abstractmethod
    def anonymous(self) -> dict[str, Any]:
        """Return the arguments of a store without a login, and let the server answer it."""

    @abstractmethod
    def sent_login(self, request: Request) -> str:
        """Return what a request carries of ``login_with_secret()``; its last word is secret."""

    @abstractmethod
    def is_listing(self, request: Request) -> bool:
        """Return whether a request is for a page of a listing."""

    @abstractmethod
    def page(self, *keys: str, token: str = "") -> Answer:
        """Return a page that goes on by a token; empty: that is the last one."""

    @abstractmethod
    def refusal(self, status: int, code: str, message: str = "") -> Answer:
        """Return an error that answers a listing."""


class S3(Cloud):
    """S3, which answers requests without a login, too."""

    scheme = "s3"

    def __init__(self, server: ScriptedS3) -> None:
        self.server = server

    def login(self) -> dict[str, Any]:
        region = {"region_name": "us-east-1"}
        return {"key": "k", "secret": "secret-canary", "client_kwargs": region}

    def login_with_secret(self) -> dict[str, Any]:
        return {"token": "token-canary"}

    def anonymous(self) -> dict[str, Any]:
        return {"key": None, "secret": None, "anon": True}

    def sent_login(self, request: Request) -> str:
        return request.headers["x-amz-security-token"]

    def is_listing(self, request: Request) -> bool:
        return scripted_s3.is_listing(request)

    def page(self, *keys: str, token: str = "") -> Answer:
        rows = [f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys]
        return scripted_s3.listing_of(*rows, token=token or None)

    def refusal(self, status: int, code: str, message: str = "") -> Answer:
        return scripted_s3.refusal(status, code, message)


class Google(Cloud):
    """Google Cloud Storage, with the login of a service account."""

    scheme = "gs"

    def __init__(self, server: GCSServer) -> None:
        self.server: GCSServer = server

    def login(self) -> dict[str, Any]:
        return {"token": self.server.service_account()}

    def login_with_secret(self) -> dict[str, Any]:
        return self.login()

    def anonymous(self) -> dict[str, Any]:
        self.server.is_public = True
        return {"token": "anon"}

    def sent_login(self, request: Request) -> str:
        return request.headers["authorization"]

    def is_listing(self, request: Request) -> bool:
        return request.path == "/storage/v1/b/data/o"

    def page(self, *keys: str, token: str = "") -> Answer:
        document: dict[str, Any] = {
            "kind": "storage#objects",
            "items": [{"name": key, "size": "1"} for key in keys],
        }
        if token:
            document["nextPageToken"] = token
        return Answer(200, json.dumps(document).encode())

    def refusal(self, status: int, code: str, message: str = "") -> Answer:
        return gcs_server.json_refusal(status, code, message)


class Azure(Cloud):
    """Azure Blob Storage, with the key of its account."""

    scheme = "az"

    def __init__(self, server: AzureServer) -> None:
        self.server: AzureServer = server

    def login(self) -> dict[str, Any]:
        return {"account_name": azure_server.ACCOUNT, "account_key": azure_server.KEY}

    def login_with_secret(self) -> dict[str, Any]:
        return {"account_key": None, "sas_token": self.server.sas_token()}

    def anonymous(self) -> dict[str, Any]:
        self.server.is_public = True
        return {"account_key": None, "anon": True}

    def sent_login(self, request: Request) -> str:
        return request.query["sig"]

    def is_listing(self, request: Request) -> bool:
        return request.query.get("comp") == "list"

    def page(self, *keys: str, token: str = "") -> Answer:
        properties = "<Etag>0x1</Etag><BlobType>BlockBlob</BlobType>"
        rows = "".join(azure_row(key, "1", properties) for key in keys)
        body = azure_page(rows, f"<NextMarker>{token}</NextMarker>")
        return Answer(200, body, {"Content-Type": "application/xml"})

    def refusal(self, status: int, code: str, message: str = "") -> Answer:
        return azure_server.refusal(status, code, message)


def azure_row(name: str, size: str = "1", properties: str = "") -> str:
    """Return a blob of a page of Azure."""
    length = f"<Content-Length>{size}</Content-Length>"
    return f"<Blob><Name>{name}</Name><Properties>{length}{properties}</Properties></Blob>"


def azure_page(rows: str, end: str = "<NextMarker />") -> bytes:
    """Return a page of Azure."""
    name = 'ContainerName="data"'
    return f"<EnumerationResults {name}><Blobs>{rows}</Blobs>{end}</EnumerationResults>".encode()
