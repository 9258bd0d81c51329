"""Every error that data_stack raises on purpose.

::

    DataStackError
    ├── DatasetNotFoundError (LookupError): AmbiguousDatasetError, RevisionNotFoundError
    ├── CatalogueError: CatalogueAccessError (PermissionError), CatalogueSchemaError
    │   └── CatalogueUnavailableError (ConnectionError): CatalogueBusyError
    ├── DatasetFileCorruptError: ResourceChangedError
    │   └── ChecksumMismatchError: DamagedBlockError
    ├── ArchiveError: UnsafeArchiveError, ArchiveLimitError
    ├── MalformedIdentifierError (ValueError): MaliciousFilePathError
    ├── ResourceNotFoundError (LookupError): MissingFileError (FileNotFoundError)
    ├── StorageError (OSError): ReadOnlyStorageError, StorageConflictError, StorageFullError, StorageUnavailableError
    ├── RetrievalError: SeveralRetrievalErrors
    │   └── CorruptSourceError (DatasetFileCorruptError): SeveralCorruptSourceErrors (SeveralRetrievalErrors)
    ├── ConfigError (ValueError): LoaderStateError, RecipeError, UnknownSplitError (ResourceNotFoundError)
    └── DatasetOutOfBoundsError (IndexError), LicenseDeniedError (PermissionError), EarlyEndError, LoadingError, TaskError,
        WorkerError (RuntimeError), MissingDependencyError (ImportError), UnpicklableResourceError (TypeError),
        UnsupportedStorageOperationError (NotImplementedError), and others that are nothing else

One class is a warning: :class:`LeftOutWarning`.

Messages say what was wrong, where, and what to do next. The facts of an error are its positional
``args`` and attributes, so an error raised in a worker process survives pickling.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from errno import ENOENT
from typing import Any


class DataStackError(Exception):
    """The root of all errors of data_stack."""

    def __str__(self) -> str:
        # KeyError and LookupError would quote a single argument; a message is a message.
        return str(self.args[0]) if len(self.args) == 1 else Exception.__str__(self)


class DatasetNotFoundError(DataStackError, LookupError):
    """No dataset is registered under the name that was asked for."""


class AmbiguousDatasetError(DatasetNotFoundError):
    """Several distributions provide a dataset of the same name; ask for ``distribution:name``."""


class RevisionNotFoundError(DatasetNotFoundError):
    """A plugin or catalogue has a dataset, but not the version or part of it that was asked for, or not any more."""


class CatalogueError(DataStackError):
    """A catalogue did not answer as it documents, or lists a dataset that cannot be read from it."""


class CatalogueAccessError(CatalogueError, PermissionError):
    """A catalogue keeps a dataset from this user: it is private, or its terms must be accepted first."""


class CatalogueSchemaError(CatalogueError):
    """The files of a dataset in a catalogue have other columns than the catalogue says, or than each other."""


class CatalogueUnavailableError(CatalogueError, ConnectionError):
    """A catalogue cannot be asked: there is no network, its server fails, or this process is offline."""


class CatalogueBusyError(CatalogueUnavailableError):
    """A catalogue was asked too often, and wants a longer pause than was waited."""


class DatasetOutOfBoundsError(DataStackError, IndexError):
    """A position lies outside of an iterator."""


class EarlyEndError(DataStackError, RuntimeError):
    """An iteration would have ended before its last sample.

    A function of the program raised StopIteration, which every loop of Python takes for the end of the data (it is chained);
    or an iterator yielded fewer samples than its length says.
    """


class ModelNotTrainedError(DataStackError):
    """A state that exists only after fitting was asked for before."""


class DatasetFileCorruptError(DataStackError):
    """Bytes, stored or received, are not what they should be."""


class ChecksumMismatchError(DatasetFileCorruptError):
    """The bytes that arrived, or that lie in the store, are not the bytes that were promised.

    Attributes:
        identifier: the resource.
        source: where the bytes came from (a URL without credentials, a path, or the store).
        expected, actual: digest or size, lower-case hex or a decimal number.
        algorithm: ``"sha256"``, ``"md5"`` or ``"size"``.
    """

    def __init__(
        self, identifier: str, source: str, expected: str, actual: str, algorithm: str = "sha256"
    ) -> None:
        super().__init__(identifier, source, expected, actual, algorithm)
        self.identifier, self.source, self.expected, self.actual = (
            identifier,
            source,
            expected,
            actual,
        )
        self.algorithm = algorithm

    def __str__(self) -> str:
        return (
            f"resource {self.identifier!r} from {self.source} has {self.algorithm} {self.actual}, "
            f"expected {self.expected}. It is damaged, or another version: store it again from its source or a copy."
        )


class DamagedBlockError(ChecksumMismatchError):
    """A block of a stored resource is not what was stored; nothing of it was handed out.

    Attributes:
        block, block_bytes: the damage lies at byte ``block * block_bytes`` or behind.
    """

    def __init__(
        self,
        identifier: str,
        source: str,
        block: int,
        block_bytes: int,
        expected: str,
        actual: str,
        algorithm: str = "xxh3-64",
    ) -> None:
        super().__init__(identifier, source, expected, actual, algorithm)
        self.args = (identifier, source, block, block_bytes, expected, actual, algorithm)
        self.block, self.block_bytes = block, block_bytes

    def __str__(self) -> str:
        start = self.block * self.block_bytes
        return (
            f"block {self.block} of resource {self.identifier!r} (from byte {start} on) in {self.source} is damaged: "
            f"{self.algorithm} {self.actual}, expected {self.expected}. `data-stack verify` shows what else is damaged. Make it "
            f"again by `data-stack prepare NAME --again`, or take it from an intact store by `data-stack copy --deep`."
        )


class ResourceChangedError(DatasetFileCorruptError):
    """A resource was replaced in its store between two openings that must see the same bytes."""

    def __init__(self, identifier: str, expected: str, actual: str) -> None:
        super().__init__(identifier, expected, actual)
        self.identifier, self.expected, self.actual = identifier, expected, actual

    def __str__(self) -> str:
        return (
            f"resource {self.identifier!r} was replaced while it was in use (it had {self.expected}, now {self.actual}); "
            f"mixing both would give wrong samples. Load the dataset again."
        )


class ArchiveError(DataStackError):
    """An archive is damaged, or of no supported kind."""


class UnsafeArchiveError(ArchiveError):
    """A member would leave the target, is a link or device, or repeats another member's name."""


