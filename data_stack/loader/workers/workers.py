"""What every kind of workers does: it makes the batches of jobs, and hands them out in the order of the jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from data_stack.loader.jobs import Job, MadeBatch

__all__ = ["Workers"]


class Workers(ABC):
    """Makes the batches of jobs; which batches they are, and their order, does not depend on the kind of workers.

    One thread uses it. Nothing runs before the first job.
    """

    kind: str
    """"inline", "threads" or "processes"."""

    choice: str = ""
    """Why these workers were chosen; "" if they were asked for."""

    n_workers: int
    """Threads or processes; 0 if jobs are done in the consumer's thread."""

    capacity: int
    """How many jobs should be under way. It may change while jobs are."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Take a job on; never waits for one to be done."""
        raise NotImplementedError

    @abstractmethod
    def next(self) -> MadeBatch:
        """The batch of the oldest job that has not been handed out; waits for it.

        Raises:
            LoadingError: it could not be made. All other jobs are forgotten, as by :meth:`cancel`.
            WorkerError: a worker died, or does nothing any more. The same, and its processes have ended.
            BaseException: what interrupts the waiting (KeyboardInterrupt) passes through; call :meth:`cancel` or
                :meth:`close` then.
        """
        raise NotImplementedError

    @abstractmethod
    def cancel(self) -> None:
        """Forget all jobs; the workers stay, ready for others."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Forget all jobs and let go of every thread, process, descriptor and piece of shared memory.

        Calling it again does nothing; the next job starts them again. Batches that were handed out stay as they are. It returns
        within seconds, whatever the workers do.
        """
        raise NotImplementedError

    def expect(self, n_jobs: int) -> None:  # noqa: B027  # most need not know
        """Know before the first job of an iteration about how many there will be."""

    @property
    def is_ready(self) -> bool:
        """Whether a job that is submitted now would be begun at once, the workers having started."""
        return True

    def start(self) -> None:
        """Start the workers if they are not running, so that the first job finds them ready; nothing needs it."""
        return
