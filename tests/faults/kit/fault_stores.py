"""New, empty stores of each kind for one try of a fault each, and what is left in them."""

from __future__ import annotations

import itertools
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymongo
from fault_processes import Fault
from s3_server import REGION, S3Server

Description = Mapping[str, Any]


#: What a disk, a quota, a mount option, a permission, a limit or a network file system may answer.
DISK_ERRORS = (
    "ENOSPC", "EIO", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EMFILE", "ENFILE", "EINTR", "ENOMEM", "ESTALE", "EXDEV",
    "EBUSY",
)  # fmt: skip
NETWORK_ERRORS = ("ECONNRESET", "EPIPE", "ETIMEDOUT", "ENETUNREACH", "EINTR", "ENOBUFS")


class StoreKind(ABC):
    """A kind of store, as a row of the tables of the fault tests.

    Attributes:
        name: of the row.
        errors: what a call that reaches it may fail with.
        cost: how long one try takes; the small form has that much fewer of them.
        slowness: how much less its server does at once than others.
        keeps_open: its client keeps a thread and its handles for the life of a process, one for all connectors.
    """

    name: str
    errors: Sequence[str] = DISK_ERRORS
    cost = 1
    slowness = 1
    keeps_open = False

    @abstractmethod
    def new(self) -> Description:
        """Description of a new, empty store, as fault_dataset.py wants it."""

    def hurried(self, description: Description) -> Description:
        """The same store for a client that soon gives up waiting, where one waits."""
        return description

    @abstractmethod
    def fault(self, description: Description, **what: Any) -> Fault:
        """A fault at one of the calls that reach the store."""

    @abstractmethod
    def left_over(self, description: Description) -> list[str]:
        """What lies in a store after a sweep that no resource needs; found without our own code."""

    @abstractmethod
    def discard(self, description: Description) -> None:
        """Remove a store."""

    def left_open(self) -> list[str]:
        """What a server still keeps open for clients that are gone."""
        return []


class FileStores(StoreKind):
    """Folders."""

    name = "file"

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()

    def new(self) -> Description:
        return {"url": str(self._folder / f"file-{next(self._numbers)}")}

    def fault(self, description: Description, **what: Any) -> Fault:
        return Fault(folder=description["url"], **what)

    def left_over(self, description: Description) -> list[str]:
        return [
            str(path) for path in Path(description["url"]).rglob("*") if path.name.startswith(".~") or path.name == "journal.json"
        ]

    def discard(self, description: Description) -> None:
        shutil.rmtree(description["url"], ignore_errors=True)


class CachedStores(StoreKind):
    """A folder before a folder: both are hit."""

    name = "cached"
    cost = 4

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()

    def new(self) -> Description:
        top = self._folder / f"cached-{next(self._numbers)}"
        top.mkdir()
        return {"url": f"file://{quote(str(top))}/remote?cache={quote(str(top))}/local", "folder": str(top)}

    def fault(self, description: Description, **what: Any) -> Fault:
        return Fault(folder=description["folder"], **what)

    def left_over(self, description: Description) -> list[str]:
        remote = FileStores(self._folder).left_over({"url": f"{description['folder']}/remote"})
        return remote + [str(path) for path in Path(description["folder"], "local", "unfinished").rglob("*")]

    def discard(self, description: Description) -> None:
        shutil.rmtree(description["folder"], ignore_errors=True)


class MongoDBStores(StoreKind):
    """Databases of one server.

    Args:
        uri: its connection string without database, and with options.
    """

    errors = NETWORK_ERRORS
    cost = 4

    name = "mongodb"

    def __init__(self, uri: str) -> None:
        self._before, self._after = uri.split("/?")

    def new(self) -> Description:
        name = f"faults_{secrets.token_hex(6)}"
        # Small chunks and little that is inlined, so that a small dataset uses all of it.
        url = f"{self._before}/{name}?{self._after}&chunkBytes=65536&inlineBytes=16384&timeoutSeconds=10"
        return {"url": url, "database": name}

    def hurried(self, description: Description) -> Description:
        return {**description, "url": description["url"].replace("timeoutSeconds=10", "timeoutSeconds=1")}

    def fault(self, description: Description, **what: Any) -> Fault:
        return Fault(sockets=True, **what)

    def left_over(self, description: Description) -> list[str]:
        with pymongo.MongoClient[Any](f"{self._before}/?{self._after}") as client:
            database = client[description["database"]]
            needed = {pointer.get("file_id") for pointer in database["data_stack.resources"].find({}, {"file_id": 1})}
            left = [f"chunks of {each}" for each in database["data_stack.chunks"].distinct("files_id") if each not in needed]
            left += [
                f"file {each['_id']}" for each in database["data_stack.files"].find({}, {"_id": 1}) if each["_id"] not in needed
            ]
            left += [f"upload {each}" for each in database["data_stack.uploads"].find()]
            left += [f"lease {each}" for each in database["data_stack.leases"].find()]
            left += [f"journal {each}" for each in database["data_stack.resources"].find({"_id": {"$regex": "journal"}})]
        return left

    def disown_uploads(self, description: Description) -> None:
        """Let the server believe that the processes which wrote are dead, though they are this one."""
        with pymongo.MongoClient[Any](f"{self._before}/?{self._after}") as client:
            uploads = client[description["database"]]["data_stack.uploads"]
            for upload in list(uploads.find()):
                machine, pid, started = upload["owner"].split("-")
                uploads.update_one({"_id": upload["_id"]}, {"$set": {"owner": f"{machine}-{pid}-{int(started) - 1}"}})

    def discard(self, description: Description) -> None:
        with pymongo.MongoClient[Any](f"{self._before}/?{self._after}") as client:
            client.drop_database(description["database"])

    def left_open(self) -> list[str]:
        with pymongo.MongoClient[Any](f"{self._before}/?{self._after}") as client:
            open_cursors = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
        return [f"{open_cursors} cursors"] if open_cursors else []


class S3Stores(StoreKind):
    """Buckets of one server; credentials come from the environment."""

    name = "s3"
    errors = NETWORK_ERRORS
    cost = 10
    slowness = 4  # a server in Python, that answers one request after the other
    keeps_open = True

    def __init__(self, server: S3Server) -> None:
        self._server = server

    def new(self) -> Description:
        bucket = self._server.new_bucket()
        return {
            "url": f"s3://{bucket}/store?endpointUrl={quote(self._server.endpoint_url, safe='')}&region={REGION}",
            "bucket": bucket,
        }

    def hurried(self, description: Description) -> Description:
        return {**description, "url": f"{description['url']}&timeoutSeconds=1"}

    def fault(self, description: Description, **what: Any) -> Fault:
        return Fault(sockets=True, **what)

    def left_over(self, description: Description) -> list[str]:
        names = self._names(description)
        return [name for name in names if "/temporaries/" in name or name.endswith("journal.json~")]

    def discard(self, description: Description) -> None:
        for name in self._names(description):
            self._server.client.delete_object(Bucket=description["bucket"], Key=name)

    def _names(self, description: Description) -> list[str]:
        return [each["Key"] for each in self._server.client.list_objects_v2(Bucket=description["bucket"]).get("Contents", [])]
