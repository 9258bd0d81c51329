"""Every error that data_stack raises on purpose.

::

    DataStackError
    ├── ArchiveError
    │   ├── ArchiveLimitError
    │   └── UnsafeArchiveError
    ├── CatalogueError
    │   ├── CatalogueAccessError (PermissionError)
    │   ├── CatalogueSchemaError
    │   └── CatalogueUnavailableError (ConnectionError)
    │       └── CatalogueBusyError
    ├── ConfigError (ValueError)
    │   ├── ArgumentError
    │   ├── LoaderStateError
    │   ├── RecipeError
    │   └── UnknownSplitError (ResourceNotFoundError)
    ├── DatasetFileCorruptError
    │   ├── ChecksumMismatchError
    │   │   └── DamagedBlockError
    │   ├── CorruptSourceError (RetrievalError)
    │   ├── ResourceChangedError
    │   └── UnfilledCacheError
    ├── DatasetNotFoundError (LookupError)
    │   ├── AmbiguousDatasetError
    │   └── RevisionNotFoundError
    ├── DatasetOutOfBoundsError (IndexError)
    ├── EarlyEndError (RuntimeError)
    ├── IncompleteCopyError
    ├── LicenseDeniedError (PermissionError)
    ├── LoadingError (RuntimeError)
    │   └── TooManyDamagedSamplesError
    ├── LockError
    ├── MalformedIdentifierError (ValueError)
    │   └── MaliciousFilePathError
    ├── ManagedTableError
    ├── MissingDependencyError (ImportError)
    ├── ModelNotTrainedError
    ├── PluginError
    ├── PreparationError
    ├── RequestLimitError
    ├── ResourceNotFoundError (LookupError)
    │   └── MissingFileError (FileNotFoundError)
    ├── RetrievalError
    │   ├── CorruptSourceError (DatasetFileCorruptError)
    │   │   └── SeveralCorruptSourceErrors (SeveralRetrievalErrors)
    │   └── SeveralRetrievalErrors
    ├── StorageError (OSError)
    │   ├── ReadOnlyStorageError
    │   ├── StorageConflictError
    │   ├── StorageFullError
    │   └── StorageUnavailableError
    ├── TaskError (RuntimeError)
    ├── UnpicklableResourceError (TypeError)
    ├── UnsupportedStorageOperationError (NotImplementedError)
    └── WorkerError (RuntimeError)
        └── WorkerDifferenceError

A class in parentheses is a further base. One class is a warning: :class:`LeftOutWarning`.

Messages say what was wrong, where, and what to do next. The facts of an error are its positional
``args`` and attributes, so an error that is raised in a worker process survives pickling.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from errno import ENOENT
from typing import Any

#: IncompleteCopyError lists at most this number of faults.
_MAX_FAULTS_SHOWN = 20


class DataStackError(Exception):
    """The root of all errors of data_stack."""

    def __str__(self) -> str:
        # A base class such as KeyError would quote a message that is the only argument.
        if len(self.args) == 1:
            return str(self.args[0])
        return Exception.__str__(self)


class DatasetNotFoundError(DataStackError, LookupError):
    """No dataset is registered under the name that was asked for."""


class AmbiguousDatasetError(DatasetNotFoundError):
    """Several distributions provide a dataset of the same name; ask for ``distribution:name``."""


class RevisionNotFoundError(DatasetNotFoundError):
    """A plugin or catalogue has a dataset, but not the version or part that was asked for."""


class CatalogueError(DataStackError):
    """A catalogue did not answer as it documents, or lists a dataset that it cannot deliver."""


class CatalogueAccessError(CatalogueError, PermissionError):
    """A catalogue refuses a dataset: it is private, or its terms must be accepted first."""


class CatalogueSchemaError(CatalogueError):
    """The files of a dataset have other columns than its catalogue says, or than each other."""


class CatalogueUnavailableError(CatalogueError, ConnectionError):
    """A catalogue cannot be reached: no network, its server fails, or this process is offline."""


class CatalogueBusyError(CatalogueUnavailableError):
    """A catalogue was asked too often, and wants a longer pause than was waited."""


class DatasetOutOfBoundsError(DataStackError, IndexError):
    """A position lies outside of an iterator."""


class EarlyEndError(DataStackError, RuntimeError):
    """An iteration would have ended before its last sample.

    A function of the program raised StopIteration, which every loop of Python takes for the end of
    the data (it is chained); or an iterator yielded fewer samples than its length says.
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
        expected: the digest (lower-case hexadecimal digits) or the size that was promised.
        actual: the digest or size of the bytes.
        algorithm: ``"sha256"``, ``"md5"`` or ``"size"``.
    """

    def __init__(
        self, identifier: str, source: str, expected: str, actual: str, algorithm: str = "sha256"
    ) -> None:
        super().__init__(identifier, source, expected, actual, algorithm)
        self.identifier = identifier
        self.source = source
        self.expected = expected
        self.actual = actual
        self.algorithm = algorithm

    def __str__(self) -> str:
        return (
            f"resource {self.identifier!r} from {self.source} has {self.algorithm} {self.actual}, "
            f"expected {self.expected}. It is damaged, or another version: store it again from its "
            f"source or a copy."
        )


class DamagedBlockError(ChecksumMismatchError):
    """A block of a stored resource is not what was stored; none of its bytes were returned.

    Attributes:
        block: number of the block, from 0 on.
        block_bytes: size of a block. The damage lies at byte ``block * block_bytes`` or later in
            that block.
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
        self.block = block
        self.block_bytes = block_bytes

    def __str__(self) -> str:
        start = self.block * self.block_bytes
        return (
            f"block {self.block} of resource {self.identifier!r} (from byte {start} on) in "
            f"{self.source} is damaged: {self.algorithm} {self.actual}, expected {self.expected}. "
            f"`data-stack verify` shows what else is damaged. Make it again by `data-stack prepare "
            f"NAME --again`, or take it from an intact store by `data-stack copy --deep`."
        )


