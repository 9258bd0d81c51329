"""The folders that converted DataFrames are written to: each once, shared by all that use it, and deleted by the last of them."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from data_stack.distributed.spark_hadoop import HadoopFolder
from data_stack.distributed.spark_session import folder_of_url, local_path, spark_session
from data_stack.exception import ConfigError, DataStackError, MissingDependencyError, StorageError
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.io.folder import Folder, folder_of
from data_stack.io.storage_connectors.owners import is_dead, this_process
from data_stack.util.lock_file import locked_file
from data_stack.util.logger import logger

try:
    from pyspark.sql import SparkSession
except ImportError as error:
    raise MissingDependencyError("data_stack.distributed with Spark", "pyspark", "spark") from error

__all__ = ["CacheFolder", "CachedFrame", "deleted", "register_delete_dir_handler"]

_NAME: Final = re.compile(r"data-stack-converter-[0-9a-f]{32}(?:-[0-9a-f]{12})?")
_FOLDER: Final = re.compile(r"data-stack-converter-[0-9a-f]{32}-[0-9a-f]{12}")
_LOOK_SECONDS: Final = 0.1
#: What Spark writes beside the files.
_SIDECARS: Final = ("_SUCCESS", "_metadata", "_common_metadata")

_handler: Callable[[str], Any] | None = None
_used: dict[str, CachedFrame] = {}
_used_lock = threading.Lock()
_writing: dict[str, threading.Lock] = {}


def register_delete_dir_handler(handler: Callable[[str], Any] | None) -> None:
    """Let ``handler``, a function of a folder's URL, delete the folders of converters; None: they are deleted as by default."""
    global _handler  # one for the process, as Petastorm has it
    if handler is not None and not callable(handler):
        raise ConfigError(f"a delete handler is a function of a URL, or None, not {handler!r:.80}")
    _handler = handler


@dataclass
class CachedFrame:
    """A folder with the rows of a DataFrame, in use by this process.

    Attributes:
        url: of the folder.
        files: the names of the Parquet files in it.
        n_rows: of all of them.
    """

    url: str
    files: tuple[str, ...]
    n_rows: int
    _name: str = field(repr=False)
    _folder: CacheFolder = field(repr=False)
    _lock: _Lock = field(repr=False)
    _pid: int = field(default_factory=os.getpid, repr=False)

    def exists(self) -> bool:
        """Whether it is still there."""
        return self._folder.record(self._name) is not None

    def delete(self) -> bool:
        """Delete what was written, and nothing else. False: another process uses it, and will delete it."""
        self._forget()
        if not self._lock.make_exclusive():
            self._lock.close()
            logger.info("%s is used by another process, which deletes it when it ends", self.url)
            return False
        try:
            self._folder.remove(self._name)
        finally:
            self._lock.close(remove=True)
        return True

    def at_exit(self) -> None:
        """Delete it if nobody wants it any more."""
        if os.getpid() != self._pid:
            return  # a fork; its parent lives
        try:
            record = self._folder.record(self._name)
            if record is not None and record["keep"]:
                self._forget()
                self._lock.close()
            else:
                self.delete()
        except (DataStackError, OSError) as error:
            logger.warning("could not delete %s: %s", self.url, error)

    def _forget(self) -> None:
        with _used_lock:
            _used.pop(f"{self._folder.url}/{self._name}", None)


