"""Worker processes make the batches that the program makes, whatever it has set at run time."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import os
import random
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import sized

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import LoadingError, WorkerDifferenceError
from data_stack.loader import Loader
from data_stack.loader.comparison import find_difference
from data_stack.loader.workers.module_values import plain_values

Pair = collections.namedtuple("Pair", "one two")


@dataclasses.dataclass
class Box:
    """An object of a class of the user's."""

    content: Any


def record(content: float) -> Any:
    return np.array([(1, content)], dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True))


# ------------------------------------------------------------------------------------ one or two

ALIKE = [
    np.arange(6).reshape(2, 3).T,
    np.array([np.nan, 0.0]),
    np.array(["a", None, [1, {"b": 2}]], dtype=object),
    np.ma.masked_array([1, 2], mask=[True, False]),
    np.float32(1.5),
    np.datetime64("2020-01-01"),
    record(0.5),
    float("nan"),
    complex(0.0, float("nan")),
    Decimal("1.00"),
    {"a": {1, 2, "b"}, "b": b"c"},
    Pair([1], (2, None)),
    Box(Box(np.arange(3))),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
    len,
    Path("a"),
]


@pytest.mark.parametrize("value", ALIKE, ids=lambda value: type(value).__name__)
def test_a_copy_is_no_other_value(value: Any) -> None:
    import pickle

    assert find_difference(value, pickle.loads(pickle.dumps(value))) is None


DIFFERENT = [
    (np.array([0.0]), np.array([-0.0])),
    (np.arange(3), np.arange(3.0)),
    (np.arange(4), np.arange(4).reshape(2, 2)),
    (np.array(["a", 1], dtype=object), np.array(["a", 1.0], dtype=object)),
    (np.ma.masked_array([1, 2], mask=[True, False]), np.ma.masked_array([1, 2])),
    (np.float32(1.5), np.float64(1.5)),
    (record(0.5), record(0.25)),
    (0.0, -0.0),
    (1, True),
    (1, 1.0),
    (Decimal("1.0"), Decimal("1.00")),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({1, 2}, {1, 3}),
    ((1, 2), [1, 2]),
    ([1, 2], [1, 2, 3]),
    (Pair(1, 2), Pair(1, 3)),
    (Box([1]), Box([2])),
    (
        datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
        datetime.datetime(2020, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ),
    (len, sum),
    ("a", b"a"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=str)
def test_values_that_differ_in_any_way_are_told_apart(one: Any, other: Any) -> None:
    for first, second in ((one, other), (other, one), ({"x": one}, {"x": other})):
        difference = find_difference(first, second)

        assert difference is not None
        assert difference.one != difference.other


def test_tensors_differ_by_bits_dtype_and_gradient() -> None:
    import torch

    tensor = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)

    assert find_difference(tensor, tensor.clone()) is None
    assert find_difference(tensor, tensor.float()) is not None
    assert find_difference(tensor, tensor.clone().requires_grad_()) is not None
    assert find_difference(tensor, torch.tensor([1.0, 3.0], dtype=torch.bfloat16)) is not None
    assert find_difference(tensor.to_sparse(), tensor.to_sparse()) is None


def test_a_difference_names_column_and_row() -> None:
    one = {"x": np.arange(4), "y": np.arange(8).reshape(4, 2)}
    other = {"x": np.arange(4), "y": np.arange(8).reshape(4, 2) * [1, 2]}

    difference = find_difference(one, other)

    assert difference is not None
    assert (difference.place, difference.one, difference.other) == ("column 'y', row 0", "1", "2")


def test_values_that_contain_themselves_come_to_an_end() -> None:
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [1]
    other.append(other)

    assert find_difference(one, other) is None


# ------------------------------------------------------------------------------ what a program sets

MODULE = """
import os
scale = 1
table = {"a": [1]}
factor = None
kept = object()

def scaled(value):
    return value * scale

def looked_up(value):
    return value + table["a"][0]

def times_factor(value):
    return value * factor

def is_kept(value):
    return float(kept == 7 or isinstance(kept, list))

def fails_where_set(value):
    if scale == 3:
        raise ValueError("three")
    return value
"""


@pytest.fixture
def settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """A module that worker processes import as well, under a name of its own."""
    name = f"settings_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__(name)
    del sys.modules[name]


def numbers(n: int = 24) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(float(n)) + 1])


