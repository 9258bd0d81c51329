"""A worker process as the consumer's process sees it: started, spoken to, watched and ended."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading

from data_stack.exception import ConfigError, WorkerError
from data_stack.loader.jobs import Job
from data_stack.loader.workers.channel import Channel
from data_stack.loader.workers.segments import Leases, SegmentReader

__all__ = ["LOOK_SECONDS", "RunningWorker"]

# A fresh interpreter: multiprocessing's would run the user's script again, which therefore needs a guard, as no notebook has.
_PROGRAM = (
    "import gc, sys; gc.disable(); facts = sys.argv[1]; sys.path[:] = sys.argv[2:]; "
    "from data_stack.loader.workers.worker_process import main; main(*map(int, facts.split(',')))"
)

# So often it is looked whether an awaited worker lives. It is counted in looks, not in seconds: while the machine is suspended or
# this process is stopped (Ctrl-Z), workers do not move either, and this process does not look.
LOOK_SECONDS = 0.25
_LOOKS_UNTIL_STUCK = 16


class RunningWorker:
    """One worker process.

    Args:
        number: of the worker, from 0 on.
        n_workers: how many there are.
        n_kept: free segments that it keeps.
        leases: of all workers.

    Raises:
        ConfigError: there is no interpreter to run.
        OSError: the process could not be started.

    Attributes:
        channel: to it.
        segments: its shared memory.
        jobs: those that it has to do, by their number, the one it is at first.
        is_ready: whether it has what it needs to do them.
        is_flooded: whether it is to be heard of when it takes messages again.
        failure: why it can do nothing more; None while it can.
    """

    def __init__(self, number: int, *, n_workers: int, n_kept: int, leases: Leases) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise ConfigError("there is no Python interpreter here that worker processes could run; use worker_kind='threads'")
        self.number = number
        self.jobs: dict[int, Job] = {}
        self.is_ready = False
        self.is_flooded = False
        self.failure: WorkerError | None = None
        self.segments = SegmentReader(leases)
        self._place: tuple[int, str] | None = None  # the job that it said it is at, and where
        self._n_looks_stopped = 0
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        try:
            # The first three are the worker's standard streams; ours are among them if this process was started without.
            passed = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
            try:
                self.process = self._started(passed, n_workers=n_workers, n_kept=n_kept)
            finally:
                os.close(passed)
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()

    def _started(self, passed: int, *, n_workers: int, n_kept: int) -> subprocess.Popen[bytes]:
        facts = [passed, n_workers, n_kept, os.getpid(), threading.current_thread() is threading.main_thread()]
        return subprocess.Popen(  # noqa: S603  # our own program
            [
                sys.executable,
                *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]  # as multiprocessing does
                "-c",
                _PROGRAM,
                ",".join(str(int(fact)) for fact in facts),
                *map(os.fspath, sys.path),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=[passed],
        )

    @property
    def name(self) -> str:
        """E.g. ``"worker process 1 (pid 4242)"``."""
        return f"worker process {self.number + 1} (pid {self.process.pid})"

    def end_politely(self) -> None:
        """Let the process end when it has done what it is at."""
        self.channel.close()

    def wait(self, seconds: float) -> None:
        """Wait so long for the process to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, seconds))

    def kill(self) -> None:
        """End the process, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()

    # ----------------------------------------------------------------------------------------------------------- what it sent

    def take_segments(self, segment: int | None, is_new: bool, given_back: list[int]) -> bool:
        """Get to know the segment of a batch that has come, and which ones exist no longer; whether that worked."""
        self.segments.drop(given_back)
        if segment is None or not is_new:
            return True
        try:
            if self.channel.has_lost_descriptors:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self.segments.add(segment, self.channel.descriptors.popleft())
        except OSError as error:
            advice = "keep fewer batches" if error.errno == errno.ENOMEM else "close files, or raise `ulimit -n`"
            self.failure = WorkerError(
                self.name, f"sent a batch that this process has no room for ({error.strerror}): {advice}. {_AGAIN}"
            )
            return False
        return True

    def fail(self, said: str, traceback_text: str) -> None:
        """It could not make anything of what it was sent."""
        self.failure = WorkerError(
            self.name,
            f"cannot use what it was sent: {said}. What cannot be put together there may do with worker_kind='threads'. {_AGAIN}"
            f"\n\nIn the worker:\n{traceback_text}",
        )

    # --------------------------------------------------------------------------------------------------------------- its end

    def death(self) -> WorkerError:
        """The error that says how the process ended; waits for that a little, and makes sure of it."""
        try:
            status = self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it has closed its end of the channel, and lives on
            self.kill()
            return WorkerError(self.name, f"does not answer any more{self._at()}; it was ended. {_AGAIN}")
        if status >= 0:
            before = "" if self.is_ready else " What it wrote to standard error says more."
            return WorkerError(self.name, f"exited with status {status}{self._at()}.{before} {_AGAIN}")
        why = ", as the kernel does when memory runs out" if -status == signal.SIGKILL else ""
        return WorkerError(self.name, f"was killed by signal {-status} ({_name_of(-status)}{why}){self._at()}. {_AGAIN}")

    def forget(self) -> None:
        """This process is a fork of the one that has the worker: let go of it without a word to it."""
        self.channel.close()
        self.process.returncode = 0  # else it would be warned of a process that was not waited for

    # ---------------------------------------------------------------------------------------------------------- watching

    def begin_watch(self) -> None:
        """The consumer begins to wait for this worker."""
        self._n_looks_stopped = 0

    def look(self, *, is_awaited: bool) -> None:
        """See whether it lives, and, if it is awaited, whether it was stopped. To be called every ``LOOK_SECONDS``.

        Raises:
            WorkerError: it has died, or has been stopped for 4 s; then it is killed.
        """
        if self.process.poll() is not None:  # which the channel does not tell if a fork of either process has it, too
            raise self.death()
        self._n_looks_stopped = self._n_looks_stopped + 1 if is_awaited and self._is_stopped() else 0
        if self._n_looks_stopped >= _LOOKS_UNTIL_STUCK:
            self.kill()
            raise WorkerError(self.name, f"has been stopped for 4 s, as SIGSTOP does{self._at()}; it was ended. {_AGAIN}")

    def be_at(self, number: int, place: str) -> None:
        """It says where in the code it is with a job."""
        self._place = number, place

    def delay(self, seconds: float) -> str:
        """Says that the consumer has waited so long for it, and what it is at."""
        return f"{self.name} takes long{self._at()}: {seconds:.0f} s so far. {self._said}"

    def too_late(self, seconds: float) -> WorkerError:
        """The error that the time for a batch is over; the process is killed."""
        self.kill()
        return WorkerError(
            self.name, f"was not done within timeout_seconds={seconds:g}{self._at()}; it was ended. {_AGAIN}. {self._said}"
        )

    @property
    def _said(self) -> str:
        if not self.is_ready:
            return "It has not begun yet."
        if self._place is not None and self._place[0] in self.jobs:
            return f"It is at:\n{self._place[1]}"
        return "It does not say where it is, as when native code holds the GIL."

    def _is_stopped(self) -> bool:
        """Whether the process is, as by SIGSTOP; False where the system has no ``/proc``."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="utf-8", errors="replace") as stat:
                # the name of the program comes second, in parentheses, and may have any characters in it, see proc(5)
                return stat.read().rpartition(")")[2].split()[0] == "T"
        except (OSError, IndexError):
            return False

    def _at(self) -> str:
        job = next(iter(self.jobs.values()), None)
        if not self.is_ready:
            return " while it started"
        return f" while it made {job}" if job is not None else ""


def _name_of(signal_number: int) -> str:
    try:
        return signal.Signals(signal_number).name
    except ValueError:
        return "a real-time signal"


_AGAIN = "All workers of this loader have ended; iterating again starts new ones"