class ResourceChangedError(DatasetFileCorruptError):
    """A resource was replaced in its store between two openings that must see the same bytes."""

    def __init__(self, identifier: str, expected: str, actual: str) -> None:
        super().__init__(identifier, expected, actual)
        self.identifier = identifier
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        return (
            f"resource {self.identifier!r} was replaced while it was in use (it had "
            f"{self.expected}, now {self.actual}); mixing both would give wrong samples. Load the "
            f"dataset again."
        )


class UnfilledCacheError(DatasetFileCorruptError):
    """A cache of all samples was not written, as a sample below it is damaged; it is chained."""


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
    """Nothing is stored under an identifier.

    Attributes:
        identifier: the identifier; without ``location``, the whole message, as the original
            DataStack raised this error.
        location: the store, if it is known.
    """

    def __init__(self, identifier: str = "", location: str | None = None) -> None:
        super().__init__(identifier, location)
        self.identifier = identifier
        self.location = location

    def __str__(self) -> str:
        if self.location is None:
            return self.identifier
        return (
            f"no resource {self.identifier!r} in {self.location}. `data-stack prepare NAME` puts a "
            f"dataset's resources there; list_resources() shows what is stored."
        )


class MissingFileError(ResourceNotFoundError, FileNotFoundError):
    """There is no file at a path.

    Attributes:
        path: the absolute path; also ``filename``, as of every OSError.
        reason: whether nothing is there, or a folder.
    """

    def __init__(self, path: str, reason: str = "there is no such file or folder") -> None:
        super().__init__(path)
        self.args = (path, reason)
        self.path = path
        self.reason = reason
        self.errno = ENOENT
        self.filename = path

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingFileError, self.args

    def __str__(self) -> str:
        return f"could not open {self.path!r}: {self.reason}"


class StorageError(DataStackError, OSError):
    """A store could not read or write; the resource is as it was before.

    Attributes:
        message: what happened, where, and what to do.
        errno: the number of the operating system's error, or None.
    """

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message, errno)
        self.message = message
        self.errno = errno

    def __str__(self) -> str:
        return self.message


class StorageFullError(StorageError):
    """There is no room left (or no quota) to store a resource; nothing was published."""