def values_of(loader: Loader) -> list[Any]:
    return [value for batch in loader for value in batch[0].tolist()]


def in_workers(stack: Any, **options: Any) -> Loader:
    return Loader(stack, 4, worker_kind="processes", workers=2, **options)


@pytest.mark.parametrize(
    ("name", "value", "function"),
    [("scale", 3, "scaled"), ("table", {"a": [5]}, "looked_up"), ("factor", 2.5, "times_factor")],
)
def test_workers_get_values_that_the_program_set_in_modules(
    settings: Any, name: str, value: Any, function: str
) -> None:
    setattr(settings, name, value)
    stack = numbers().map(getattr(settings, function), column=0)

    received = values_of(in_workers(stack))

    assert received == values_of(Loader(stack, 4, worker_kind="inline"))


def test_values_of_modules_that_a_module_uses_count(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "uses_settings.py").write_text(
        f"import {settings.__name__} as settings\n"
        "def scaled(value):\n    return settings.scaled(value)\n"
    )
    settings.scale = 3
    import uses_settings  # type: ignore[import-not-found]  # written above

    try:
        stack = numbers().map(uses_settings.scaled, column=0)
        assert values_of(in_workers(stack)) == [3.0 * number for number in range(1, 25)]
    finally:
        del sys.modules["uses_settings"]


def test_workers_that_stay_get_later_values_as_well(settings: Any) -> None:
    settings.scale = 2
    stack = numbers().map(settings.scaled, column=0)

    with in_workers(stack) as loader:
        first = values_of(loader)
        settings.scale = 3
        second = values_of(loader)

    assert (first[0], second[0]) == (2.0, 3.0)


def test_unsendable_values_are_an_error_naming_the_column(settings: Any) -> None:
    settings.kept = [object()]
    stack = numbers().map(settings.is_kept, column=0)

    with pytest.raises(
        WorkerDifferenceError,
        match=r"worker process \d .* makes another batch of step 0 of epoch 0 .* than this process: "
        r"column 0, row 0 is 0\.0 there, 1\.0 here",
    ):
        values_of(in_workers(stack))


def test_an_error_in_a_worker_alone_is_mended_likewise(settings: Any) -> None:
    settings.factor = 2.0  # None in workers

    received = values_of(in_workers(numbers().map(settings.times_factor, column=0)))

    assert received[0] == 2.0


def test_an_error_in_the_program_alone_is_told(settings: Any) -> None:
    settings.scale = 3

    with pytest.raises(
        WorkerDifferenceError,
        match=r"this process cannot make it, as sample 0 .* ValueError: three",
    ) as raised:
        values_of(in_workers(numbers().map(settings.fails_where_set, column=0)))

    assert isinstance(raised.value.__cause__, LoadingError)


def process_number(value: float) -> float:
    return float(os.getpid())


def test_comparing_can_be_turned_off() -> None:
    stack = numbers().map(process_number, column=0)

    with pytest.raises(WorkerDifferenceError, match="compare_workers=False"):
        values_of(in_workers(stack))
    received = values_of(in_workers(stack, compare_workers=False))

    assert float(os.getpid()) not in received


def draw(value: float) -> float:
    return random.random() + float(np.random.random())


def test_functions_that_draw_are_not_compared_and_leave_generators_alone() -> None:
    random.seed(5)
    np.random.seed(5)
    expected = draw(0)
    random.seed(5)
    np.random.seed(5)

    received = values_of(in_workers(numbers().map(draw, column=0)))

    assert len(set(received)) == 24
    assert draw(0) == expected


