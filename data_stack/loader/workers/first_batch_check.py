"""Compares the first batch of worker processes with that of this process."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.exception import LoadingError
from data_stack.loader.batch_maker import BatchMaker, MadeBatch
from data_stack.loader.comparison import describe_value, find_column_differences, find_difference
from data_stack.loader.job import Job
from data_stack.loader.workers.messages import ValueName
from data_stack.loader.workers.module_values import plain_values
from data_stack.processes.pickling import dump, imported_modules, load
from data_stack.processes.seeding import loaded_torch
from data_stack.util.logger import logger

#: A batch is compared again in a later iteration if that takes less than this part of the time.
_MAX_COMPARING_SHARE = 0.02

_MAX_NAMED_VALUES = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the batch of a worker differs from the batch that this process makes.

    Attributes:
        difference: what differs, in words; None if the batches are the same, or cannot be compared.
        error: why this process could not make the batch, which is then the difference; None if it
            made the batch.
    """

    difference: str | None
    error: LoadingError | None = None


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A value of a module that differs between this process and a worker.

    Attributes:
        here: the value in this process.
        there: the value in the worker.
    """

    here: Any
    there: Any


class FirstBatchCheck:
    """Decides whether the first batch of an iteration is compared, and remembers what was found.

    A worker process does not have what the program sets at run time. If its first batch differs
    from that of this process, the workers get the plain values that the modules of the functions
    have here and not there, and make all their batches again.

    Args:
        maker: makes the batches, here and in the workers.
        is_enabled: whether to compare at all.
    """

    #: The number of the job whose batch is compared; None if none is.
    job_number: int | None
    #: Makes the batches.
    _maker: BatchMaker
    #: Whether to compare at all.
    _is_enabled: bool
    #: When a batch was last found to be the same, in seconds of the monotonic clock; None: never.
    _compared_at: float | None
    #: How long that comparison took.
    _comparing_seconds: float
    #: Values of modules that the workers get when an epoch begins, as they had others.
    _handed_over: set[ValueName]

    def __init__(self, maker: BatchMaker, *, is_enabled: bool) -> None:
        self.job_number = None
        self._maker = maker
        self._is_enabled = is_enabled
        self._compared_at = None
        self._comparing_seconds = 0.0
        self._handed_over = set()

    @property
    def has_passed(self) -> bool:
        """Whether the batch that was compared last was the same."""
        return self._compared_at is not None

    def is_due(self) -> bool:
        """Return whether the first batch of an iteration that begins now should be compared.

        It is if the comparison takes a small part of the time since the last one.
        """
        if not self._is_enabled:
            return False
        if self._compared_at is None:
            return True
        seconds = time.monotonic() - self._compared_at
        return self._comparing_seconds < _MAX_COMPARING_SHARE * seconds

    def compare(self, job: Job, made: MadeBatch | None) -> Verdict:
        """Make a batch in this process, and compare it with that of a worker.

        This process makes the batch after the worker, so that what kills or hangs a worker does
        not happen here first.

        Args:
            job: the job.
            made: the worker's batch; None if the worker could not make it.
        """
        began_at = time.monotonic()
        batch = None if made is None else made.batch
        verdict = compare_with_own(self._maker, job, batch)
        if verdict.difference is None:
            self._compared_at = time.monotonic()
            self._comparing_seconds = self._compared_at - began_at
        else:
            self._compared_at = None
        return verdict

    def values_here(self) -> dict[ValueName, Any]:
        """Return the plain values of the modules that the functions use, in this process."""
        return plain_values(imported_modules(self._maker))

    def hand_over(self, differences: Mapping[ValueName, ValueDifference]) -> bool:
        """Let the workers get the values that differ when an epoch begins.

        Returns:
            Whether they did not get all of them before.
        """
        if differences.keys() <= self._handed_over:
            return False
        self._handed_over |= differences.keys()
        logger.info(
            "worker processes get values that the program has set in modules: %s",
            _list_values(differences),
        )
        return True

    def values_to_hand_over(self) -> dict[ValueName, Any]:
        """Return the present values of what the workers get when an epoch begins."""
        modules = {module_name for module_name, _ in self._handed_over}
        values = plain_values(modules, with_others=False)
        return {name: value for name, value in values.items() if name in self._handed_over}


def compare_with_own(maker: BatchMaker, job: Job, batch: Any) -> Verdict:
    """Make a batch in this process, and compare it with the one that a worker process made.

    Columns that differ in this process as well if it makes them twice are drawn by themselves, and
    not compared. The global generators of random numbers stay as they are.

    Args:
        maker: makes the batch.
        job: the job.
        batch: the batch of the worker; None if it could not make the batch.
    """
    with _generators_kept():
        try:
            own_batch = maker.make(job).batch
        except LoadingError as error:
            if batch is None:
                return Verdict(None)
            return Verdict(f"this process cannot make it, as {error.problem}: {error.cause}", error)
        if batch is None:
            return Verdict("the worker cannot make it")
        differences = find_column_differences(_as_received(own_batch), batch)
        if not differences:
            return Verdict(None)

        try:
            second_batch = maker.make(job).batch
        except LoadingError:  # the function does not do the same twice
            return Verdict(None)
        own_differences = find_column_differences(
            _as_received(own_batch), _as_received(second_batch)
        )

    for key, difference in differences.items():
        if key not in own_differences:
            return Verdict(f"{difference.place} is {difference.other} there, {difference.one} here")
    return Verdict(None)


def differing_values(
    here: Mapping[ValueName, Any], there: Mapping[ValueName, Any]
) -> dict[ValueName, ValueDifference]:
    """Return the values of modules that a worker has as well, and that differ there."""
    differences = {}
    for name, value in here.items():
        if name in there and find_difference(value, there[name]) is not None:
            differences[name] = ValueDifference(value, there[name])
    return differences


def advise(differences: Mapping[ValueName, ValueDifference]) -> str:
    """Return what may be behind a difference, and what to do, for a message."""
    cause = "A worker process does not have what the program sets at run time"
    if differences:
        cause = f"{cause}: {_list_values(differences)}"
    return (
        f"{cause}. Pass such values to functions as arguments (functools.partial), keep what "
        "depends on the order of sets or on the process out of batches, or use "
        "worker_kind='threads'; compare_workers=False accepts the batches of the workers"
    )


def _list_values(differences: Mapping[ValueName, ValueDifference]) -> str:
    texts = []
    for (module_name, name), difference in differences.items():
        here = describe_value(difference.here)
        there = describe_value(difference.there)
        texts.append(f"{module_name}.{name} is {here} here, {there} there")
    return "; ".join(texts[:_MAX_NAMED_VALUES])


def _as_received(batch: Any) -> Any:
    """Return a batch as it would come from a worker, or as it is if it cannot be sent."""
    try:
        pickled = dump(batch)
        return load(pickled.content, pickled.buffers)
    except Exception:  # noqa: BLE001  # any error of an object
        return batch


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """Leave the global generators of ``random``, numpy and torch as they were."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    torch = loaded_torch()
    torch_state = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if torch is not None:
            torch.set_rng_state(torch_state)
