"""What no digest vouches for is parsed in another process first: a crash, a hang or a flood of
memory there is an error here.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
import pytest
from process_census import children
from process_harness import in_fork, is_running, run_python, until
from sizes import sized

from data_stack.exception import DatasetFileCorruptError, StorageError
from data_stack.formats.hdf5 import HDF5DatasetIterator
from data_stack.io.parsing import check_apart
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.processes.isolation import mapped_bytes, run_apart, run_on_bytes

HERE = "tests.processes.test_isolation"
DATA = bytes(range(256)) * 1000


def add_up(file: Any, factor: int) -> dict[str, int]:
    file.seek(0)
    return {"sum": factor * sum(file.read()), "pid": os.getpid()}


def crash(file: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(file: Any) -> None:
    while True:
        pass


def read_for_ever(file: Any) -> None:
    while True:
        with contextlib.suppress(Exception):  # as libhdf5's callbacks do
            file.seek(0)
            file.read(100)


def flood(file: Any) -> None:
    held = [bytearray(64 << 20) for _ in range(100)]
    del held


def write(file: Any, path: str) -> None:
    with open(path, "wb") as opened:
        opened.write(b"x")


def read_all(file: Any) -> int:
    return len(file.read())


def seek_before_the_start(file: Any) -> str:
    try:
        file.seek(-len(DATA) - 1, os.SEEK_END)
    except OSError as error:
        return str(error)
    return "no error"


def refuse(file: Any) -> None:
    raise DatasetFileCorruptError(f"{file.name} is a song")


def apart(function: str, *arguments: Any, seconds: float = 5.0, **kwargs: Any) -> Any:
    return run_apart(
        f"{HERE}:{function}",
        arguments,
        name="song.h5",
        size=len(DATA),
        read_at=kwargs.get("read_at", lambda offset, size: DATA[offset : offset + size]),
        seconds=seconds,
    )


def test_a_function_reads_the_bytes_in_another_process() -> None:
    result = apart("add_up", 2)

    assert result["sum"] == 2 * sum(DATA)
    assert result["pid"] != os.getpid()


def test_nothing_is_read_before_the_start_of_a_file() -> None:
    assert apart("seek_before_the_start") == "negative seek position -1"


@pytest.mark.parametrize("function", ["crash", "hang"])
def test_a_crash_or_hang_apart_is_an_error_naming_files(function: str) -> None:
    with pytest.raises(
        DatasetFileCorruptError, match=r"'song.h5' cannot be read: .* crashed, or took more than "
    ):
        apart(function, seconds=0.3)

    assert apart("read_all") == len(DATA)  # the next run works


def test_the_processor_time_of_reading_for_it_counts() -> None:
    spans: list[float] = []

    def read_slowly(offset: int, size: int) -> bytes:
        begin = time.thread_time()
        while time.thread_time() < begin + 0.02:
            pass
        spans.append(time.thread_time() - begin)
        return DATA[offset : offset + size]

    with pytest.raises(DatasetFileCorruptError, match=r"took more than . s of processor time"):
        apart("read_for_ever", seconds=0.4, read_at=read_slowly)

    assert sum(spans[:-1]) < 0.4


def test_the_process_ends_with_its_run_despite_ignored_errors() -> None:
    apart("add_up", 1)  # the fork server stays
    before = set(children())

    def fail(offset: int, size: int) -> bytes:
        raise StorageError("the store burned down")

    with pytest.raises(StorageError):
        apart("read_for_ever", seconds=1000.0, read_at=fail)

    assert until(lambda: set(children()) <= before)


@pytest.mark.full
def test_what_floods_memory_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_STACK_MAX_REQUEST_BYTES", str(1 << 30))
    program = (
        "from tests.processes.test_isolation import apart\n"
        "try: apart('flood')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )

    output, _ = run_python("-W", "error", "-c", program)  # the helper inherits it

    assert output.startswith(
        "DatasetFileCorruptError 'song.h5' needs more than 1,073,741,824 bytes of memory"
    )


def test_nothing_can_be_written_there(tmp_path: Any) -> None:
    with pytest.raises(DatasetFileCorruptError):
        apart("write", str(tmp_path / "file"))

    assert not (tmp_path / "file").exists() or not (tmp_path / "file").stat().st_size


def test_an_error_of_ours_comes_back_with_its_words() -> None:
    with pytest.raises(DatasetFileCorruptError, match=r"song\.h5 is a song"):
        apart("refuse")


def test_threads_and_forks_read_apart_at_once() -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(apart("read_all"))) for _ in range(sized(3, 8))
    ]
    for thread in threads:
        thread.start()
    status = in_fork(lambda: apart("read_all") == len(DATA))  # while they read
    for thread in threads:
        thread.join()

    assert status == 0
    assert found == [len(DATA)] * len(threads)


def test_the_helper_ends_with_the_process_that_started_it() -> None:
    program = "from tests.processes.test_isolation import apart; print(apart('add_up', 1)['pid'])"
    output, errors = run_python("-W", "error", "-c", program)

    assert until(lambda: not is_running(int(output)))
    assert errors == ""


def hdf5_file() -> io.BytesIO:
    file = io.BytesIO()
    with h5py.File(file, "w") as root:
        root.create_dataset("x", data=np.arange(20), chunks=(5,), compression="gzip")
        root.create_dataset("text", data=["a", "bc"] * 10)
    return file


def functions_run_apart(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those from now on, as they are run."""
    asked: list[str] = []

    def note(function: str, arguments: Sequence[Any], **facts: Any) -> None:
        asked.append(function)
        run_apart(function, arguments, **facts)

    monkeypatch.setattr("data_stack.io.parsing.run_apart", note)
    return asked


def test_hdf5_without_a_digest_in_its_store_is_parsed_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = functions_run_apart(monkeypatch)
    store = InMemoryStorageConnector()
    store.set_resource("x.h5", [hdf5_file().getvalue()])

    with store.get_resource("x.h5") as resource:
        vouched = HDF5DatasetIterator(resource, ["x", "text"])[3]
    n_asked = len(asked)
    unknown = HDF5DatasetIterator(StreamedResource("x.h5", hdf5_file()), ["x", "text"])[3]

    assert vouched == unknown == (3, "bc")
    assert n_asked == 0
    assert asked == ["data_stack.formats.hdf5.apart:parse_all"]


def test_a_process_assumes_a_size_where_proc_is_missing() -> None:
    assert 1 << 20 < mapped_bytes() < 1 << 50
    assert mapped_bytes("/nowhere/statm") == 8 << 30


def test_isolation_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = functions_run_apart(monkeypatch)
    monkeypatch.setenv("DATA_STACK_ISOLATION", "off")

    check_apart(PositionalFile(io.BytesIO(b"x")), f"{HERE}:crash", [])

    assert asked == []


def test_bytes_are_given_to_a_function_in_another_process() -> None:
    result = run_on_bytes(f"{HERE}:add_up", [2], DATA, name="numbers")

    assert result["sum"] == 2 * sum(DATA)
    assert result["pid"] != os.getpid()


def test_bytes_that_crash_a_function_are_an_error() -> None:
    with pytest.raises(DatasetFileCorruptError, match="numbers"):
        run_on_bytes(f"{HERE}:crash", [], DATA, name="numbers")


def test_without_isolation_bytes_are_given_to_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATA_STACK_ISOLATION", "off")

    result = run_on_bytes(f"{HERE}:add_up", [1], DATA, name="numbers")

    assert result == {"sum": sum(DATA), "pid": os.getpid()}
