"""Processes that work for this one: their messages, in which large values travel in unnamed shared memory."""

from __future__ import annotations

import errno
import functools
import io
import math
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

import cloudpickle
import numpy as np

from data_stack.processes.fork_server import ForkedProcess
from data_stack.util.interrupts import (
    interrupts_deferred,
    is_from_signal_handler,
    suppress_own,
)

_LENGTH_BYTES = 8
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_SMALL_BYTES = 1 << 14  # up to this size a message is cheaper than shared memory
_ALIGNMENT_BYTES = 64  # a cache line, which wide instructions need
_MAX_MAPS = 128  # of batches that the receiver keeps; each takes a descriptor

#: Shared memory that holds values of this process, or did. (A WeakSet runs code when a map is freed, which swallows Ctrl-C.)
_maps: list[weakref.ref[mmap.mmap]] = []

_GRACE_SECONDS = 0.25  # for children to end by themselves
_ANSWER_SECONDS = (
    5.0  # children always read, so one that does not answer within this time was stopped
)

#: Packages that take long to import, and have no threads and no connections until they are used.
_HELD: Final = frozenset({"PIL", "cv2", "h5py", "numpy", "pandas", "pyarrow", "torch"})


class ChildProcess(ForkedProcess):
    """A process that works for this one over a channel.

    Args:
        module: whose ``main(channel, *facts)`` it runs, ``channel`` being the descriptor of a socket.
        facts: further integers.
        output: a file for its standard output; None: this process's.

    Raises:
        ConfigError: this Python cannot start interpreters.
        OSError: the process could not be started.

    Attributes:
        channel: to the process.
    """

    def __init__(self, module: str, *facts: int, output: Any = None) -> None:
        with interrupts_deferred():
            ours, theirs = socket.socketpair()
        self.channel = Channel(ours, _ANSWER_SECONDS)
        try:
            with theirs:
                super().__init__(f"{module}:main", facts, [theirs.fileno()], output)
        except BaseException:
            self.channel.close()
            raise

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, or closed its channel."""
        return (
            self.channel.is_ended or self.poll() is not None
        )  # the channel stays open if a fork has it, too

    def describe_end(self) -> str:
        """How it ended, for a message; waits for the end for a second, and then kills it."""
        status = self.poll(1)
        if status is None:  # it closed its channel, but runs on
            self.kill()
            return "no longer answers"
        if status >= 0:
            return f"exited with status {status}"
        name = (
            signal.Signals(-status).name
            if -status in signal.Signals._value2member_map_
            else "a real-time signal"
        )
        why = ", as the kernel does when memory runs out" if -status == signal.SIGKILL else ""
        return f"was killed by signal {-status} ({name}{why})"

    def end(self, deadline: float) -> None:
        """Close its channel, and kill it if it still runs at the deadline, in seconds of the monotonic clock."""
        self.channel.close()
        if self.poll(max(0.0, deadline - time.monotonic())) is None:
            self.kill()
            self.poll(
                _ANSWER_SECONDS
            )  # no longer, as the fork server, which says its status, may be stopped

    def forget(self) -> None:
        """In a fork of the parent, release the child without ending it."""
        self.channel.close()
        super().forget()


def end_all(processes: list[Any]) -> None:
    """End processes, and remove them from the list: close their channels, and kill those that run on."""
    for process in processes:
        process.channel.close()
    deadline = time.monotonic() + _GRACE_SECONDS
    while processes:
        processes[-1].end(deadline)
        processes.pop()


def loaded_modules() -> list[str]:
    """The modules of this process that the fork server may hold for later ones."""
    return [name for name in sys.modules if name in _HELD or name.startswith("data_stack.")]


class Parcel:
    """A pickled value with its buffers, to be sent: small ones in one piece, large ones in memory that both processes share.

    Args:
        value: anything.
        max_bytes: of its buffers.

    Attributes:
        content: the pickle and its buffers, if they are small; otherwise their spans in the memory: start, stop, and whether
            they are read-only.
        memory: a file without a name, which :meth:`close` closes; None if the buffers are small.

    Raises:
        OSError: memory is exhausted, or the value is larger than ``max_bytes``.
        Exception: an object cannot be pickled.
    """

    def __init__(self, value: Any, max_bytes: float = math.inf) -> None:
        pickled, buffers = dump(value)
        views = [pickled, *buffers]
        n_bytes = sum(view.nbytes for view in views)
        if n_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"{n_bytes / 1e9:.1f} GB in memory are too large to send")
        self.content: list[Any] = []
        self.memory: IO[bytes] | None = None
        if n_bytes <= _SMALL_BYTES:
            self.content += [
                bytes(view) if view.readonly or view is pickled else bytearray(view)
                for view in views
            ]
            return
        end = 0
        for view in views:
            start = -(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            end = start + view.nbytes
            self.content.append((start, end, view.readonly))
        self.memory = _anonymous_memory()
        try:
            self.memory.truncate(end)
            for view, (start, _, _) in zip(views, self.content, strict=True):
                self.memory.seek(start)
                self.memory.write(view)  # not by a map: a lack of memory must be an error
            self.memory.flush()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the memory, which stays with those who have received it."""
        if self.memory is not None:
            with suppress_own(OSError):  # memory is exhausted
                self.memory.close()