class ArchiveLimitError(ArchiveError):
    """An archive holds more bytes or members, or compresses better, than its reader allows."""


class MalformedIdentifierError(DataStackError, ValueError):
    """An identifier is not in the grammar of :mod:`data_stack.io.identifiers`."""


class MaliciousFilePathError(MalformedIdentifierError):
    """A path leaves the root of its store, directly or through a symbolic link."""


class ResourceNotFoundError(DataStackError, LookupError):
    """Nothing is stored under ``identifier`` (or a whole message, as in the original) in ``location``, if that is known."""

    def __init__(self, identifier: str = "", location: str | None = None) -> None:
        super().__init__(identifier, location)
        self.identifier, self.location = identifier, location

    def __str__(self) -> str:
        if self.location is None:
            return self.identifier
        return (
            f"no resource {self.identifier!r} in {self.location}. "
            f"`data-stack prepare NAME` puts a dataset's resources there; list_resources() shows what is stored."
        )


class MissingFileError(ResourceNotFoundError, FileNotFoundError):
    """There is no file at ``path``, which is absolute: nothing at all, or a folder, as ``reason`` says."""

    def __init__(self, path: str, reason: str = "there is no such file or folder") -> None:
        super().__init__(path)
        self.args = (path, reason)
        self.path, self.reason, self.errno, self.filename = path, reason, ENOENT, path

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingFileError, self.args

    def __str__(self) -> str:
        return f"could not open {self.path!r}: {self.reason}"


class StorageError(DataStackError, OSError):
    """A store could not read or write; the resource is as it was before. ``errno`` is that of the operating system, or None."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message, errno)
        self.message, self.errno = message, errno

    def __str__(self) -> str:
        return self.message


class StorageFullError(StorageError):
    """There is no room left (or no quota) to store a resource; nothing was published."""


class StorageUnavailableError(StorageError):
    """A store's server did not answer in time, broke the connection off, or refused us; trying again later may help."""


class StorageConflictError(StorageError):
    """Another writer has replaced the resource that the writer expected to replace. Nothing was published."""


class ReadOnlyStorageError(StorageError):
    """Something was to be written to a store that was opened for reading only."""


class UnsupportedStorageOperationError(DataStackError, NotImplementedError):
    """A connector implements the three required methods only, and this one cannot be built on them."""


class RetrievalError(DataStackError):
    """None of the sources of a resource delivered it.

    Attributes:
        identifier: the resource that is missing.
        attempts: one ``(source, what it said)`` for each source tried, in order; no credentials in either.
        expected: the promised digest, e.g. ``"sha256 ab12…"``; None if none was promised.
    """

    def __init__(
        self, identifier: str, attempts: Sequence[tuple[str, str]] = (), expected: str | None = None
    ) -> None:
        super().__init__(identifier, tuple(attempts), expected)
        self.identifier, self.attempts, self.expected = identifier, tuple(attempts), expected

    def __str__(self) -> str:
        lines = [
            f"could not retrieve resource {self.identifier!r}"
            + (f" (expected {self.expected})" if self.expected else "")
        ]
        lines += [f"  {source}: {said}" for source, said in self.attempts] or [
            "  it names no source"
        ]
        lines += [
            "What to do: check the network and retry (what was retrieved is kept), or fetch the file by other means and run",
            f"  data-stack import-file {self.identifier} PATH",
        ]
        return "\n".join(lines)