class StorageUnavailableError(StorageError):
    """A store's server did not answer in time, broke the connection off, or refused the request.

    Trying again later may help.
    """


class StorageConflictError(StorageError):
    """Another writer replaced the resource first. Nothing was published."""


class ReadOnlyStorageError(StorageError):
    """Something was to be written to a store that was opened for reading only."""


class UnsupportedStorageOperationError(DataStackError, NotImplementedError):
    """A connector has only the three required methods, and this one cannot be built on them."""


class RetrievalError(DataStackError):
    """None of the sources of a resource delivered it.

    Attributes:
        identifier: the resource that is missing.
        attempts: one ``(source, problem)`` for each source that was tried, in order; no credentials
            are in either.
        expected: the promised digest, e.g. ``"sha256 ab12…"``; None if none was promised.
    """

    def __init__(
        self, identifier: str, attempts: Sequence[tuple[str, str]] = (), expected: str | None = None
    ) -> None:
        super().__init__(identifier, tuple(attempts), expected)
        self.identifier = identifier
        self.attempts = tuple(attempts)
        self.expected = expected

    def __str__(self) -> str:
        headline = f"could not retrieve resource {self.identifier!r}"
        if self.expected:
            headline += f" (expected {self.expected})"
        lines = [headline]
        for source, problem in self.attempts:
            lines.append(f"  {source}: {problem}")
        if not self.attempts:
            lines.append("  it names no source")
        lines.append(
            "What to do: check the network and retry (what was retrieved is kept), or fetch the "
            "file by other means and run"
        )
        lines.append(f"  data-stack import-file {self.identifier} PATH")
        return "\n".join(lines)


class CorruptSourceError(RetrievalError, DatasetFileCorruptError):
    """No source delivered a resource; at least one delivered wrong bytes, which were not stored."""

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\n"
            f"If the source was republished, update the checksum in the dataset's definition."
        )


class SeveralRetrievalErrors(RetrievalError):
    """More than one resource could not be retrieved.

    Attributes:
        errors: one for each resource. The other attributes are those of the first of them.
    """

    def __init__(self, errors: Sequence[RetrievalError]) -> None:
        first = errors[0]
        super().__init__(first.identifier, first.attempts, first.expected)
        self.args = (tuple(errors),)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        texts = "\n".join(str(error) for error in self.errors)
        return f"{len(self.errors)} resources could not be retrieved:\n{texts}"


class SeveralCorruptSourceErrors(SeveralRetrievalErrors, CorruptSourceError):
    """Several resources could not be retrieved, each because a source delivered wrong bytes."""


class ConfigError(DataStackError, ValueError):
    """A configuration names an unknown option or holds a value that is not allowed."""


class ArgumentError(ConfigError):
    """An argument of a function must change; the message ends with the name of the argument.

    The message names the argument as in Python, ``columns=``. A program that takes the argument in
    another way, as the command line does by ``--columns``, shows :meth:`message_naming`.

    Attributes:
        advice: what was wrong and what to do, up to the name of the argument: ``"a .npy file holds
            one column, and train has x, y; choose one by"``.
        argument: the name of the argument, such as ``"columns"``.
        choices: the values that the argument can have; empty if the message does not list them.
    """

    def __init__(self, advice: str, argument: str, choices: Sequence[str] = ()) -> None:
        super().__init__(advice, argument, tuple(choices))
        self.advice = advice
        self.argument = argument
        self.choices = tuple(choices)

    def __str__(self) -> str:
        return self.message_naming(f"{self.argument}=")

    def message_naming(self, name: str) -> str:
        """Return the message with another name for the argument, such as ``"--columns"``."""
        message = f"{self.advice} {name}"
        if self.choices:
            message += f": {' or '.join(self.choices)}"
        return message


class LicenseDeniedError(DataStackError, PermissionError):
    """The policy of this process denies the license of a dataset; nothing was retrieved."""


class ManagedTableError(DataStackError):
    """A folder is a table of Delta Lake, Iceberg or Hudi, whose log says which of its files count.

    The message names a reader of such tables.
    """


class LockError(DataStackError):
    """Data is not as the lock file says, or there is no such file, or it is damaged."""


