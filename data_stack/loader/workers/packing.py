"""Packs what worker processes need to make batches."""

from __future__ import annotations

import sys

from data_stack.exception import ConfigError
from data_stack.loader.batch_maker import BatchMaker
from data_stack.processes.channel import Payload
from data_stack.processes.pickling import dump
from data_stack.util.interrupts import is_from_signal_handler


def pack_maker(maker: BatchMaker, max_bytes: float) -> Payload:
    """Return what workers need to make batches.

    Raises:
        ConfigError: a part cannot be pickled; the message names it.
        OSError: memory is exhausted, or the arrays are larger than ``max_bytes``.
    """
    try:
        return Payload((maker, list(sys.argv)), max_bytes)
    except OSError:
        raise
    except Exception as error:  # an object cannot be pickled
        if is_from_signal_handler(error):
            raise
        raise ConfigError(
            f"{', '.join(_parts_that_do_not_pickle(maker))} cannot be sent to worker processes: "
            f"{type(error).__name__}: {error}. Use worker_kind='threads', or open files and "
            "connections when they are first used"
        ) from error


def _parts_that_do_not_pickle(maker: BatchMaker) -> list[str]:
    """Return a description of each part of a maker that cannot be pickled."""
    parts = {
        "the iterator": maker.stacks.iterator,
        "collate": maker.collate,
        "the transform": maker.transform,
    }
    culprits = []
    for name, part in parts.items():
        try:
            dump(part)
        except Exception:  # noqa: BLE001  # any error of an object
            culprits.append(f"{name} {part!r:.200}")
    return culprits
