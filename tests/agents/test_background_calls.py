"""Calls that take too long, or that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from process_harness import PATIENCE_SECONDS

from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator
from data_stack.agents.background_calls import MAX_CALLS, BackgroundCalls
from data_stack.agents.limits import CallTimeoutError, Deadline, Limits
from data_stack.agents.permissions import Permissions
from data_stack.agents.stores import open_stores
from data_stack.agents.tools import DatasetTools
from data_stack.repository.repository import default_repository


class Waiting(DatasetFactory):
    """Opens when the test lets it, and tells when it begins."""

    card = DatasetCard("waiting", "1.0")
    splits = ("all",)
    n_opening: ClassVar[threading.Semaphore]
    may_open: ClassVar[threading.Event]
    n_opened: ClassVar[threading.Semaphore]

    def open(self, split: str, prepared: Any) -> Any:
        self.n_opening.release()
        self.may_open.wait(120)
        self.n_opened.release()
        return SequenceDatasetIterator([[1, 2, 3]])


@pytest.fixture
def waiting() -> Iterator[type[Waiting]]:
    """The registered dataset, which opens at the end of the test at the latest."""
    Waiting.n_opening = threading.Semaphore(0)
    Waiting.may_open = threading.Event()
    Waiting.n_opened = threading.Semaphore(0)
    default_repository().register("waiting", Waiting)
    yield Waiting
    Waiting.may_open.set()
    default_repository().remove("waiting")


def make_calls(folder: Path, max_seconds: float) -> BackgroundCalls:
    limits = Limits(max_seconds=max_seconds)
    tools = DatasetTools(open_stores(str(folder), []), Permissions(), limits)
    return BackgroundCalls(tools, limits)


def test_a_call_that_takes_too_long_is_an_error(waiting: type[Waiting], tmp_path: Path) -> None:
    calls = make_calls(tmp_path, max_seconds=0.1)

    result = asyncio.run(calls.call("sample", {"dataset": "waiting"}))

    assert result.is_error
    assert "took longer than 0.1 seconds" in result.text


def test_only_some_calls_run_at_a_time(waiting: type[Waiting], tmp_path: Path) -> None:
    calls = make_calls(tmp_path, max_seconds=120)

    async def call_too_many() -> list[Any]:
        tasks = [
            asyncio.create_task(calls.call("sample", {"dataset": "waiting"}))
            for _ in range(MAX_CALLS)
        ]
        await asyncio.sleep(0.1)
        refused = await calls.call("list_datasets", {})
        waiting.may_open.set()
        return [refused, *(await asyncio.gather(*tasks)), await calls.call("list_datasets", {})]

    refused, *finished = asyncio.run(call_too_many())

    assert refused.is_error
    assert f"{MAX_CALLS} calls are running already" in refused.text
    assert [result.is_error for result in finished] == [False] * (MAX_CALLS + 1)


def test_a_cancelled_call_ends_at_its_next_sample(waiting: type[Waiting], tmp_path: Path) -> None:
    calls = make_calls(tmp_path, max_seconds=120)

    async def cancel() -> None:
        task = asyncio.create_task(calls.call("statistics", {"dataset": "waiting"}))
        assert await asyncio.to_thread(waiting.n_opening.acquire, timeout=60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        waiting.may_open.set()
        assert waiting.n_opened.acquire(timeout=60)
        # All threads are free again when the cancelled one has ended.
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            results = await asyncio.gather(
                *(calls.call("list_datasets", {}) for _ in range(MAX_CALLS))
            )
            if not any(result.is_error for result in results):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the thread of a cancelled call goes on")

    asyncio.run(cancel())


def test_a_deadline_ends_a_call_in_time_or_given_up() -> None:
    now = 0.0
    deadline = Deadline(5, clock=lambda: now)
    deadline.check()

    now = 5.1
    with pytest.raises(CallTimeoutError, match="longer than 5 seconds"):
        deadline.check()

    given_up = Deadline(5)
    given_up.give_up()
    with pytest.raises(CallTimeoutError, match="nobody waits"):
        given_up.check()
