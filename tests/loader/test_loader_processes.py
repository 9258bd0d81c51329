"""Worker processes: the same batches, no leaks, and an error for every worker that dies or
hangs.
"""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from process_census import census, children, left_since, own_bytes
from process_harness import WARNINGS_ARE_ERRORS, run_python, start_python, until
from sizes import SEED, sized
from worker_subjects import Mixed, Numbers, Told, strange

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, LoadingError, WorkerError
from data_stack.loader import Loader
from data_stack.loader.workers.processes import ProcessWorkers
from data_stack.loader.workers.threads import ThreadWorkers
from data_stack.testing.comparing import assert_same

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="what a process has is counted in /proc"
)


@pytest.fixture(scope="module", autouse=True)
def _collected() -> None:
    """What other tests left is looked through once."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No test leaves a process, thread, descriptor or piece of shared memory behind."""
    gc.collect()
    before = census()
    _others.update(before.children)

    yield

    gc.collect()
    # What was killed ends a little later on a busy machine.
    assert until(lambda: left_since(before) == []), left_since(before)


_others: set[int] = set()


def worker_ids() -> list[int]:
    """Processes of which this one is the parent, but for the servers of other tests."""
    return [pid for pid in children() if pid not in _others]


def loader(samples: Any, batch_size: int = 16, **options: Any) -> Loader:
    return Loader(samples, batch_size, **{"worker_kind": "processes", "workers": 2, **options})


# --------------------------------------------------------------------------------- the same batches


def test_every_kind_of_column_is_as_it_is_inline() -> None:
    expected = list(loader(Mixed(), shuffle=True, worker_kind="inline", workers=0))

    batches = list(loader(Mixed(), shuffle=True))

    assert_same(batches, expected)


def test_what_a_transform_gives_comes_as_it_is() -> None:
    import torch

    expected = list(loader(Numbers(64), transform=strange, worker_kind="inline", workers=0))

    batches = list(
        loader(Numbers(64), transform=strange, workers=1)
    )  # which takes seconds to import torch

    for batch, other in zip(batches, expected, strict=True):
        for name in ("tensor", "no tensor", "parameter"):
            tensor, its_like = batch.pop(name), other.pop(name)
            assert (type(tensor), tensor.dtype) == (type(its_like), its_like.dtype)
            assert torch.equal(tensor, its_like)
        assert batch["shared"][0] is batch["shared"][1]
        assert not batch["frozen"].flags.writeable
        assert_same(batch, other)


def test_batches_that_are_kept_stay_as_they_are() -> None:
    images = np.random.default_rng(0).integers(0, 255, (800, 5000), dtype=np.uint8)
    with loader(SequenceDatasetIterator([images]), 4, epochs=None) as endless:
        iterator = iter(endless)
        kept = [next(iterator)[0][1:] for _ in range(5)]  # views of views
        copies = [each.copy() for each in kept]

        for _ in range(200):
            batch = next(iterator)[0]
            batch[:] = 0  # not visible elsewhere
            del batch

        assert all(np.array_equal(each, copy) for each, copy in zip(kept, copies, strict=True))
        assert np.array_equal(next(iterator)[0], images[20:24])
        iterator.close()  # type: ignore[attr-defined]  # it is a generator
    del endless
    gc.collect()
    assert all(
        np.array_equal(each, copy) for each, copy in zip(kept, copies, strict=True)
    )  # their workers are gone
    kept[0][:] = 7
    assert (kept[0] == 7).all()


# ---------------------------------------------------------------------------- scripts and notebooks

SCRIPT = """
import collections
from data_stack.exception import LoadingError
from data_stack.loader import Loader
from data_stack.loader.workers import processes

print("the script runs")
Pair = collections.namedtuple("Pair", "number square")
factor = 3

class Samples:
    def __len__(self):
        return 10
    def __getitem__(self, index):
        return index

class Mistake(Exception):
    pass

def transform(batch):
    if batch[0] == 8:
        raise Mistake("eight")
    return Pair(batch, factor * batch ** 2)

try:
    for batch in Loader(Samples(), 4, worker_kind="processes", workers=2, transform=transform):
        print(type(batch) is Pair, batch.square.tolist())
except LoadingError as error:
    print(type(error.__cause__) is Mistake, 'raise Mistake("eight")' in str(error))
"""


def test_functions_and_classes_of_a_script_need_no_main_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)

    output, errors = run_python(*WARNINGS_ARE_ERRORS, tmp_path / "script.py")

    assert errors == ""
    assert output.splitlines() == [
        "the script runs",
        "True [0, 3, 12, 27]",
        "True [48, 75, 108, 147]",
        "True True",
    ]


# ----------------------------------------------------------------------------------------- failures

MODULE_WITHOUT_MAIN_GUARD = """
from data_stack.loader import Loader

def double(batch):
    return 2 * batch

for batch in Loader(range(8), 4, worker_kind="processes", workers=1, transform=double):
    print(batch)
"""


