"""What is saved of a loader: a few integers that mean the same on any number of ranks and workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from data_stack.exception import LoaderStateError

_VERSION = 2


@dataclass(frozen=True, slots=True)
class LoaderState:
    """What the consumers of all ranks together have received.

    Attributes:
        seed: of the order.
        epoch: of the next samples.
        position: how many samples of that epoch all ranks together have received.
        first_epoch: the epoch with which the iteration began.
        n_samples: of ``epoch``.
        order: what decides the order, see :meth:`data_stack.loader.orders.Order.content`.
        fingerprint: of the stack of iterators.
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
        """Read what :meth:`to_dict` gave, also after it went through JSON or a checkpoint.

        Raises:
            LoaderStateError: it is no such data, was changed, or is of another version of data_stack.
        """
        if not isinstance(state, Mapping) or "data_stack_loader" not in state:
            raise LoaderStateError(f"this is not the state of a loader: {state!r:.120}; state_dict() gives one")
        if state["data_stack_loader"] != _VERSION:
            raise LoaderStateError(
                f"this state of a loader is of version {state['data_stack_loader']!r:.20}, known is {_VERSION}: "
                f"read it with the data_stack that wrote it"
            )
        names = [field.name for field in fields(cls)]
        if missing := [name for name in [*names, "digest"] if name not in state]:
            raise LoaderStateError(f"this state of a loader lacks {', '.join(missing)}; it must be what state_dict() gave")
        check_seal({name: state[name] for name in ["data_stack_loader", *names, "digest"]}, "a loader")
        # some checkpoints make numpy's integers, or arrays, of numbers
        numbers: dict[str, Any] = {name: int(state[name]) for name in names if name not in ("order", "fingerprint")}
        return cls(order=state["order"], fingerprint=state["fingerprint"], **numbers)

    def check_is_of(self, own: LoaderState, iterator: object) -> None:
        """Check that this state is of the same samples and order as a loader.

        Args:
            own: the present state of that loader.
            iterator: what that loader reads, for the message.

        Raises:
            LoaderStateError: samples or order differ.
        """
        if self.fingerprint != own.fingerprint:
            raise LoaderStateError(
                f"this state is of another dataset: its stack of iterators has the fingerprint {self.fingerprint[:16]}… and "
                f"{self.n_samples:,} samples, that of this loader {own.fingerprint[:16]}… and {own.n_samples:,} "
                f"({iterator!r}); make the loader of the iterator that it was saved with, or begin anew"
            )
        if dict(self.order) != own.order:
            raise LoaderStateError(
                f"this state is of another order: {dict(self.order)}, that of this loader is {dict(own.order)}; "
                f"give the loader the same shuffle= and redraw="
            )


def seal(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state with a digest of them, which :func:`check_seal` checks."""
    return {**fields, "digest": _digest(fields)}


def check_seal(state: Mapping[str, Any], what: str) -> None:
    """Compare the fields of a state with its digest.

    Args:
        state: of :func:`seal`.
        what: whose state it is, for the message.

    Raises:
        LoaderStateError: a field was changed or damaged.
    """
    try:
        digest = _digest({name: value for name, value in state.items() if name != "digest"})
    except (AttributeError, TypeError, ValueError, RecursionError):  # no JSON data
        digest = ""
    if str(state.get("digest")) != digest:
        raise LoaderStateError(
            f"this state of {what} was changed or damaged: its fields do not match its digest; load what state_dict() gave"
        )


def _digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of fields; numbers that a checkpoint made numpy's or tensors count as Python's."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=lambda value: value.tolist())
    return hashlib.sha256(text.encode()).hexdigest()