class CacheFolder:
    """Where the folders of converters lie: each beside a record (JSON) that names its writer, and its files once it is complete.

    In a folder of this machine (or of a network that has locks), processes share what is there: a lock tells who writes and who
    reads, and is let go of by whoever ends, however that happens. In file systems of Hadoop there are no locks; there a process
    uses what is its own, or what is kept.

    Args:
        url: of the folder; a path, or a URL of any file system that Spark writes to.
        spark: the session; not needed for a folder of this machine.
    """

    def __init__(self, url: str, spark: SparkSession | None = None) -> None:
        self.path = path = local_path(url)
        self.url = url.rstrip("/") if path is None else "file://" + quote(path)
        self._folder: Folder = folder_of(path) if path is not None else folder_of_url(url, spark_session(spark))

    def frame(self, key: str, *, keep: bool, write: Callable[[str], None]) -> CachedFrame:
        """The folder for ``key``: the one that is there, or a new one that ``write`` fills.

        Args:
            key: names the rows and all options, 32 hex digits.
            keep: whether it stays when the processes that use it end.
            write: writes Parquet files to the URL of a folder that is not there yet.

        Raises:
            StorageError: it could not be written.
        """
        name = f"data-stack-converter-{key}"
        if self.path is None:
            name = self._kept_elsewhere(name) or f"{name}-{secrets.token_hex(6)}"
        with _used_lock:
            alone = _writing.setdefault(f"{self.url}/{name}", threading.Lock())
        with alone:
            with _used_lock:
                frame = _used.get(f"{self.url}/{name}")
            if frame is not None and frame.exists():
                self._note_kept(name, keep)
                return frame
            lock, record = self._locked(name, keep, write)
            self._note_kept(name, keep)
            url = f"{self.url}/{record['folder']}"
            frame = CachedFrame(url, tuple(record["files"]), record["n_rows"], name, self, lock)
            with _used_lock:
                _used[f"{self.url}/{name}"] = frame
            return frame

    def _locked(self, name: str, keep: bool, write: Callable[[str], None]) -> tuple[_Lock, dict[str, Any]]:
        """A lock that is shared with other users of the folder, and its record; it is written if it is not there."""
        lock = _Lock(None if self.path is None else os.path.join(self.path, f"{name}.lock"))
        is_told = False
        while True:
            if lock.take():
                try:
                    if self.record(name) is None:
                        self._write(name, keep, write)
                except BaseException:
                    lock.close(remove=True)
                    raise
            if lock.share():
                found = self.record(name)
                if found is not None:
                    return lock, found
                lock.close()  # whoever had it alone has just deleted it
                continue
            if not is_told:
                logger.info("another process converts the same DataFrame to %s/%s; waiting for it", self.url, name)
                is_told = True
            time.sleep(_LOOK_SECONDS)

    def record(self, name: str) -> dict[str, Any] | None:
        """What is known of a complete folder; None for one that is not."""
        record = self._any_record(name)
        return record if record is not None and record["files"] is not None else None

    def clean(self) -> None:
        """Delete what processes that are gone have left: what they did not finish, and what was not to be kept."""
        try:
            names = sorted({path.rpartition(".")[0] for path in self._folder.list_names() if path.endswith((".json", ".lock"))})
        except DataStackError:
            return
        for name in names:
            if not _NAME.fullmatch(name) or f"{self.url}/{name}" in _used:
                continue
            try:
                record = self._any_record(name)
                if record is not None and record["files"] is not None and record["keep"]:
                    continue
                if self.path is None:
                    if record is not None and is_dead(record["owner"]):
                        self.remove(name)
                    continue
                lock = _Lock(os.path.join(self.path, f"{name}.lock"))
                if lock.take():
                    try:
                        record = self.record(name)
                        if record is None or not record["keep"]:
                            self.remove(name)
                    finally:
                        lock.close(remove=True)
            except (DataStackError, OSError) as error:
                logger.warning("could not clean %s/%s: %s", self.url, name, error)

    def remove(self, name: str) -> None:
        """Delete a folder and its record: the files that were written, or, of one that was not finished, all of it."""
        record = self._any_record(name)
        if record is None:
            return
        if _handler is not None:
            _handler(f"{self.url}/{record['folder']}")
        elif record["files"] is None:
            self._remove_tree(record["folder"])
        else:
            self._remove_files(record["folder"], [*record["files"], *_SIDECARS])
        self._folder.delete(f"{name}.json")

    # ------------------------------------------------------------------ inside

    def _write(self, name: str, keep: bool, write: Callable[[str], None]) -> None:
        before = self._any_record(name)
        if before is not None:
            self._remove_tree(before["folder"])  # of a writer that is gone: we have its lock
        # Each time another folder: what somebody has put into an older one stays there, and is in nobody's way.
        folder = name if self.path is None else f"{name}-{secrets.token_hex(6)}"
        begun = {"owner": this_process(), "folder": folder, "keep": keep, "files": None, "n_rows": None}
        self._store(name, begun)
        try:
            write(f"{self.url}/{folder}")
            files = find_files(self._folder.subfolder(folder))
            record = {**begun, "files": list(files.paths), "n_rows": int(Footers(files).n_rows.sum())}
            self._store(name, record)
        except BaseException:
            with contextlib.suppress(DataStackError, OSError):
                self._remove_tree(folder)
                self._folder.delete(f"{name}.json")
            raise

    def _kept_elsewhere(self, name: str) -> str | None:
        """A complete folder for the same rows that stays, or is this process's own, where there are no locks."""
        for path in self._folder.list_names():
            found = path[: -len(".json")]
            record = self.record(found) if path.endswith(".json") and found.startswith(name + "-") else None
            if record is not None and (record["keep"] or record["owner"] == this_process()):
                return found
        return None

    def _note_kept(self, name: str, keep: bool) -> None:
        record = self.record(name)
        if keep and record is not None and not record["keep"]:
            self._store(name, {**record, "keep": True})

    def _any_record(self, name: str) -> dict[str, Any] | None:
        file = f"{name}.json"
        try:
            if not self._folder.has_file(file):
                return None
            record = json.loads(self._folder.read(file))
        except (LookupError, ValueError):
            return None
        return record if _is_record(record, name) else None

    def _store(self, name: str, record: dict[str, Any]) -> None:
        with self._folder.create(f"{name}.json") as file:
            file.write(json.dumps(record).encode())

    def _remove_tree(self, name: str) -> None:
        child = self._folder.subfolder(name)
        if isinstance(child, HadoopFolder):
            child.remove_tree()
        elif self.path is not None:
            try:
                shutil.rmtree(os.path.join(self.path, name))
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StorageError(f"could not delete {self.url}/{name}: {error}", error.errno) from error

    def _remove_files(self, name: str, files: list[str]) -> None:
        """Delete these files of a folder, and the folder if nothing else is in it."""
        child = self._folder.subfolder(name)
        for file in files:
            for each in (file, f".{file}.crc"):
                child.delete(each)
        others = child.list_files()
        if others:
            logger.warning("%s/%s holds files that data_stack did not write, such as %s; they stay", self.url, name, others[0])
        else:
            self._remove_tree(name)


