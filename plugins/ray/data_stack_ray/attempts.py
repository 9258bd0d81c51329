"""Attempts at tasks in a worker of Ray, which need not import the engine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from data_stack.engines.attempts import attempt


class Attempts:
    """An actor of Ray that attempts tasks, one after another."""

    def wait(self) -> None:
        """Return once Ray has placed and started this actor."""

    def attempt(self, packed: bytes, arguments: Sequence[Any]) -> list[Any]:
        """Try tasks; see :func:`data_stack.engines.attempts.attempt`."""
        with contextlib.redirect_stdout(
            sys.stderr
        ):  # standard output of the driver may be JSON for another program
            return [attempt(packed, argument) for argument in arguments]
