"""How far the sources of a mix were read before the mix was changed in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator.layers.mix_in_stack import MixInStack
from data_stack.dataset.iterator.layers.mix_sources import MAX_CONSUMED
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.exception import ConfigError

Consumed = tuple[tuple[str, int], ...]
"""The name of each source that was read, and how many of its samples, sorted by name."""


@dataclass(frozen=True, slots=True)
class Cursors:
    """How many samples of each source were read in an epoch before its mix was changed.

    Sources that a later mix leaves out keep their cursors, in case they come back.

    Attributes:
        epoch: the epoch. In others the sources begin from their start.
        consumed: the number of samples of each source of which any was read.
        fingerprints: the fingerprint of each of these sources in the epoch, by name.
    """

    epoch: int
    consumed: Consumed
    fingerprints: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data, as the state of a loader has it."""
        return {
            "epoch": self.epoch,
            "consumed": dict(self.consumed),
            "fingerprints": dict(self.fingerprints),
        }

    @classmethod
    def of_state(cls, fields: Mapping[str, Any] | None) -> Cursors | None:
        """Return the cursors of a state that was checked; None if it has none."""
        return None if fields is None else cls.from_dict(fields)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Cursors:
        """Read what :meth:`to_dict` returned.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: it is something else.
        """
        consumed = {str(name): int(number) for name, number in fields["consumed"].items()}
        fingerprints = {str(name): str(text) for name, text in fields["fingerprints"].items()}
        are_in_range = all(0 < number <= MAX_CONSUMED for number in consumed.values())
        if consumed.keys() != fingerprints.keys() or not are_in_range:
            raise ValueError("no cursors")
        return cls(int(fields["epoch"]), tuple(sorted(consumed.items())), fingerprints)


def consumed_at(cursors: Cursors | None, epoch: int) -> Consumed | None:
    """Return what was read of an epoch before its mix was changed; None if nothing was."""
    if cursors is None or cursors.epoch != epoch:
        return None
    return cursors.consumed


def check_is_of_mix(cursors: Cursors | None, epoch: int) -> None:
    """Check that a mix that continues others was read in an epoch.

    Raises:
        ConfigError: the epoch is before that in which the mix took the place of another one.
    """
    if cursors is not None and epoch < cursors.epoch:
        raise ConfigError(
            f"this mix took the place of another one in epoch {cursors.epoch}, so epoch {epoch} "
            f"had samples of the mix before; ask a loader of that mix"
        )


def find_cursors(
    old: MixInStack,
    new: MixInStack,
    *,
    epoch: int,
    position: int,
    known: Cursors | None,
) -> Cursors | None:
    """Return where a mix continues that takes the place of another one.

    Args:
        old: the mix before, as it is in the epoch.
        new: the mix that continues, as it is in the epoch.
        epoch: the epoch.
        position: how many samples of the old mix were read.
        known: the cursors with which the old mix began; None if it began the epoch.

    Returns:
        The cursors; None if nothing was read in this epoch.

    Raises:
        ConfigError: the seeds of the mixes differ; the new mix continues others already; or a
            source is another one than before under its name.
    """
    _check_same_order(old, new)

    # How far each source was read, by this mix and all before it.
    consumed: dict[str, int] = {}
    fingerprints: dict[str, str] = {}
    if known is not None and known.epoch == epoch:
        consumed.update(known.consumed)
        fingerprints.update(known.fingerprints)
    consumed.update(old.mix.count_consumed(position))
    consumed = {name: number for name, number in consumed.items() if number > 0}
    for name, source in old.sources.items():
        if name in consumed and name not in fingerprints:
            fingerprints[name] = fingerprint(source)

    # A source that goes on must be the same.
    for name, source in new.sources.items():
        if name not in consumed or source is old.sources.get(name):
            continue
        if fingerprint(source) != fingerprints[name]:
            raise ConfigError(
                f"the source {name!r} has other samples than before, of which {consumed[name]:,} "
                f"were read: {source!r}; give it another name if it is another source"
            )
    if not consumed:
        return None
    return Cursors(epoch, tuple(sorted(consumed.items())), fingerprints)


def _check_same_order(old: MixInStack, new: MixInStack) -> None:
    """Check that sources have the same order in two mixes.

    Raises:
        ConfigError: they have not, or the new mix continues others already.
    """
    old_draw = old.mix._draw
    new_draw = new.mix._draw
    if old_draw.key != new_draw.key:
        raise ConfigError(
            f"the mix has the seed {old_draw.seed} and the epoch {old_draw.epoch}, and the one "
            f"that is to continue it the seed {new_draw.seed} and the epoch {new_draw.epoch}; a "
            f"source goes on where it was only with the same seed and epoch"
        )
    if "consumed" in new.mix._arguments():
        raise ConfigError(
            "the mix that is to continue has consumed=, which the loader counts: leave it out"
        )
