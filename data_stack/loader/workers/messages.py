"""The messages between a loader and its worker processes."""

from __future__ import annotations

from typing import Any, NamedTuple

from data_stack.exception import LoadingError
from data_stack.loader.job import Job
from data_stack.loader.workers.segment_pool import Content
from data_stack.processes.program_settings import ProgramSettings

ValueName = tuple[str, str]
"""The names of a module and of a value in it."""


# ---------------------------------------------------------------------- to a worker


class Unpack(NamedTuple):
    """Unpickle the maker of batches and the program's arguments, which come with this message."""


class BeginEpoch(NamedTuple):
    """Begin an epoch with generators of random numbers, settings and values of the program.

    Attributes:
        entropy: seeds the generators; another one in each iteration.
        epoch: the number of the epoch.
        worker_number: the number of the worker, as all workers get the same entropy.
        settings: the settings of the thread that uses the loader.
        values: values that the program has set in modules.
    """

    entropy: bytes
    epoch: int
    worker_number: int
    settings: ProgramSettings
    values: dict[ValueName, Any]


class MakeBatch(NamedTuple):
    """Make the batch of a job.

    Attributes:
        number: the number of the job, over all iterations.
        job: the job.
    """

    number: int
    job: Job


class TellValues(NamedTuple):
    """Tell the plain values of modules.

    Attributes:
        number: the number of this question, in the sequence of the jobs.
        modules: the names of the modules.
    """

    number: int
    modules: list[str]


class Forget(NamedTuple):
    """Drop all jobs that were sent before.

    Attributes:
        first_wanted: the number of the first job that is not dropped.
    """

    first_wanted: int


# ---------------------------------------------------------------------- from a worker


class Ready(NamedTuple):
    """The worker has unpickled everything.

    Attributes:
        modules: modules that it has imported, which the fork server may hold for later workers.
    """

    modules: list[str]


class Unfit(NamedTuple):
    """The worker could not unpickle everything, so that it makes no batches.

    Attributes:
        problem: the error in one line.
        traceback_text: the traceback in the worker.
    """

    problem: str
    traceback_text: str


class BatchMade(NamedTuple):
    """A batch is done.

    Attributes:
        number: the number of its job.
        content: the batch, pickled; its large arrays lie in segments of the worker's pool.
    """

    number: int
    content: Content


class BatchFailed(NamedTuple):
    """A batch could not be made.

    Attributes:
        number: the number of its job.
        error: the error for the program.
        pickled_cause: its cause; None if that does not pickle.
    """

    number: int
    error: LoadingError
    pickled_cause: bytes | None


class Values(NamedTuple):
    """The plain values of modules.

    Attributes:
        number: the number of the question.
        values: the values.
    """

    number: int
    values: dict[ValueName, Any]