class RecipeError(ConfigError):
    """A recipe cannot be followed.

    It is damaged, of another version, or names what is missing or not allowed.

    Attributes:
        reason: what is wrong, and what to do.
        node: number of the node in the recipe, if the problem is in one node.
        layer: the layer of data_stack that the node describes, if it describes one.
    """

    def __init__(self, reason: str, node: int | None = None, layer: str | None = None) -> None:
        super().__init__(reason, node, layer)
        self.reason = reason
        self.node = node
        self.layer = layer

    def __str__(self) -> str:
        if self.node is None:
            return self.reason
        place = f"node {self.node} of the recipe"
        if self.layer:
            place += f" ({self.layer})"
        return f"{place}: {self.reason}"


class LoaderStateError(ConfigError):
    """A loader cannot resume from a state, which is of another dataset or order, or no state.

    The loader is as it was before.
    """


class UnknownSplitError(ConfigError, ResourceNotFoundError):
    """A dataset has no split of that name.

    The original DataStack raised ResourceNotFoundError; catching that still works.
    """


class PreparationError(DataStackError):
    """A dataset could not be prepared.

    The cause is chained, and the message says what is kept for the next attempt.
    """


class RequestLimitError(DataStackError):
    """Decoding a value would exceed the limit of a request. The value was not decoded.

    Attributes:
        what: the name of the value in the message.
        n_bytes: what the request would take, at least.
        limit_bytes: what a request may take.
    """

    def __init__(self, what: str, n_bytes: int, limit_bytes: int) -> None:
        super().__init__(what, n_bytes, limit_bytes)
        self.what = what
        self.n_bytes = n_bytes
        self.limit_bytes = limit_bytes

    def at(self, place: str) -> RequestLimitError:
        """Return the same error, with the place of the value in its message."""
        return RequestLimitError(f"{place}: {self.what}", self.n_bytes, self.limit_bytes)

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.n_bytes:,} bytes or more would be decoded for one request, which "
            f"may take {self.limit_bytes:,}. Ask for fewer samples at once; or, if you trust the "
            f"data, raise DATA_STACK_MAX_REQUEST_BYTES in the environment"
        )


class TaskError(DataStackError, RuntimeError):
    """A task of an engine has failed too often.

    ``__cause__`` is what was raised last, if that could be sent from where the task ran.

    Attributes:
        task: its name, e.g. ``'shard {"file": "raw/part-0.csv"}'``.
        n_attempts: how often it was tried.
        problem: how the last attempt ended.
        traceback_text: where the last attempt failed, in the worker.
    """

    def __init__(self, task: str, n_attempts: int, problem: str, traceback_text: str = "") -> None:
        super().__init__(task, n_attempts, problem, traceback_text)
        self.task = task
        self.n_attempts = n_attempts
        self.problem = problem
        self.traceback_text = traceback_text

    def __str__(self) -> str:
        text = (
            f"{self.task} failed in each of {self.n_attempts} attempts; the last one {self.problem}"
        )
        return _with_worker_traceback(text, self.traceback_text)


class LoadingError(DataStackError, RuntimeError):
    """A loader could not make a batch.

    ``__cause__`` is what was raised, in the worker where there is one.

    Attributes:
        problem: what failed, e.g. ``"sample 17 could not be read"``.
        cause: type and message of what was raised.
        epoch: the epoch of the batch.
        step: the number of the batch, counted from where the iteration entered the epoch.
        index: the position of the sample in the loader's iterator; None if no single sample is to
            blame.
        worker: where the batch was made, e.g. ``"worker process 1 (pid 4242)"``; None in the thread
            of the program.
        traceback_text: the traceback in the worker's process; empty if the chained error has its
            own.
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
        if isinstance(cause, BaseException):
            cause_text = describe_error(cause)
        else:
            cause_text = cause
        super().__init__(problem, cause_text)
        self.problem = problem
        self.cause = cause_text
        self.epoch = epoch
        self.step = step
        self.index = index
        self.worker = worker
        self.traceback_text = traceback_text

    def __str__(self) -> str:
        place = f"step {self.step} of epoch {self.epoch}"
        if self.worker:
            place += f", {self.worker}"
        text = f"{self.problem}: {self.cause} ({place})"
        return _with_worker_traceback(text, self.traceback_text)


class TooManyDamagedSamplesError(LoadingError):
    """A loader with ``on_error="skip"`` or ``"replace"`` met more damaged samples than allowed.

    Attributes:
        samples: the damaged samples, of the class
            :class:`~data_stack.loader.DamagedSample`, in the order in which they were met.
    """

    samples: tuple[Any, ...] = ()


def _with_worker_traceback(text: str, traceback_text: str) -> str:
    """Return a message, followed by the traceback in the worker if there is one."""
    if not traceback_text:
        return text
    return f"{text}\n\nIn the worker:\n{traceback_text}"


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error that foreign code raised.

    The ``__str__`` of such an error may raise; then the message says so.
    """
    try:
        message = str(error)
    except Exception:  # noqa: BLE001
        message = "(its message could not be formatted)"
    return f"{type(error).__name__}: {message}".rstrip(": ")


