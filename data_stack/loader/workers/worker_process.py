"""The program of a worker process: it makes the batches of the jobs that it is sent until nobody is there to want them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import mmap
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from types import FrameType
from typing import Any, NoReturn

from data_stack.exception import LoadingError
from data_stack.loader.jobs import BatchMaker, Job
from data_stack.loader.workers.channel import Channel
from data_stack.loader.workers.parcels import Parcel, Spans, contents_of, know_nameless, pickled_error
from data_stack.loader.workers.segments import SegmentWriter
from data_stack.util.large_arrays import Memory, find_first_by
from data_stack.util.processors import be_one_of

__all__ = ["main"]

_BEAT_SECONDS = 0.25
_TELL_SECONDS = 0.75  # from here on a job takes long enough to tell where it is
_PR_SET_PDEATHSIG = 1  # which signal to get when the thread that started this process ends, see prctl(2)
_SMALL_BYTES = 4096  # a message with so much is cheaper than shared memory
_SMALL_PICKLE_BYTES = 1 << 15  # the socket takes several of these without anybody listening


def main(channel: int, n_workers: int, n_kept: int, parent: int, is_of_main_thread: int) -> NoReturn:
    """Work for the process that started this one.

    Args:
        channel: descriptor of the socket to it.
        n_workers: how many of them there are.
        n_kept: free segments to keep.
        parent: process id of the one that started this one.
        is_of_main_thread: whether that process's main thread did, which lives as long as the process.
    """
    _fill_standard_streams()
    # Ctrl-C goes to all processes of a terminal; it is the consumer's to say what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gc.freeze()  # what was imported stays; it was off until now, which saves a tenth of the time that takes
    gc.enable()
    if is_of_main_thread and sys.platform == "linux":
        # The heartbeat ends this process when the parent is gone, but cannot while it is stopped or Python's lock is held.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    be_one_of(n_workers)
    worker = _Worker(Channel(socket.socket(fileno=channel)), n_kept)
    threading.Thread(target=worker.watch, args=(parent,), name="heartbeat", daemon=True).start()
    try:
        worker.work()
    except BaseException:  # noqa: BLE001  # the consumer hears of it by the exit status
        traceback.print_exc()
        _leave(1)
    _leave(0)


def _fill_standard_streams() -> None:
    """Open what is closed of the standard streams: else shared memory takes its place, and libraries write messages into it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest descriptor that is free