class Channel:
    """One end of a pair of connected Unix sockets.

    A message is a small value that pickles, its *head*, and a :class:`Parcel` or None. Threads may send.

    Args:
        connection: a connected stream socket; the channel closes it.
        timeout_seconds: how long sending, or reading the rest of a message, waits for the other end; None: without a limit.

    Attributes:
        is_ended: whether the other end is closed, or did not answer in time; neither raises an error.
    """

    def __init__(self, connection: socket.socket, timeout_seconds: float | None = None) -> None:
        connection.settimeout(timeout_seconds)
        self._connection = connection
        self._sending = threading.Lock()
        self.is_ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, head: Any, parcel: Parcel | None = None) -> None:
        """Send a message, waiting until the other end has read what does not fit into the socket's buffer."""
        body = pickle.dumps((head, None if parcel is None else parcel.content), protocol=5)
        frame = memoryview(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        with self._sending:
            try:
                if parcel is not None and parcel.memory is not None:
                    frame = frame[
                        socket.send_fds(self._connection, [frame], [parcel.memory.fileno()]) :
                    ]
                self._connection.sendall(frame)
            except (OSError, ValueError) as error:  # ValueError: the socket is closed
                self.is_ended = True
                if is_from_signal_handler(error):
                    raise

    def receive(self, *, is_private: bool = False) -> tuple[Any, Callable[[], Any] | None] | None:
        """Wait for the next message; None if the other end is closed.

        Args:
            is_private: whether what this process writes to the arrays stays in it.

        Returns:
            The head, and a function that unpickles the value of the parcel, or raises any error. Its arrays lie in shared memory,
            or are copies if many arrays do already.

        Raises:
            OSError: too many files are open to receive the parcel's memory.
        """
        received, files, body, n_bytes = list[Any](), list[io.FileIO](), bytearray(), 1

        def own() -> None:
            if received and not files:
                files.extend(
                    map(
                        io.FileIO,
                        [int.from_bytes(data, sys.byteorder) for _, _, data in received[0][1]],
                    )
                )

        try:
            with suppress_own(OSError):
                # extend, as Ctrl-C can lose what a call returns, but not what it stores
                received.extend(
                    map(
                        self._connection.recvmsg,
                        [_LENGTH_BYTES],
                        [socket.CMSG_SPACE(4)],
                        [_CLOSE_ON_EXEC],
                    )
                )
                own()
                n_bytes = max(n_bytes, int.from_bytes(received[0][0], "little"))
                while n_bytes > len(body) and (part := self._connection.recv(n_bytes - len(body))):
                    body += part
            self.is_ended |= len(body) < n_bytes
            if received and received[0][2] & socket.MSG_CTRUNC:
                raise OSError(
                    errno.EMFILE,
                    "too many open files to receive arrays of a process; close some, or raise `ulimit`",
                )
            if self.is_ended:
                return None
            head, content = load(body)
            if content is None:
                return head, None
            if files:
                content = _map(files[0], content, is_private=is_private)
            return head, functools.partial(load, content[0], content[1:])
        finally:
            own()  # if Ctrl-C came before
            for file in files:
                file.close()

    def close(self) -> None:
        """Close this end."""
        self.is_ended = True
        self._connection.close()


def _anonymous_memory() -> IO[bytes]:
    """An empty file in memory, without a name in /dev/shm or any other folder."""
    if not hasattr(os, "memfd_create"):  # macOS
        return tempfile.TemporaryFile()
    # one call, so that Ctrl-C cannot come between the descriptor and its owner
    return next(map(open, map(os.memfd_create, ["data_stack batches"]), ["wb"]))


def _map(
    memory: io.FileIO, spans: list[tuple[int, int, bool]], *, is_private: bool
) -> list[memoryview]:
    """Parts of a memory, see :class:`Parcel`; they hold a map of it, or a copy."""
    flags = mmap.MAP_PRIVATE if is_private else mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    mapped = mmap.mmap(memory.fileno(), spans[-1][1], flags)
    view = memoryview(mapped)
    if not is_private:
        _maps[:] = [each for each in _maps if each() is not None]
        if len(_maps) < min(_MAX_MAPS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4):
            _maps.append(weakref.ref(mapped))
        else:
            view = memoryview(bytearray(mapped))
    return [
        view[start:stop].toreadonly() if is_read_only else view[start:stop]
        for start, stop, is_read_only in spans
    ]


def dump(value: Any, *, in_one_piece: bool = False) -> tuple[memoryview, list[memoryview]]:
    """Pickle ``value``; the memory of its arrays and torch tensors is returned beside the pickle, and still belongs to ``value``.

    Functions and classes that a fresh interpreter cannot import are pickled by value: those of a script or of a notebook's cells.
    When they return to the process that sent them, they are the original ones.

    Args:
        value: anything.
        in_one_piece: whether the arrays are in the pickle, too.

    Raises:
        Exception: an object cannot be pickled.
    """
    file, buffers = io.BytesIO(), list[memoryview]()
    pickler = _Pickler(
        file,
        protocol=5,
        buffer_callback=None if in_one_piece else lambda buffer: buffers.append(buffer.raw()),
    )
    try:
        pickler.dump(value)
    finally:
        for module in pickler.by_value:  # leave cloudpickle's settings as they were
            cloudpickle.unregister_pickle_by_value(module)
    return file.getbuffer(), buffers


def load(pickled: Any, buffers: Sequence[Any] = ()) -> Any:
    """Unpickle what :func:`dump` returned; arrays are views of ``buffers``.

    Raises:
        Exception: an object cannot be unpickled.
    """
    return pickle.loads(pickled, buffers=buffers)  # noqa: S301  # from a parent or child process


def dump_error(error: BaseException) -> bytes | None:
    """The pickle of an exception in one piece; None if it does not survive pickling."""
    try:
        pickled = bytes(dump(error, in_one_piece=True)[0])
        copy = load(pickled)
        return pickled if type(copy) is type(error) and str(copy) == str(error) else None
    except Exception:  # noqa: BLE001  # an object cannot be pickled or unpickled
        return None


def imported_modules(value: Any) -> set[str]:
    """The names of the modules that another process imports to unpickle ``value``.

    Raises:
        Exception: an object cannot be pickled.
    """
    pickler = _Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda buffer: None)
    try:
        pickler.dump(value)
    finally:
        for module in pickler.by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return pickler.modules


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def __init__(self, file: io.BytesIO, **options: Any) -> None:
        super().__init__(file, **options)
        self.by_value: list[types.ModuleType] = []
        self.modules: set[str] = set()  # of the functions, classes and modules in the pickle

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            return NotImplemented
        if kind is np.memmap:
            if (reopened := _reduce_memmap(value)) is not None:
                return reopened
        elif kind is types.CodeType:
            return _make_code, (value.co_filename, *self.dispatch_table[kind](value))
        elif kind is types.FunctionType or isinstance(value, type):
            self.modules.add(str(value.__module__))
            self._look_at_module(value.__module__)
        elif kind is types.ModuleType:
            self.modules.add(value.__name__)
        elif (
            kind.__module__ == "torch"
            and kind.__name__ == "Tensor"
            and (reduced := _reduce_tensor(value)) is not None
        ):
            return reduced
        return super().reducer_override(value)

    def _look_at_module(self, name: str | None) -> None:
        package, module = str(name).partition(".")[0], sys.modules.get(str(name))
        if module is None or package == "__main__" or package in sys.builtin_module_names:
            return
        if not _can_import(package) and name not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self.by_value.append(module)