class CorruptSourceError(RetrievalError, DatasetFileCorruptError):
    """No source delivered a resource, and at least one delivered wrong bytes. Nothing of them was stored."""

    def __str__(self) -> str:
        return f"{super().__str__()}\nIf the source was republished, update the checksum in the dataset's definition."


class SeveralRetrievalErrors(RetrievalError):
    """More than one resource could not be retrieved, as ``errors`` say; the other attributes are those of the first of these."""

    def __init__(self, errors: Sequence[RetrievalError]) -> None:
        first = errors[0]
        super().__init__(first.identifier, first.attempts, first.expected)
        self.args = (tuple(errors),)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return f"{len(self.errors)} resources could not be retrieved:\n" + "\n".join(
            map(str, self.errors)
        )


class SeveralCorruptSourceErrors(SeveralRetrievalErrors, CorruptSourceError):
    """More than one resource could not be retrieved, and for each of them a source delivered wrong bytes."""


class ConfigError(DataStackError, ValueError):
    """A configuration names an unknown option or holds a value that is not allowed."""


class LicenseDeniedError(DataStackError, PermissionError):
    """The policy of this process denies the license of a dataset; nothing was retrieved."""


class ManagedTableError(DataStackError):
    """A folder is a table of Delta Lake, Iceberg or Hudi, whose log says which of its files count; the message names a reader."""


class LockError(DataStackError):
    """Data is not as the lock file says, or there is no such file, or it is damaged."""


class RecipeError(ConfigError):
    """A recipe cannot be followed: it is damaged, of another version, or names what is not there or not allowed.

    Attributes:
        reason: what is wrong, and what to do.
        node: number of the node in the recipe, if it is one node.
        layer: what that node is to become, if it is a layer of data_stack.
    """

    def __init__(self, reason: str, node: int | None = None, layer: str | None = None) -> None:
        super().__init__(reason, node, layer)
        self.reason, self.node, self.layer = reason, node, layer

    def __str__(self) -> str:
        if self.node is None:
            return self.reason
        return f"node {self.node} of the recipe{f' ({self.layer})' if self.layer else ''}: {self.reason}"


class LoaderStateError(ConfigError):
    """A loader cannot go on from a state: it is of another dataset or order, or no state at all. Nothing has changed."""


class UnknownSplitError(ConfigError, ResourceNotFoundError):
    """A dataset has no split of that name. (The original raised ResourceNotFoundError; catching that still works.)"""


class PreparationError(DataStackError):
    """A dataset could not be prepared; its cause is chained, and the message says what is kept for the next attempt."""


class RequestLimitError(DataStackError):
    """Decoding ``what`` would take ``n_bytes`` or more; one request may take ``limit_bytes``. Nothing was decoded for it."""

    def __init__(self, what: str, n_bytes: int, limit_bytes: int) -> None:
        super().__init__(what, n_bytes, limit_bytes)
        self.what, self.n_bytes, self.limit_bytes = what, n_bytes, limit_bytes

    def at(self, place: str) -> RequestLimitError:
        """The same, that says where."""
        return RequestLimitError(f"{place}: {self.what}", self.n_bytes, self.limit_bytes)

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.n_bytes:,} bytes or more would be decoded for one request, which may take {self.limit_bytes:,}. "
            f"Ask for fewer samples at once; or, if you trust the data, raise DATA_STACK_MAX_REQUEST_BYTES in the environment"
        )


class TaskError(DataStackError, RuntimeError):
    """A task of an engine has failed too often; ``__cause__`` is what was raised last, if that could be sent from where it ran.

    Attributes:
        task: its name, e.g. ``'shard {"file": "raw/part-0.csv"}'``.
        problem, traceback_text: how the last of ``n_attempts`` ended, and where.
    """

    def __init__(self, task: str, n_attempts: int, problem: str, traceback_text: str = "") -> None:
        super().__init__(task, n_attempts, problem, traceback_text)
        self.task, self.n_attempts, self.problem, self.traceback_text = (
            task,
            n_attempts,
            problem,
            traceback_text,
        )

    def __str__(self) -> str:
        text = (
            f"{self.task} failed in each of {self.n_attempts} attempts; the last one {self.problem}"
        )
        return f"{text}\n\nIn the worker:\n{self.traceback_text}" if self.traceback_text else text


