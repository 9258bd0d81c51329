"""A real S3 server on loopback for tests: moto's, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import urllib.request
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from process_harness import ServerProcess

from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key-canary"
LOGIN = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
REGION = "us-east-1"

_PROGRAM = """
import logging, sys
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler
WSGIRequestHandler.protocol_version = "HTTP/1.1"  # as S3 speaks; but werkzeug closes each connection
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until our parent closes it, or is gone
"""


class S3Server(ServerProcess):
    """A server with buckets in its memory.

    Attributes:
        endpoint_url: where it listens.
        port: on 127.0.0.1.
    """

    def __init__(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("AWS_")
        }
        super().__init__("-c", _PROGRAM, environment=environment)
        self.port = int(self.said[0])
        self.endpoint_url = f"http://127.0.0.1:{self.port}"

    @cached_property
    def client(self) -> Any:
        """A plain boto3 client, for looking at and damaging what is stored."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
        )

    def new_bucket(self) -> str:
        """A new, empty bucket."""
        bucket = f"bucket-{secrets.token_hex(6)}"
        request = urllib.request.Request(f"{self.endpoint_url}/{bucket}", method="PUT")
        with urllib.request.urlopen(request, timeout=60):
            return bucket

    def options(self, port: int | None = None) -> dict[str, Any]:
        """What FsspecStorageConnector takes besides a URL; ``port`` is that of a proxy to go
        through.
        """
        return {
            "endpoint_url": f"http://127.0.0.1:{port or self.port}",
            "key": ACCESS_KEY,
            "secret": SECRET_KEY,
            "client_kwargs": {"region_name": REGION},
        }

    @contextlib.contextmanager
    def kept_connection(self) -> Iterator[None]:
        """Keep the client that connectors with our options share, so that not each test makes
        one.
        """
        connector = FsspecStorageConnector(f"s3://{self.new_bucket()}", **self.options())
        connector.has_resource("a")
        yield
        del connector
