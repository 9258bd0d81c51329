"""The saved state of a loader."""

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
    """What the consumers of all ranks together have received: the same on any number of ranks and workers.

    Attributes:
        seed: of the order.
        epoch: of the next samples.
        position: number of that epoch's samples that all ranks together have received.
        first_epoch: the epoch with which the iteration began.
        n_samples: of ``epoch``.
        order: what identifies the order, see :meth:`data_stack.loader.orders.Order.content`.
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
        """The state as JSON data, with a digest of all fields."""
        return seal({"data_stack_loader": _VERSION, **asdict(self)})

    @classmethod
    def from_dict(cls, state: Any) -> LoaderState:
        """Read what :meth:`to_dict` returned, also after a round trip through JSON or a checkpoint.

        Raises:
            LoaderStateError: it is not a state, was changed, or belongs to another version of data_stack.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(state, Mapping) or state.get("data_stack_loader") != _VERSION or not {*names, "digest"} <= state.keys():
            raise LoaderStateError(
                f"expected the state of a loader of version {_VERSION}, as state_dict() of this data_stack returns it, "
                f"got {state!r:.120}"
            )
        try:
            digest = _digest({name: state[name] for name in ["data_stack_loader", *names]})
        except (AttributeError, TypeError, ValueError, RecursionError):  # not JSON data
            digest = ""
        if str(state["digest"]) != digest:
            raise LoaderStateError(
                "this state of a loader was changed or damaged: its digest does not match; load what state_dict() returned"
            )
        # some checkpoints make numpy's integers, or arrays, of numbers
        numbers: dict[str, Any] = {name: int(state[name]) for name in names if name not in ("order", "fingerprint")}
        return cls(order=state["order"], fingerprint=state["fingerprint"], **numbers)

    def check_is_of(self, own: LoaderState, iterator: object) -> None:
        """Check that this state belongs to the same samples and order as a loader.

        Args:
            own: the present state of the loader.
            iterator: the loader's, for the message.

        Raises:
            LoaderStateError: samples or order differ.
        """
        if self.fingerprint != own.fingerprint:
            raise LoaderStateError(
                f"this state belongs to another dataset: its stack of iterators has the fingerprint {self.fingerprint[:16]}… and "
                f"{self.n_samples:,} samples, the stack of this loader has {own.fingerprint[:16]}… and {own.n_samples:,} "
                f"({iterator!r}); make the loader from the same iterator, or start a new training"
            )
        if dict(self.order) != own.order:
            raise LoaderStateError(
                f"this state belongs to another order: {dict(self.order)}, but the loader has {dict(own.order)}; "
                f"pass the same shuffle= and redraw= to the loader"
            )


def seal(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state with their digest."""
    return {**fields, "digest": _digest(fields)}


def _digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of fields; numbers of numpy and tensors, which some checkpoints make, count as Python's."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=lambda value: value.tolist())
    return hashlib.sha256(text.encode()).hexdigest()