class LoadingError(DataStackError, RuntimeError):
    """A loader could not make a batch; ``__cause__`` is what was raised, in the worker where there is one.

    Attributes:
        problem: what failed, e.g. ``"sample 17 could not be read"``.
        cause: type and message of what was raised.
        epoch, step: of the batch, counted from where the iteration entered the epoch.
        index: of the sample in the loader's iterator; None if no single sample is to blame.
        worker: where it was made, e.g. ``"worker process 1 (pid 4242)"``; None in the consumer's thread.
        traceback_text: the traceback in the worker's process; empty if the chained error has its own.
    """

    def __init__(
        self,
        problem: str,
        cause: BaseException | str,
        *,
        epoch: int = 0,
        step: int = 0,
        index: int | None = None,
        worker: str | None = None,
        traceback_text: str = "",
    ) -> None:
        text = cause if isinstance(cause, str) else describe_error(cause)
        super().__init__(problem, text)
        self.problem, self.cause = problem, text
        self.epoch, self.step, self.index = epoch, step, index
        self.worker, self.traceback_text = worker, traceback_text

    def __str__(self) -> str:
        where = f"step {self.step} of epoch {self.epoch}" + (
            f", {self.worker}" if self.worker else ""
        )
        text = f"{self.problem}: {self.cause} ({where})"
        return f"{text}\n\nIn the worker:\n{self.traceback_text}" if self.traceback_text else text


def describe_error(error: BaseException) -> str:
    """Type and message of an error of foreign code."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # the __str__ of a user's exception may raise anything
        message = "(its message could not be formatted)"
    return f"{type(error).__name__}: {message}".rstrip(": ")


class WorkerError(DataStackError, RuntimeError):
    """A ``worker`` of a loader died or stopped. All workers have ended; the loader can be iterated over again."""

    def __init__(self, worker: str, problem: str) -> None:
        super().__init__(worker, problem)
        self.worker, self.problem = worker, problem

    def __str__(self) -> str:
        return f"{self.worker} {self.problem}"


class WorkerDifferenceError(WorkerError):
    """A ``worker`` process of a loader makes other batches than the program itself.

    It does not have what the program sets at run time, such as a value in a module. All workers
    have ended.
    """


class IncompleteCopyError(DataStackError):
    """Resources were not copied, as ``report.faults`` say: they are damaged or missing at the source, or changed meanwhile."""

    def __init__(self, report: Any) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        faults = self.report.faults
        lines = [
            f"{len(faults)} resources were not copied from {self.report.source} to {self.report.target}:"
        ]
        lines += [f"  {fault.identifier}: {fault.problem}" for fault in faults[:20]]
        lines += [f"  … and {len(faults) - 20} more"] if len(faults) > 20 else []
        lines.append(
            "All else is copied. Mend these at the source (prepare the dataset again there), then copy again."
        )
        return "\n".join(lines)


class PluginError(DataStackError):
    """A plugin could not be loaded or does not keep the contract; other plugins are not affected."""


def install_command(extra: str) -> str:
    """How to install the packages of an extra; each of data_stack's own plugins has an extra of its name."""
    return f'pip install "lazy-data-stack[{extra}]"'


class MissingDependencyError(DataStackError, ImportError):
    """The optional ``package`` is not installed, which ``needed_by`` needs and the ``extra`` of data_stack brings."""

    def __init__(self, needed_by: str, package: str, extra: str) -> None:
        super().__init__(needed_by, package, extra)
        self.needed_by, self.package, self.extra = needed_by, package, extra

    def __str__(self) -> str:
        return f"{self.needed_by} needs {self.package}: {install_command(self.extra)}"


class UnpicklableResourceError(DataStackError, TypeError):
    """A resource around a private buffer cannot be sent to another process. Store it first: stored resources pickle."""


class LeftOutWarning(UserWarning):
    """Files or columns of a place are not read; the message names the first few, their number and the rule.

    ``warnings.simplefilter("error", LeftOutWarning)`` makes it an error.
    """


__all__ = sorted(
    name
    for name, value in globals().items()
    if isinstance(value, type) and issubclass(value, (DataStackError, LeftOutWarning))
)


def __getattr__(name: str) -> Any:
    """Return ``LicenseDeniedError`` by the name that it had before version 0.3, and warn."""
    if name == "LicenceDeniedError":
        # Not warn_deprecated: this module imports no other of ours. removed_in="1.0"
        warnings.warn(
            "LicenceDeniedError is deprecated since data_stack 0.3 and will be removed in 1.0: "
            "use LicenseDeniedError",
            DeprecationWarning,
            stacklevel=2,
        )
        return LicenseDeniedError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