def test_workers_that_would_start_workers_without_end_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MODULE_WITHOUT_MAIN_GUARD)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import program"

    with start_python("-c", program) as process:
        output, errors = process.communicate(timeout=120)

    assert process.returncode == 1
    assert output == ""
    assert "under `if __name__ == '__main__':`" in errors


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_an_exception_names_sample_and_worker_with_its_traceback(kind: str) -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            return 1 // (index - 37)

    received = []
    with pytest.raises(LoadingError, match="sample 37 could not be read") as raised:
        for batch in loader(Broken(64), worker_kind=kind):
            received += batch.tolist()

    error = raised.value
    assert received == [1 // (index - 37) for index in range(32)]
    assert (error.index, error.epoch, error.step) == (37, 0, 2)
    assert error.worker is not None
    assert error.worker.startswith(
        {"processes": "worker process ", "threads": "worker thread "}[kind]
    )
    assert type(error.__cause__) is ZeroDivisionError
    if kind == "processes":
        assert "return 1 // (index - 37)" in error.traceback_text
        assert error.traceback_text in str(error)
    else:
        assert error.__cause__.__traceback__ is not None


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_a_sample_that_stops_iteration_is_no_end(kind: Any) -> None:
    class Stopping(Numbers):
        def __getitem__(self, index: int) -> int:
            return index if index != 37 else next(iter(()))

    received = []
    with pytest.raises(LoadingError, match="sample 37 could not be read: EarlyEndError"):
        for batch in loader(Stopping(64), worker_kind=kind):
            received += batch.tolist()

    assert received == list(range(32))


@pytest.mark.parametrize(
    ("kind", "what", "text", "cause"),
    [
        ("processes", "fail_unruly", "Unruly: 1 and 2", type(None)),
        ("processes", "leave", "SystemExit: 3", SystemExit),
        ("threads", "leave", "SystemExit: 3", SystemExit),
    ],
)
def test_any_exception_of_a_transform_arrives_and_the_workers_stay(
    kind: str, what: str, text: str, cause: type[BaseException]
) -> None:
    with loader(Numbers(64), worker_kind=kind, transform=Told(what, 16)) as broken:
        workers = worker_ids()
        for _ in range(2):
            batches = iter(broken)
            assert next(batches)[0] == 0
            with pytest.raises(LoadingError, match=text) as raised:
                next(batches)

            assert type(raised.value.__cause__) is cause
        assert worker_ids() == workers


def test_what_cannot_be_sent_is_named() -> None:
    locked = Numbers(8)
    vars(locked)["lock"] = threading.Lock()
    with pytest.raises(
        ConfigError,
        match=r"the iterator .* cannot be sent to worker processes: .*lock.*worker_kind='threads'",
    ):
        next(iter(loader(locked)))
    with pytest.raises(ConfigError, match=r"the transform <function .*<lambda>.* cannot be sent"):
        lock = threading.Lock()
        next(iter(loader(Numbers(8), transform=lambda batch: batch * lock.locked())))


class Unpicklable:
    """Pickles, but cannot be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)

    def __call__(self, batch: Any) -> Any:
        return batch


def test_what_cannot_be_pickled_on_either_side_is_reported() -> None:
    with pytest.raises(
        WorkerError,
        match=r"(?s)could not unpickle .* ValueError: .*no number.*In the worker:\nTraceback",
    ):
        next(iter(loader(Numbers(8), workers=1, transform=Unpicklable())))
    with pytest.raises(LoadingError, match=r"a batch cannot be sent .*lock"):
        next(iter(loader(Numbers(8), workers=1, transform=lambda batch: threading.Lock())))


def test_a_worker_that_ends_is_an_error_with_its_status() -> None:
    with pytest.raises(
        WorkerError,
        match=r"worker process \d \(pid \d+\) exited with status 3 while it made step 1 of epoch 0",
    ):
        list(loader(Numbers(64), transform=Told("drop_dead", 16)))


@pytest.mark.full
def test_kills_at_random_moments_are_errors_and_no_hang() -> None:
    chance = random.Random(6)
    images = SequenceDatasetIterator([np.zeros((640, 3000), dtype=np.uint8)])
    loaders = [
        loader(images, epochs=None, workers=n_workers) for n_workers in (1, 1, 2)
    ]  # the start of each takes time
    for endless in loaders * 6:
        with endless:
            workers = worker_ids()
            batches = iter(endless)
            if chance.random() < 0.5:  # else they are only starting
                next(batches)
            killer = threading.Timer(
                chance.random() * 0.02, os.kill, (chance.choice(workers), signal.SIGKILL)
            )
            killer.start()

            with pytest.raises(
                WorkerError,
                match=r"was killed by signal 9 \(SIGKILL, as the kernel does when memory runs out\)",
            ):
                for _ in batches:
                    pass

            assert worker_ids() == []
            killer.join()


def of_step_2(seen: pytest.WarningsRecorder) -> list[str]:
    """The warnings of step 2; on a busy machine, there are others."""
    texts = [str(warning.message) for warning in seen.list]
    return [text for text in texts if "step 2 " in text]


@pytest.mark.parametrize(
    ("kind", "workers"), [("processes", ProcessWorkers), ("threads", ThreadWorkers)]
)
def test_a_slow_worker_is_a_warning(
    kind: str, workers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "warns_after_seconds", 0.3)
    may_go_on = tmp_path / "may_go_on"
    slow = Told("wait_for_file", 32, may_go_on)

    with loader(Numbers(64), worker_kind=kind, workers=1, transform=slow) as subject:
        batches = iter(subject)
        next(batches)
        with pytest.warns(RuntimeWarning, match="takes long to make step 2 ") as seen:  # noqa: PT031

            def let_it_go_on() -> None:
                until(lambda: of_step_2(seen) != [])
                may_go_on.touch()

            watching = threading.Thread(target=let_it_go_on)
            watching.start()
            n_batches = len(list(batches))
            watching.join()

    assert n_batches == 3
    assert len(of_step_2(seen)) == 1


def test_a_worker_that_takes_too_long_is_ended() -> None:
    subject = loader(Numbers(64), transform=Told("sleep_long", 32), timeout_seconds=2)

    def too_slow_step() -> str:
        # the batch is not a worker's first one: while it starts, it is at something else
        with pytest.raises(WorkerError) as raised:
            list(subject)
        return str(raised.value)

    is_step_2 = r"worker process \d .* did not make the batch of step 2 .* within timeout_seconds=2\. It was ended"
    # On a busy machine, an earlier step may take as long.
    assert until(lambda: re.search(is_step_2, too_slow_step()) is not None)


# --------------------------------------------------------------------------- nothing is left behind


SCRIPT_WITH_CTRL_C = """
import gc, os, time, warnings
from process_harness import until
from process_census import census
from worker_subjects import Mixed
from data_stack.loader import Loader

os.setsid()  # Ctrl-C goes to all processes of a group
warnings.simplefilter("ignore", ResourceWarning)  # as by default: what is dropped is closed

def run():
    with Loader(Mixed(), 8, worker_kind="processes", workers=2, epochs=None) as loader:
        for batch in loader:
            time.sleep(0.001)

before = census()
for _ in range(ROUNDS):
    try:
        print("go")
        run()
    except KeyboardInterrupt:
        pass
    gc.collect()
    is_as_before = until(lambda: census() == before)  # a process that was just starting ends by itself
    print(is_as_before or (before, census()))
"""


def test_ctrl_c_leaves_nothing_behind() -> None:
    chance = random.Random(SEED)
    n_rounds = sized(5, 40)
    with start_python(
        "-u", *WARNINGS_ARE_ERRORS, "-c", SCRIPT_WITH_CTRL_C.replace("ROUNDS", str(n_rounds))
    ) as script:
        assert script.stdout is not None
        lines = []
        for _ in range(n_rounds):
            assert script.stdout.readline() == "go\n"
            time.sleep(chance.random() * 0.2)
            os.killpg(script.pid, signal.SIGINT)
            lines.append(script.stdout.readline())
        output, errors = script.communicate(timeout=120)

    assert (lines, output, errors) == (["True\n"] * n_rounds, "", "")
    assert script.returncode == 0


def test_a_fork_has_workers_of_its_own() -> None:
    images = np.random.default_rng(0).integers(0, 255, (640, 3000), dtype=np.uint8)
    with loader(SequenceDatasetIterator([images]), workers=1) as forked:
        batches = iter(forked)
        first = next(batches)[0]
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                own = [batch[0] for batch in forked]
                forked.close()
                is_same = np.array_equal(np.concatenate(own), images)
                os.read(reader, 1)  # until the other process has used its segments again and again
                is_same = is_same and np.array_equal(first, images[:16])
                os._exit(0 if is_same else 1)
            finally:
                os._exit(2)
        del first
        rest = np.concatenate([batch[0] for batch in batches])
        again = [
            np.array_equal(batch[0], images[number * 16 :][:16])
            for number, batch in enumerate(forked)
        ]
        os.write(writer, b"x")
        _, status = os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)

    assert os.waitstatus_to_exitcode(status) == 0
    assert np.array_equal(rest, images[16:])
    assert all(again)


# ------------------------------------------------------------------------------------------- memory


def test_an_array_in_memory_is_there_once_for_all_workers() -> None:
    values = np.arange(24_000_000, dtype=np.float64)  # 192 MB
    with loader(SequenceDatasetIterator([values]), 1000) as shared:
        for number, batch in enumerate(shared):
            assert batch[0][0] == number * 1000
            if number == 12:
                break
        workers = worker_ids()
        used = own_bytes(workers)

    assert (
        used < 192e6 + 2 * 60e6
    )  # the second term is for Python and numpy; copies would be 384 MB