def _is_record(record: Any, name: str) -> bool:
    """Whether it is what a converter wrote; what it names is deleted, so it must not lead elsewhere."""
    if not isinstance(record, dict) or not isinstance(record.get("owner"), str) or not isinstance(record.get("keep"), bool):
        return False
    folder, files = record.get("folder"), record.get("files")
    if not isinstance(folder, str) or not (folder == name or folder[:-13] == name) or not _FOLDER.fullmatch(folder):
        return False
    return files is None or (
        isinstance(files, list)
        and isinstance(record.get("n_rows"), int)
        and all(isinstance(file, str) and file and not file.startswith("/") and ".." not in file.split("/") for file in files)
    )


def deleted(url: str) -> bool:
    """Delete the folder of a converter at ``url``; False: another process uses it, or it is gone already.

    Raises:
        ConfigError: no converter wrote that folder.
        StorageError: it could not be deleted.
    """
    parent, _, folder = url.rpartition("/")
    if not _FOLDER.fullmatch(folder):
        raise ConfigError(f"{url!r} was not written by a converter, so it is not deleted")
    cache = CacheFolder(parent)
    name = folder if cache.path is None else folder[:-13]
    with _used_lock:
        frame = _used.get(f"{parent}/{name}")
    if frame is not None and frame.url == url:
        return frame.delete()
    record = cache.record(name)
    if record is None or record["folder"] != folder:
        return False
    lock = _Lock(None if cache.path is None else os.path.join(cache.path, f"{name}.lock"))
    if not lock.take():
        return False
    try:
        cache.remove(name)
    finally:
        lock.close(remove=True)
    return True


class _Lock:
    """A lock on a file, which is let go of when its process ends; on None it is none."""

    def __init__(self, path: str | None) -> None:
        self._path, self._handle = path, -1

    def take(self) -> bool:
        """Lock it for this user alone; False: somebody else has it."""
        if self._path is None:
            return True
        handle = locked_file(self._path)
        if handle is None:
            return False
        self._handle = handle
        return True

    def share(self) -> bool:
        """Lock it together with others; False: somebody has it alone, or has just removed it."""
        if self._path is None:
            return True
        import fcntl

        if self._handle < 0:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(self._handle), os.stat(self._path)):
                return True
        self.close()
        return False

    def make_exclusive(self) -> bool:
        """Lock it alone, having shared it; False: others share it, and it is not locked any more."""
        if self._path is None:
            return True
        import fcntl

        if self._handle < 0:
            return False
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self, *, remove: bool = False) -> None:
        """Let go of it."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            if remove and self._path is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            os.close(handle)


def _at_exit() -> None:
    for frame in list(_used.values()):
        frame.at_exit()


atexit.register(_at_exit)
