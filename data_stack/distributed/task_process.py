"""The program of a process that attempts tasks until the parent closes the channel."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from data_stack.distributed.attempts import Failure, attempt
from data_stack.loader.workers.channel import Parcel
from data_stack.loader.workers.child_process import begin_as_child

__all__ = ["main"]


def main(descriptor: int, parent: int, is_of_main_thread: int) -> NoReturn:
    """Attempt tasks for the process that started this one, see :func:`begin_as_child`."""
    channel = begin_as_child(descriptor, parent, is_of_main_thread)
    while (message := channel.receive()) is not None:
        (sys.argv[:],), parcel = message
        if parcel is None:
            continue
        end = attempt(*parcel.open())
        try:
            answer = Parcel.of(end)
        except Exception as error:  # noqa: BLE001  # an object cannot be pickled
            answer = Parcel.of((None, Failure(f"returned a result that cannot be pickled: {type(error).__name__}: {error}")))
        channel.send((), answer)
    os._exit(0)  # threads of user code are not waited for
