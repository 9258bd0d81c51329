"""One attempt at a task in an executor; a module of its own, because importing Spark's Python API takes a second."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from data_stack.engines.attempts import attempt, pack


def attempt_by_spark(sent: Any, ends: Any, numbered: tuple[int, Any]) -> None:
    """Try a task in an executor.

    Args:
        sent: Spark's broadcast of the packed function.
        ends: Spark's accumulator of a list, which gets the number of the task and its packed end.
        numbered: number and argument of the task.
    """
    number, argument = numbered
    with contextlib.redirect_stdout(sys.stderr):  # standard output may be the connection to Spark
        end = attempt(sent.value, argument)
    ends.add([(number, pack(end))])  # Spark's own pickler refuses classes of a notebook