class WorkerError(DataStackError, RuntimeError):
    """A worker of a loader died or stopped.

    All workers have ended; the loader can be iterated over again.

    Attributes:
        worker: which one, e.g. ``"worker process 1 (pid 4242)"``.
        problem: what happened to it.
    """

    def __init__(self, worker: str, problem: str) -> None:
        super().__init__(worker, problem)
        self.worker = worker
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.worker} {self.problem}"


class WorkerDifferenceError(WorkerError):
    """A worker process of a loader makes other batches than the program itself.

    The process does not have what the program sets at run time, such as a value in a module. All
    workers have ended.
    """


class IncompleteCopyError(DataStackError):
    """Some resources were not copied: they are damaged or missing at the source, or changed.

    Attributes:
        report: the report of the copy; its ``faults`` name the resources.
    """

    def __init__(self, report: Any) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        faults = self.report.faults
        lines = [
            f"{len(faults)} resources were not copied from {self.report.source} to "
            f"{self.report.target}:"
        ]
        for fault in faults[:_MAX_FAULTS_SHOWN]:
            lines.append(f"  {fault.identifier}: {fault.problem}")
        n_hidden = len(faults) - _MAX_FAULTS_SHOWN
        if n_hidden > 0:
            lines.append(f"  … and {n_hidden} more")
        lines.append(
            "All else is copied. Repair these at the source (prepare the dataset again there), "
            "then copy again."
        )
        return "\n".join(lines)


class PluginError(DataStackError):
    """A plugin could not be loaded, or breaks its contract; other plugins are not affected."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra; each first-party plugin has one of its name."""
    return f'pip install "lazy-data-stack[{extra}]"'


class MissingDependencyError(DataStackError, ImportError):
    """An optional package is not installed.

    Attributes:
        needed_by: what needs it.
        package: its name.
        extra: the extra of data_stack that brings it.
    """

    def __init__(self, needed_by: str, package: str, extra: str) -> None:
        super().__init__(needed_by, package, extra)
        self.needed_by = needed_by
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.needed_by} needs {self.package}: {install_command(self.extra)}"


class UnpicklableResourceError(DataStackError, TypeError):
    """A resource around a private buffer cannot be sent to another process.

    Store it first: stored resources can be pickled.
    """


class LeftOutWarning(UserWarning):
    """Files or columns of a place are not read.

    The message names the first few, their number and the rule.

    ``warnings.simplefilter("error", LeftOutWarning)`` makes it an error.
    """


__all__ = sorted(
    name
    for name, value in globals().items()
    if isinstance(value, type) and issubclass(value, (DataStackError, LeftOutWarning))
)


def __getattr__(name: str) -> Any:
    """Return ``LicenseDeniedError`` by the name that it had before version 0.2, and warn."""
    if name == "LicenceDeniedError":
        # Not warn_deprecated: this module imports no other of ours. removed_in="1.0"
        warnings.warn(
            "LicenceDeniedError is deprecated since data_stack 0.2 and will be removed in 1.0: "
            "use LicenseDeniedError",
            DeprecationWarning,
            stacklevel=2,
        )
        return LicenseDeniedError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
