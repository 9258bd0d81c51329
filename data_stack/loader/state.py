"""What is saved of a loader: a few integers that mean the same on any number of ranks and workers."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from data_stack.exception import LoaderStateError

__all__ = ["LoaderState", "check_seal", "seal"]

_VERSION = 2


@dataclass(frozen=True, slots=True)
class LoaderState:
    """What the consumer of a loader has received so far, as counted over all ranks.

    Attributes:
        seed: that of the order.
        epoch: the epoch whose samples come next.
        position: how many samples of it all ranks together have received.
        first_epoch: the epoch with which the iteration began.
        n_samples: of that epoch.
        order: what decides the order, see :meth:`data_stack.loader.orders.Order.content`.
        fingerprint: that of the stack of iterators.
    """

    seed: int
    epoch: int
    position: int
    first_epoch: int
    n_samples: int
    order: Mapping[str, Any]
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, with a digest of all of it."""
        return seal({"data_stack_loader": _VERSION, **asdict(self)})

    @classmethod
    def from_dict(cls, state: Any) -> LoaderState:
        """What :meth:`to_dict` gave, also if it went through JSON or a checkpoint.

        Raises:
            LoaderStateError: that is no such data, was changed, or is of another version of data_stack.
        """
        if not isinstance(state, Mapping) or "data_stack_loader" not in state:
            raise LoaderStateError(f"this is not the state of a loader: {state!r:.120}; state_dict() gives one")
        if not _is_equal(state["data_stack_loader"], _VERSION):
            raise LoaderStateError(
                f"this state of a loader is of version {state['data_stack_loader']!r:.20}, known is {_VERSION}: "
                f"read it with the data_stack that wrote it"
            )
        names = [*(field.name for field in fields(cls)), "digest"]
        if missing := [name for name in names if name not in state]:
            raise LoaderStateError(f"this state of a loader lacks {', '.join(missing)}; it must be what state_dict() gave")
        values = {name: state[name] for name in names}
        for name in ("seed", "epoch", "position", "first_epoch", "n_samples"):
            values[name] = _integer(name, values[name])
        if not isinstance(values["order"], Mapping) or not isinstance(values["fingerprint"], str):
            raise LoaderStateError("order or fingerprint in this state of a loader are not what state_dict() gave")
        check_seal({"data_stack_loader": _VERSION, **values}, "a loader")
        del values["digest"]
        if values["position"] > values["n_samples"] or values["first_epoch"] > values["epoch"]:
            raise LoaderStateError(
                "this state of a loader contradicts itself: it is behind the end of its epoch, or before its first one"
            )
        return cls(**values)

    def check_is_of(self, own: LoaderState, iterator: object) -> None:
        """Refuse a state of other samples or of another order.

        Args:
            own: the present state of the loader that is to go on from this one.
            iterator: what that loader reads, for the message.

        Raises:
            LoaderStateError: it is of others.
        """
        if self.fingerprint != own.fingerprint:
            raise LoaderStateError(
                f"this state is of another dataset: its stack of iterators has the fingerprint {self.fingerprint[:16]}… and "
                f"{self.n_samples:,} samples, that of this loader {own.fingerprint[:16]}… and {own.n_samples:,} "
                f"({iterator!r}); make the loader of the iterator that it was saved with, or begin anew"
            )
        if not _is_equal(dict(self.order), dict(own.order)):
            raise LoaderStateError(
                f"this state is of another order: {dict(self.order)}, that of this loader is {dict(own.order)}; "
                f"give the loader the same shuffle= and redraw="
            )


def seal(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state, and a digest of them, so that no change goes unnoticed."""
    return {**fields, "digest": _digest(fields)}


def check_seal(state: Mapping[str, Any], what: str) -> None:
    """Raise LoaderStateError if the fields of a state are not those that :func:`seal` saw; ``what`` it is the state of."""
    if not _is_equal(state.get("digest"), _digest({name: value for name, value in state.items() if name != "digest"})):
        raise LoaderStateError(
            f"this state of {what} was changed or damaged: its fields do not have the digest that it states. Load a state as "
            f"state_dict() gave it"
        )


def _digest(fields: Mapping[str, Any]) -> str | None:
    """SHA-256 of the canonical JSON of fields; numbers that a checkpoint made numpy's or tensors count as Python's."""
    try:
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=lambda value: value.tolist())
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _is_equal(value: Any, expected: Any) -> bool:
    try:
        return bool(value == expected)
    except (ValueError, RuntimeError):  # numpy's and torch's of several elements, which state_dict() never gave
        return False


def _integer(name: str, value: Any) -> int:
    """``value`` as an int; some checkpoints make numpy's integers, or arrays, of numbers."""
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (name != "seed" and number < 0):
        kind = "integer" if name == "seed" else "count"
        raise LoaderStateError(f"{name} in this state of a loader is {value!r:.40}, which is no {kind}")
    return number
