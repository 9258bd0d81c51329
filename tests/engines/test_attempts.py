"""An attempt at a task returns its failure, whatever the task raises."""

from __future__ import annotations

from data_stack.engines.attempts import attempt, pack


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


def raise_unprintable(argument: object) -> None:
    raise UnprintableError


class Unpicklable:
    def __reduce__(self) -> str:
        raise UnprintableError


def return_unpicklable(argument: object) -> object:
    return Unpicklable()


def test_an_exception_without_a_message_is_a_failure() -> None:
    result, failure = attempt(pack(raise_unprintable), 1)

    assert result is None
    assert failure is not None
    assert "raised UnprintableError: (its message could not be formatted)" in failure.problem


def test_a_result_that_refuses_pickling_is_a_failure() -> None:
    result, failure = attempt(pack(return_unpicklable), 1)

    assert result is None
    assert failure is not None
    assert "cannot be pickled: UnprintableError" in failure.problem
