"""What a copy between stores did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Copied", "CopyFault", "CopyReport", "Outcome"]

Outcome = Literal["copied", "present"]


@dataclass(frozen=True, slots=True)
class Copied:
    """A resource that is in the target now (after a dry run: that would be).

    Attributes:
        identifier: its name.
        size: length in bytes.
        outcome: ``"copied"``: read and sent; ``"present"``: it was there already.
    """

    identifier: str
    size: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CopyFault:
    """A resource or dataset that was not copied.

    Attributes:
        identifier: its name.
        problem: why, and what to do.
    """

    identifier: str
    problem: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy did, or (``dry_run``) would do.

    Attributes:
        source, target: the stores, without credentials.
        complete: names of the parcels (datasets) that are whole at the target, sorted.
        resources: what is at the target, sorted by identifier; seals (manifests) included.
        skipped: what is not to be copied, such as the unfinished work of somebody else.
        faults: what should have been copied and is not; their parcels have no seal.
        seconds: duration.
        dry_run: whether nothing was stored.
    """

    source: str
    target: str
    complete: tuple[str, ...]
    resources: tuple[Copied, ...]
    skipped: tuple[CopyFault, ...]
    faults: tuple[CopyFault, ...]
    seconds: float
    dry_run: bool

    def count(self, outcome: str) -> int:
        """How many resources came to this."""
        return sum(each.outcome == outcome for each in self.resources)

    def size(self, outcome: str) -> int:
        """Bytes of the resources that came to this."""
        return sum(each.size for each in self.resources if each.outcome == outcome)