def _make_code(
    filename: str, make: Callable[..., types.CodeType], arguments: tuple[Any, ...]
) -> types.CodeType:
    return make(*arguments).replace(
        co_filename=filename
    )  # cloudpickle 3.1.3 leaves it out, and tracebacks need it


@functools.cache
def _can_import(package: str) -> bool:
    return any(
        finder.find_spec(package, None) for finder in sys.meta_path if hasattr(finder, "find_spec")
    )


def _reduce_memmap(array: np.memmap[Any, Any]) -> Any:
    """Reopen a memory map of a file by its name; None for other arrays, which are pickled."""
    file_map = array._mmap  # type: ignore[attr-defined]  # missing in numpy's types
    is_plain = (
        file_map is not None
        and array.flags.forc
        and not array.dtype.hasobject
        and array.mode != "c"
    )
    if not is_plain or not array.filename or not os.path.exists(array.filename):
        return None
    first = (
        array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    )  # where the map of the file begins
    start = first + array.ctypes.data - np.frombuffer(file_map, dtype=np.uint8).ctypes.data
    mode = "r" if array.mode == "r" or not array.flags.writeable else "r+"
    order = "C" if array.flags.c_contiguous else "F"
    return np.memmap, (
        os.path.abspath(array.filename),
        array.dtype,
        mode,
        start,
        array.shape,
        order,
    )


def _reduce_tensor(tensor: Any) -> Any:
    """Reduce a torch tensor to an array of its bytes; None if it is not plain CPU memory, which torch pickles."""
    torch = sys.modules["torch"]
    is_plain = (
        tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.requires_grad
    )
    if not is_plain or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return None
    array = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (array, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _tensor(array: np.ndarray[Any, Any], dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(array).view(getattr(torch, dtype)).reshape(shape)
