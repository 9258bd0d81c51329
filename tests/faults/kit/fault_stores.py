"""New, empty stores of each kind for one try of a fault each, and what is left in them."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymongo
from bson import Binary
from process_harness import Fault, flip_file, flipped
from pymongo.database import Database
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
        errors: what a call that reaches it may fail with.
        cost: how long one try takes; the small form has that much fewer of them.
        slowness: how much less its server does at once than others.
        keeps_open: its client keeps a thread and its handles for the life of a process, one for all
            connectors.
    """

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

    @abstractmethod
    def flip_bit(self, description: Description, identifier: str, position: int) -> None:
        """Flip bit ``position % 8`` of byte ``position // 8`` of the stored bytes, without the
        store.
        """

    def left_open(self) -> list[str]:
        """What a server still keeps open for clients that are gone."""
        return []


class FileStores(StoreKind):
    """Folders."""

    name = "file"

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()

    def new(self) -> Description:
        folder = str(self._folder / f"{self.name}-{next(self._numbers)}")
        return {"url": folder, "folder": folder, "files": folder}

    def fault(self, description: Description, **what: Any) -> Fault:
        return Fault(folder=description["folder"], **what)

    def left_over(self, description: Description) -> list[str]:
        paths = Path(description["files"]).rglob("*")
        return [
            str(path) for path in paths if path.name.startswith(".~") or path.name == "journal.json"
        ]

    def flip_bit(self, description: Description, identifier: str, position: int) -> None:
        flip_file(Path(description["files"], identifier), position)

    def discard(self, description: Description) -> None:
        shutil.rmtree(description["folder"], ignore_errors=True)


class CachedStores(FileStores):
    """A folder before a folder: both are hit."""

    name = "cached"
    cost = 4

    def new(self) -> Description:
        top = super().new()["folder"]
        Path(top).mkdir()
        return {
            "url": f"file://{quote(top)}/remote?cache={quote(top)}/local",
            "folder": top,
            "files": f"{top}/remote",
        }

    def left_over(self, description: Description) -> list[str]:
        unfinished = Path(description["folder"], "local", "unfinished").rglob("*")
        return super().left_over(description) + list(map(str, unfinished))


class MongoDBStores(StoreKind):
    """Databases of one server.

    Args:
        uri: its connection string without database, and with options.
    """

    errors = NETWORK_ERRORS
    cost = 4

    def __init__(self, uri: str) -> None:
        self._before, self._after = uri.split("/?")

    def new(self) -> Description:
        name = f"faults_{secrets.token_hex(6)}"
        # Small chunks and little that is inlined, so that a small dataset uses all of it.
        url = f"{self._before}/{name}?{self._after}&chunkBytes=65536&inlineBytes=16384&timeoutSeconds=10"
        return {"url": url, "database": name}

    def hurried(self, description: Description) -> Description:
        return {
            **description,
            "url": description["url"].replace("timeoutSeconds=10", "timeoutSeconds=1"),
        }

    def fault(self, description: Description, **what: Any) -> Fault:
        return Fault(sockets=True, **what)

    def left_over(self, description: Description) -> list[str]:
        with self._database(description) as database:
            needed = {
                pointer.get("file_id")
                for pointer in database["data_stack.resources"].find({}, {"file_id": 1})
            }
            left = [
                f"chunks of {each}"
                for each in database["data_stack.chunks"].distinct("files_id")
                if each not in needed
            ]
            left += [
                f"file {each['_id']}"
                for each in database["data_stack.files"].find({}, {"_id": 1})
                if each["_id"] not in needed
            ]
            left += [f"upload {each}" for each in database["data_stack.uploads"].find()]
            left += [f"lease {each}" for each in database["data_stack.leases"].find()]
            left += [
                f"journal {each}"
                for each in database["data_stack.resources"].find({"_id": {"$regex": "journal"}})
            ]
        return left

    def flip_bit(self, description: Description, identifier: str, position: int) -> None:
        with self._database(description) as database:
            pointer = database["data_stack.resources"].find_one({"_id": identifier}) or {}
            if "data" in pointer:
                data = flipped(pointer["data"], position)
                database["data_stack.resources"].update_one(
                    {"_id": identifier}, {"$set": {"data": Binary(data)}}
                )
                return
            number, rest = divmod(position, 8 * pointer["chunkSize"])
            place = {"files_id": pointer["file_id"], "n": number}
            chunk = database["data_stack.chunks"].find_one(place) or {}
            database["data_stack.chunks"].update_one(
                place, {"$set": {"data": Binary(flipped(chunk["data"], rest))}}
            )

    def disown_uploads(self, description: Description) -> None:
        """Let the server believe that the processes which wrote are dead, though they are this
        one.
        """
        with self._database(description) as database:
            for upload in list(database["data_stack.uploads"].find()):
                machine, pid, started = upload["owner"].split("-")
                owner = {"owner": f"{machine}-{pid}-{int(started) - 1}"}
                database["data_stack.uploads"].update_one({"_id": upload["_id"]}, {"$set": owner})

    def discard(self, description: Description) -> None:
        with self._database(description) as database:
            database.client.drop_database(database.name)

    def left_open(self) -> list[str]:
        with self._database({"database": "admin"}) as admin:
            n_cursors = admin.command("serverStatus", codec_options=admin.codec_options)["metrics"][
                "cursor"
            ]["open"]["total"]
        return [f"{n_cursors} cursors"] if n_cursors else []

    @contextlib.contextmanager
    def _database(self, description: Description) -> Iterator[Database[Any]]:
        # The server's own counters may bear names in which a fault has flipped a bit.
        with pymongo.MongoClient[Any](
            f"{self._before}/?{self._after}", unicode_decode_error_handler="replace"
        ) as client:
            yield client[description["database"]]


class S3Stores(StoreKind):
    """Buckets of one server; credentials come from the environment."""

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

    def flip_bit(self, description: Description, identifier: str, position: int) -> None:
        # Parts are named by their digests; the one that begins the resource is the longest, or the
        # only one.
        where = {"Bucket": description["bucket"]}
        objects = self._server.client.list_objects_v2(**where).get("Contents", [])
        key = max(
            (each for each in objects if "/objects/" in each["Key"]),
            key=lambda each: int(each["Size"]),
        )["Key"]
        data = self._server.client.get_object(**where, Key=key)["Body"].read()
        self._server.client.put_object(**where, Key=key, Body=flipped(data, position))

    def discard(self, description: Description) -> None:
        for name in self._names(description):
            self._server.client.delete_object(Bucket=description["bucket"], Key=name)

    def _names(self, description: Description) -> list[str]:
        return [
            each["Key"]
            for each in self._server.client.list_objects_v2(Bucket=description["bucket"]).get(
                "Contents", []
            )
        ]
