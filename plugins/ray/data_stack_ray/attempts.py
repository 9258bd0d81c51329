"""Attempts at tasks in a worker of Ray, which need not import the engine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from data_stack.engines.attempts import Failure, attempt


class Attempts:
    """An actor of Ray that attempts tasks, one after another."""

    def wait(self) -> None:
        """Return once Ray has placed and started this actor."""

    def attempt(
        self, packed_work: bytes, arguments: Sequence[Any]
    ) -> list[tuple[Any, Failure | None]]:
        """Try tasks; return the result or the failure of each.

        See :func:`data_stack.engines.attempts.attempt`.
        """
        # Standard output of the driver may be JSON for another program.
        with contextlib.redirect_stdout(sys.stderr):
            return [attempt(packed_work, argument) for argument in arguments]