class _Worker:
    def __init__(self, channel: Channel, n_kept: int) -> None:
        self._channel = channel
        self._wanted = 0  # generation of the jobs that are wanted
        self._at: tuple[int, int, float] | None = None  # generation and number of the job that it is at, and since when
        self._segments = SegmentWriter(n_kept)
        self._messages: deque[tuple[Any, ...]] = deque()
        self._poll = select.poll()
        self._maker: BatchMaker | None = None
        self._makes_in_segments = False
        self._thread = threading.get_ident()
        self._pid = os.getpid()
        find_first_by(self._memory_of_batch)

    def work(self) -> None:
        """Do what messages say, until the other end of the channel is closed."""
        self._poll.register(self._channel.fileno(), select.POLLIN)
        while (message := self._next_message()) is not None:
            kind, *content = message
            if kind == "package":
                self._unpack(*content)
            elif kind == "job":
                self._do(*content)

    def _next_message(self) -> tuple[Any, ...] | None:
        """The next thing to do; None when there is nobody to do it for."""
        while True:
            self._read()
            if self._channel.is_ended:
                return None
            if self._messages:
                return self._messages.popleft()
            events = select.POLLIN | (select.POLLOUT if self._channel.has_outgoing else 0)
            self._poll.modify(self._channel.fileno(), events)
            self._poll.poll()
            self._channel.flush()

    def _read(self) -> None:
        for message in self._channel.receive():
            if message[0] == "job":  # segments are free when that is known, not when the job's turn comes
                kind, freed, lost, *job = message
                self._segments.free(freed, lost)
                message = (kind, *job)
            elif message[0] == "want":  # heard before the jobs that came earlier, which need not be done
                self._wanted = message[1]
                continue
            self._messages.append(message)

    def _unpack(self, spans: Spans, nameless: list[tuple[str, str]]) -> None:
        descriptor = self._channel.descriptors.popleft()
        try:
            # A private map: whoever writes into an array does so for itself; what nobody writes to is there once for all workers.
            memory = memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=mmap.ACCESS_COPY))
        finally:
            os.close(descriptor)
        views = [memory[start:stop].toreadonly() if is_read_only else memory[start:stop] for start, stop, is_read_only in spans]
        try:
            package = contents_of(views[0], views[1:])
        except Exception as error:  # noqa: BLE001  # whatever an object raises instead of coming to life
            self._channel.send(("unfit", f"{type(error).__name__}: {error}", _traceback_of(error)))
            return
        know_nameless(nameless)
        self._maker = package["maker"]
        # What functions of the user's make of batches, and what they keep of them, is theirs.
        self._makes_in_segments = self._maker.only_gathers
        sys.argv[:] = package["argv"]
        self._channel.send(("ready",))

    def _do(self, generation: int, number: int, epoch: int, step: int, position: int, indices: Any, seed: int) -> None:
        if self._maker is None or generation < self._wanted:
            return
        job = Job(number, epoch, step, position, indices, seed)
        self._at = generation, number, time.monotonic()
        try:
            if self._makes_in_segments:
                with contextlib.suppress(OSError, MemoryError):  # it is told when the batch is sent
                    self._segments.open()
            made = self._maker.make(job)
        except LoadingError as error:
            self._leave_in_fork()
            self._send_error(generation, number, error, error.__cause__ or error)
        except BaseException as error:  # noqa: BLE001  # SystemExit and the like of user code must not end it in silence
            self._leave_in_fork()
            asked = LoadingError("making a batch was broken off", error, epoch=epoch, step=step)
            self._send_error(generation, number, asked, error)
        else:
            self._leave_in_fork()
            figures = (made.n_samples, made.n_bytes, made.read_seconds, made.collate_seconds, made.transform_seconds)
            try:
                parcel = Parcel(made.batch)
            except Exception as error:  # noqa: BLE001  # whatever an object raises instead of being pickled
                problem = (
                    "a batch cannot be sent from a worker process to the consumer; with worker_kind='threads' it need not be"
                )
                self._send_error(generation, number, LoadingError(problem, error, epoch=epoch, step=step), error)
            else:
                try:
                    self._send_batch(generation, number, figures, parcel)
                except (OSError, MemoryError) as error:  # it is raised before anything is sent
                    problem = f"there is no room for a batch of {made.n_bytes:,} bytes in the shared memory of a worker process"
                    self._send_error(generation, number, LoadingError(problem, error, epoch=epoch, step=step), error)
        self._at = None
        for stream in (sys.stdout, sys.stderr):  # so that what user code prints is not lost, whatever becomes of this process
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()

    def watch(self, parent: int) -> None:
        """Tell where a job that takes long is; end this process when the one that started it is gone."""
        last = 0.0
        while os.getppid() == parent:
            if (at := self._at) is not None:
                generation, number, since = at
                now = time.monotonic()
                # the longer it takes, the less often: the consumer may not be listening
                if now - since >= _TELL_SECONDS and now - last >= max(_TELL_SECONDS, (now - since) / 8):
                    last = now
                    self._channel.send(("at", generation, number, _stack_of(sys._current_frames().get(self._thread))))
            time.sleep(_BEAT_SECONDS)
        os._exit(1)  # what it was at is wanted no more

    def _memory_of_batch(self, n_bytes: int) -> Memory | None:
        """Memory for a large array of the batch that is being made, in the segment that it will be sent in."""
        return self._segments.memory(n_bytes) if threading.get_ident() == self._thread else None

    def _leave_in_fork(self) -> None:
        """End this process if it is a fork that user code made and let come back: the consumer must not get batches twice."""
        if os.getpid() != self._pid:
            os._exit(1)

    def _send_batch(self, generation: int, number: int, figures: tuple[Any, ...], parcel: Parcel) -> None:
        pickled: bytes | None = bytes(parcel.pickle) if parcel.pickle.nbytes <= _SMALL_PICKLE_BYTES else None
        buffers = parcel.buffers if pickled is not None else [parcel.pickle, *parcel.buffers]
        batch = ("batch", generation, number, figures, pickled)
        if sum(buffer.nbytes for buffer in buffers) <= _SMALL_BYTES:
            copies = [bytes(buffer) if buffer.readonly else bytearray(buffer) for buffer in buffers]
            self._channel.send((*batch, copies, [], None, False, self._segments.given_back()))
            return
        segment, spans, descriptor = self._segments.write(buffers)
        descriptors = () if descriptor is None else (descriptor,)
        self._channel.send((*batch, [], spans, segment, bool(descriptors), self._segments.given_back()), descriptors)

    def _send_error(self, generation: int, number: int, error: LoadingError, cause: BaseException) -> None:
        facts = {"problem": error.problem, "cause": error.cause, "epoch": error.epoch, "step": error.step, "index": error.index}
        self._channel.send(("error", generation, number, facts, _traceback_of(cause), pickled_error(cause)))


def _traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _stack_of(frame: FrameType | None) -> str:
    """Where a thread is, without the frames that are the same always."""
    summary = traceback.extract_stack(frame)
    own = [entry for entry in summary if not entry.filename.endswith("worker_process.py") and entry.filename != "<string>"]
    return "".join(traceback.format_list(own[-12:])) or "waiting for something to do\n"


def _leave(status: int) -> NoReturn:
    """End this process: finalizers run, threads of user code are not waited for."""
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(status)
