"""Stores in Azure, by obstore and by adlfs, with a small server of Azure Blob Storage."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

pytest.importorskip("adlfs")

from azure_server import ACCOUNT, KEY, AzureServer

from data_stack.io.storage_connectors import StorageConnector
from data_stack.testing import StorageConnectorContract

DATA = random.Random(0).randbytes(600_000)
CLIENTS = ["fsspec", "obstore"]


@pytest.fixture(scope="module")
def server() -> Iterator[AzureServer]:
    with AzureServer() as server:
        yield server


@pytest.fixture
def azure(server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureServer]:
    """The server, with nothing in it, without faults; nothing but a test says how to log in."""
    server.reset()
    for name in os.environ:
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)
    yield server
    server.rule = lambda request: None


# adlfs sends parts as bytes, and aiohttp would rather have them as files.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
@pytest.mark.parametrize("client", CLIENTS)
class TestAzure(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, azure: AzureServer, client: str) -> StorageConnector:
        return azure.store(client=client, timeout_seconds=30.0)
