"""A stored file that is opened again when it is read, and always has the version it had first."""

from __future__ import annotations

import hashlib
import threading
import weakref
from typing import Any, Final

import numpy as np

from data_stack.codecs.plain_data import json_digest
from data_stack.exception import ResourceChangedError
from data_stack.io.local_files import most_open_files
from data_stack.io.local_status import SETTLING_NS
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource
from data_stack.io.versions import LocalVersion, is_same_version, version_of
from data_stack.util.forks import fork_lock

#: The size of the samples of a file that identify it, and their number.
_SAMPLE_BYTES: Final = 1 << 14
_N_SAMPLES: Final = 16


class PinnedFile:
    """A stored file that is opened again when it is read, and always has the version it had first.

    The file is open as long as it is read: of many pinned files, those that were read last. It is
    pickled as what opens it. Threads may share it.

    Args:
        resource: the file. It is opened a second time, so that the caller may close it.

    Attributes:
        name: the name of the file for messages.
        version: the version of the file, see :func:`~data_stack.io.versions.version_of`.
        n_bytes: the size of the file.

    Raises:
        UnpicklableResourceError: the file cannot be opened a second time, as that of a program.
    """

    name: str
    version: Any
    n_bytes: int

    #: What opens the file, and its arguments.
    _opening: tuple[Any, ...]

    #: The name of the store or folder of the file, without credentials.
    _store: str

    #: The open file; None if it must be opened.
    _file: PositionalFile | None

    def __init__(self, resource: StreamedResource) -> None:
        self.name = resource.identifier
        self.version = version_of(resource)
        self.n_bytes = resource.size
        reopen, arguments = resource.__reduce__()[:2]
        self._opening = (reopen, arguments)
        self._store = repr(arguments[0])
        self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def open(self) -> PositionalFile:
        """Return the open file.

        Raises:
            ResourceChangedError: the file is another one now.
        """
        file = self._file
        if file is None:
            reopen, arguments = self._opening
            file = PositionalFile(reopen(*arguments))
            self._check_same(file)
            self._file = file
        _open_files.note(self)
        return file

    def check_unwritten(self, file: PositionalFile) -> None:
        """Check that the open file has the size and time that it had; nothing for one of a store.

        Whoever replaces or removes the file leaves the bytes of the open one as they were.

        Args:
            file: the file, as :meth:`open` returned it.

        Raises:
            ResourceChangedError: the file was written to.
        """
        if not isinstance(self.version, LocalVersion):
            return
        version = version_of(file.resource)
        if not isinstance(version, LocalVersion):
            return
        before = (self.version.size, self.version.modified_ns)
        if (version.size, version.modified_ns) != before:
            raise ResourceChangedError(self.name, str(self.version), str(version))

    def identify(self) -> list[Any] | None:
        """Return plain data that differs between files, and between versions of a file.

        A file of this machine is identified by its size, times, device and inode, and by 16 samples
        of its bytes; a file of a store by the store, and by the tag or SHA-256 that the store has.

        Returns:
            None if the version is not certain: the store knows none, or the file was written in the
            last two seconds, in which it could change without another time.
        """
        version = self.version
        if version is None:
            return None
        if not isinstance(version, LocalVersion):
            # Files of two stores may have the same tag.
            return [self._store, self.name, self.n_bytes, str(version)]
        changed_at = max(version.modified_ns, version.changed_ns)
        if version.seen_ns - changed_at <= SETTLING_NS:
            return None
        return [version.machine, list(version.file), self.digest_of_samples()]

    def name_kept(self, *facts: Any) -> str | None:
        """Return the name of what is kept of this version of the file.

        Args:
            facts: plain data that what is kept depends on, beside the file.

        Returns:
            64 hex digits; None if the version is not certain, so that nothing can be kept.
        """
        identity = self.identify()
        if identity is None:
            return None
        return json_digest([*facts, *identity])

    def digest_of_samples(self) -> str:
        """Return the SHA-256 of 16 samples of the bytes, from the start to the end of the file."""
        last_start = max(0, self.n_bytes - _SAMPLE_BYTES)
        starts = np.linspace(0, last_start, _N_SAMPLES).astype(np.int64)
        digest = hashlib.sha256()
        ranges = [(start, _SAMPLE_BYTES) for start in starts.tolist()]
        for sample in self.open().read_ranges(ranges):
            digest.update(sample)
        return digest.hexdigest()

    def _check_same(self, file: PositionalFile) -> None:
        """Check that a file that was opened just now has the version and the size that it had.

        Raises:
            ResourceChangedError: it is another one.
        """
        version = version_of(file.resource)
        if is_same_version(self.version, version) is False:
            raise ResourceChangedError(self.name, str(self.version), str(version))
        if file.size != self.n_bytes:
            # A web server may know no version of the file.
            raise ResourceChangedError(self.name, f"{self.n_bytes:,} bytes", f"{file.size:,} bytes")


class _OpenFiles:
    """The pinned files that are open: those that were read last. Threads may share it."""

    #: For each file, when it was read last: the number of that reading.
    _read_at: weakref.WeakKeyDictionary[PinnedFile, int]

    #: The number of readings so far.
    _n_readings: int

    #: Held for changes.
    _lock: threading.Lock

    def __init__(self) -> None:
        self._read_at = weakref.WeakKeyDictionary()
        self._n_readings = 0
        self._lock = fork_lock()

    def note(self, pinned: PinnedFile) -> None:
        """Note that a file is read now, and let others above the limit close.

        A thread that is reading such a file keeps it open until it is done.
        """
        with self._lock:
            self._n_readings += 1
            self._read_at[pinned] = self._n_readings
            if len(self._read_at) > most_open_files():
                oldest = min(self._read_at, key=self._read_at.__getitem__)
                del self._read_at[oldest]
                oldest._file = None


_open_files: Final = _OpenFiles()
