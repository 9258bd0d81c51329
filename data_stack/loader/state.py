"""The state of a loader, from which another loader continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from data_stack.exception import LoaderStateError
from data_stack.loader.cursors import Cursors
from data_stack.loader.plan import Plan, place_after
from data_stack.util.untrusted_text import describe_format

_VERSION: Final = 2

_VERSION_KEY: Final = "data_stack_loader"

#: The fields of a state that are integers.
_INTEGER_FIELDS: Final = ("seed", "epoch", "position", "first_epoch", "n_samples")

#: The other fields of each state.
_OTHER_FIELDS: Final = ("order", "fingerprint")

#: The fields that only some states have.
_OPTIONAL_FIELDS: Final = ("ranks", "damaged", "cursors")

#: What :attr:`LoaderState.ranks` has.
_FIELDS_OF_RANKS: Final = (
    "origin_epoch",
    "origin_position",
    "end_epoch",
    "n_batches",
    "batch_size",
    "world",
    "differ",
)


@dataclass(frozen=True, slots=True)
class LoaderState:
    """What the consumers of all ranks together have received.

    It is the same on any number of ranks and workers. With ``uneven="keep"`` ranks may be in
    different epochs after the same number of batches. The state then has what each of them needs to
    find its own place, see :attr:`ranks`.

    Attributes:
        seed: the seed of the order.
        epoch: the epoch of the next samples.
        position: the number of that epoch's samples that all ranks together have received.
        first_epoch: the epoch with which the iteration began.
        n_samples: the number of samples of ``epoch``.
        order: what identifies the order, see :meth:`data_stack.loader.orders.Order.content`.
        fingerprint: the fingerprint of the stack of iterators.
        ranks: None unless ``uneven="keep"``; otherwise how the ranks came to where they are:
            ``n_batches`` that each rank has received since all were in ``origin_epoch`` and
            ``origin_position``, with ``batch_size`` and ``world``, the ``end_epoch`` of the
            iteration, and whether they are in different places (``differ``, 0 or 1). A rank finds
            its place by :func:`data_stack.loader.plan.place_after`.
        damaged: None if no sample was found to be damaged; otherwise those that the rank which
            saved the state knows: for each class of error a list of positions, or of pairs of epoch
            and position, see :class:`~data_stack.loader.DamagedSample`.
        cursors: None unless a mix was changed in this epoch by ``continue_with``; otherwise how far
            its sources were read before: ``epoch``, and by their names ``consumed``, the numbers of
            samples, and ``fingerprints``.
    """

    seed: int
    epoch: int
    position: int
    first_epoch: int
    n_samples: int
    order: Mapping[str, Any]
    fingerprint: str
    ranks: Mapping[str, int] | None = None
    damaged: Mapping[str, Sequence[Any]] | None = None
    cursors: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON data, with a digest of all fields but those of None."""
        fields = asdict(self)
        for name in _OPTIONAL_FIELDS:
            if fields[name] is None:
                del fields[name]
        return add_digest({_VERSION_KEY: _VERSION, **fields})

    @classmethod
    def from_dict(cls, state: Any) -> LoaderState:
        """Read what :meth:`to_dict` returned, also after a round trip through JSON or a checkpoint.

        Other keys, which a program has added to the dict, are ignored.

        Raises:
            LoaderStateError: it is not a state, was changed, or belongs to another version of
                data_stack.
        """
        _check_form(state)
        loaded = cls._parse_if_intact(state)
        if loaded is None:
            raise LoaderStateError(
                "this state of a loader was changed or damaged: its digest does not match; "
                "load what state_dict() returned"
            )
        return loaded

    @classmethod
    def _parse_if_intact(cls, state: Mapping[str, Any]) -> LoaderState | None:
        """Return the state that fields describe; None if they were changed or are no JSON data."""
        try:
            if not _has_right_digest(state):
                return None
            # Some checkpoints make numpy's integers, or arrays, of numbers.
            integers = {name: int(state[name]) for name in _INTEGER_FIELDS}
            return cls(
                **integers,
                order=state["order"],
                fingerprint=state["fingerprint"],
                ranks=_parse_ranks(state),
                damaged=_parse_damaged(state),
                cursors=_parse_cursors(state),
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # no JSON data
            return None

    def check_is_of(self, own: LoaderState, iterator: object) -> None:
        """Check that this state belongs to the same samples and order as a loader.

        Args:
            own: the present state of the loader.
            iterator: the iterator of the loader, for the message.

        Raises:
            LoaderStateError: samples or order differ.
        """
        if self.fingerprint != own.fingerprint:
            raise LoaderStateError(
                "this state belongs to another dataset: its stack of iterators has the fingerprint "
                f"{self.fingerprint[:16]}… and {self.n_samples:,} samples, the stack of this "
                f"loader has {own.fingerprint[:16]}… and {own.n_samples:,} ({iterator!r}); make "
                "the loader from the same iterator (to change a mix, see Loader.continue_with), or "
                "start a new training"
            )
        if dict(self.order) != own.order:
            raise LoaderStateError(
                f"this state belongs to another order: {dict(self.order)}, but the loader has "
                f"{dict(own.order)}; pass the same shuffle=, redraw= and budget= to the loader"
            )


def add_digest(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a state with the SHA-256 of their canonical JSON.

    Numbers of numpy and tensors count as Python's.
    """
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), default=lambda value: value.tolist()
    )
    return {**fields, "digest": hashlib.sha256(text.encode()).hexdigest()}


def _check_form(state: Any) -> None:
    """Check that a value has the fields of a state of this version.

    Raises:
        LoaderStateError: it has not.
    """
    problem = f"expected what state_dict() of a loader returns, got {state!r:.120}"
    if not isinstance(state, Mapping):
        raise LoaderStateError(problem)
    version = state.get(_VERSION_KEY)
    if version not in (None, _VERSION):
        raise LoaderStateError(f"{problem}, which {describe_format(version, _VERSION)}")
    has_all_fields = {*_INTEGER_FIELDS, *_OTHER_FIELDS, "digest"} <= state.keys()
    if version is None or not has_all_fields:
        raise LoaderStateError(problem)


def _has_right_digest(state: Mapping[str, Any]) -> bool:
    """Return whether the digest of a state is that of its fields; other keys do not count."""
    names = [_VERSION_KEY, *_INTEGER_FIELDS, *_OTHER_FIELDS]
    names += [name for name in _OPTIONAL_FIELDS if name in state]
    expected = add_digest({name: state[name] for name in names})
    return bool(str(state["digest"]) == expected["digest"])


def _parse_ranks(state: Mapping[str, Any]) -> dict[str, int] | None:
    """Return :attr:`LoaderState.ranks` from the fields of a state."""
    if "ranks" not in state:
        return None
    return {name: int(state["ranks"][name]) for name in _FIELDS_OF_RANKS}


def _parse_damaged(state: Mapping[str, Any]) -> dict[str, list[Any]] | None:
    """Return :attr:`LoaderState.damaged` from the fields of a state."""
    if "damaged" not in state:
        return None
    damaged: dict[str, list[Any]] = {}
    for error, entries in state["damaged"].items():
        damaged[str(error)] = [_parse_key(entry) for entry in entries]
    return damaged


def _parse_key(entry: Any) -> int | list[int]:
    """Return a position, or a list of epoch and position."""
    # Some checkpoints make arrays of numbers.
    if np.ndim(entry) == 0:
        return int(entry)
    epoch, position = entry
    return [int(epoch), int(position)]


def _parse_cursors(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return :attr:`LoaderState.cursors` from the fields of a state."""
    if "cursors" not in state:
        return None
    return Cursors.from_dict(state["cursors"]).to_dict()


@dataclass(frozen=True, slots=True)
class PlaceInState:
    """Where a rank continues from a state.

    Attributes:
        epoch: the epoch of its next batch.
        position: the position of its next batch.
        last_epoch: the last epoch in which any rank is.
        origin: the last place, epoch and position, in which all ranks were.
        n_batches: the number of batches that each rank has received since then.
    """

    epoch: int
    position: int
    last_epoch: int
    origin: tuple[int, int]
    n_batches: int


def find_place(state: LoaderState, plan: Plan, plan_of: Callable[[int], Plan]) -> PlaceInState:
    """Find where a rank continues from a state.

    Args:
        state: the state.
        plan: the plan of the rank.
        plan_of: returns the plan of an epoch.

    Raises:
        LoaderStateError: the ranks of the state are in different places, and others than these.
    """
    # As a rule, all ranks are in one place.
    ranks = state.ranks
    if ranks is None or not ranks["differ"]:
        return PlaceInState(
            epoch=state.epoch,
            position=state.position,
            last_epoch=state.epoch,
            origin=(state.epoch, state.position),
            n_batches=0,
        )

    has_same_ranks = ranks["batch_size"] == plan.batch_size and ranks["world"] == plan.world
    if not has_same_ranks or plan.uneven != "keep":
        raise LoaderStateError(
            f"this state was saved when its {ranks['world']} ranks were in different epochs, as "
            f'uneven="keep" lets them in an iteration of several epochs. Load it with '
            f'uneven="keep", batch_size={ranks["batch_size"]} and {ranks["world"]} ranks, not '
            f'uneven="{plan.uneven}", batch_size={plan.batch_size} and {plan.world}; or save '
            f"states in iterations of one epoch (epochs=1)"
        )

    n_batches = ranks["n_batches"]
    end_epoch = ranks["end_epoch"]
    origin = (ranks["origin_epoch"], ranks["origin_position"])
    epoch, position = place_after(n_batches, origin, plan.rank, plan_of, end_epoch)
    # The last rank has the fewest steps in an epoch, so it is ahead of all others.
    last_epoch, _ = place_after(n_batches, origin, plan.world - 1, plan_of, end_epoch)
    return PlaceInState(epoch, position, last_epoch, origin, n_batches)