def test_a_column_beside_a_drawn_one_is_compared() -> None:
    def both(batch: Any) -> Any:
        return {"drawn": np.random.random(4), "pid": np.full(4, os.getpid())}

    with pytest.raises(WorkerDifferenceError, match="column 'pid', row 0"):
        list(in_workers(numbers(), transform=both))


def test_workers_do_not_work_ahead_while_the_first_batch_is_compared(tmp_path: Path) -> None:
    program_pid = os.getpid()
    n_made_before = tmp_path / "n_made_before"

    def note(batch: Any) -> Any:
        if os.getpid() == program_pid:
            time.sleep(0.3)  # as a batch that takes long to make
            n_made_before.write_text(str(len(list(tmp_path.glob("batch *")))))
        else:
            (tmp_path / f"batch {batch[0][0]}").touch()
        return batch

    loader = Loader(numbers(), 4, worker_kind="processes", workers=1, prefetch=4, transform=note)
    batches = list(loader)

    assert n_made_before.read_text() == "1"
    assert len(batches) == 6


# ----------------------------------------------------------------------------------- known settings


def third(value: float) -> str:
    return str(Decimal(1) / 3)


def overflow(value: float) -> float:
    return float(np.float32(1e38 * value) * np.float32(10))


def of_torch(batch: Any) -> Any:
    import torch

    ones = torch.ones(2, requires_grad=True) * 2
    return torch.tensor([1.5]).dtype is torch.float64, ones.requires_grad


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_the_context_of_decimal_counts_in_workers(kind: Any) -> None:
    with decimal.localcontext() as context:
        context.prec = 5
        received = values_of(Loader(numbers().map(third, column=0), 4, worker_kind=kind, workers=2))

    assert set(received) == {"0.33333"}


@pytest.mark.parametrize("kind", ["inline", "threads", "processes"])
def test_numpys_treatment_of_errors_counts_in_workers(kind: Any) -> None:
    stack = numbers().map(overflow, column=0)
    stack = stack[[0, 0, 0, 0, 0, 0, 0, 0, 5, 5]]  # not in the batch that is compared

    with np.errstate(over="raise"), pytest.raises(LoadingError, match="FloatingPointError"):
        values_of(Loader(stack, 4, worker_kind=kind, workers=None if kind == "inline" else 2))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_torchs_default_dtype_and_gradient_mode_count_in_workers(kind: Any) -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            received = list(Loader(numbers(), 4, worker_kind=kind, workers=2, transform=of_torch))
        again = list(Loader(numbers(), 4, worker_kind="threads", workers=2, transform=of_torch))
    finally:
        torch.set_default_dtype(torch.float32)

    assert set(received) == {(True, False)}
    assert set(again) == {(True, True)}


# ------------------------------------------------------------------------------------------ drawing


def draw_from_each(batch: Any) -> Any:
    import torch

    size = len(batch[0])
    return {
        "torch": torch.rand(size, dtype=torch.float64).numpy(),
        "numpy": np.random.random(size),
        "random": np.array([random.random() for _ in range(size)]),
    }


def test_workers_draw_other_numbers_in_each_process_and_epoch() -> None:
    loaders = [in_workers(numbers(), transform=draw_from_each) for _ in range(2)]
    # the fork server holds torch from now on
    list(Loader(numbers(), 4, worker_kind="processes", workers=1, transform=draw_from_each))
    drawn: dict[str, list[float]] = collections.defaultdict(list)

    for loader in loaders:
        with loader:
            for _ in range(sized(3, 20)):
                for batch in loader:
                    for name, column in batch.items():
                        drawn[name] += column.tolist()

    for name, values in drawn.items():
        assert len(set(values)) == len(values), name


def test_plain_values_are_those_of_modules_of_the_user(settings: Any) -> None:
    values = plain_values([settings.__name__, "numpy", "no.such.module"])

    assert values == {
        (settings.__name__, "scale"): 1,
        (settings.__name__, "table"): {"a": [1]},
        (settings.__name__, "factor"): None,
    }
