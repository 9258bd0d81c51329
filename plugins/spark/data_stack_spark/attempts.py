"""One attempt at a task in an executor of Spark.

This is a module of its own, as executors import it: importing Spark's Python API takes a second.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from data_stack.engines.attempts import attempt, pack


def attempt_by_spark(packed_work: Any, outcomes: Any, numbered_argument: tuple[int, Any]) -> None:
    """Try a task in an executor.

    Args:
        packed_work: Spark's broadcast of the packed function.
        outcomes: Spark's accumulator of a list. It gets the number of the task, and the packed
            outcome of the attempt: what :func:`data_stack.engines.attempts.attempt` returned.
        numbered_argument: the number and the argument of the task.
    """
    number, argument = numbered_argument
    # Standard output may be the connection to Spark.
    with contextlib.redirect_stdout(sys.stderr):
        outcome = attempt(packed_work.value, argument)
    # Spark's own pickler refuses classes of a notebook, so we pack the outcome before.
    outcomes.add([(number, pack(outcome))])
