"""The result of a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from data_stack.io.integrity import Fault

#: What a copy did with a resource.
Outcome = Literal["copied", "present"]


@dataclass(frozen=True, slots=True)
class Copied:
    """A resource that is in the target now, or would be after a dry run.

    Attributes:
        identifier: its name.
        size: length in bytes.
        outcome: ``"copied"``, or ``"present"`` if it was there before.
    """

    identifier: str
    size: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of a copy, or of a dry run.

    Attributes:
        source: the store that was read, without credentials.
        target: the store that was written, without credentials.
        complete: the names of the groups (datasets) that are complete at the target, sorted.
        resources: resources at the target, sorted by identifier; manifests included.
        skipped: resources that are not copied on purpose, such as unfinished datasets.
        faults: resources that could not be copied; their groups have no manifest at the target.
        seconds: how long the copy took.
        dry_run: whether nothing was stored.
    """

    source: str
    target: str
    complete: tuple[str, ...]
    resources: tuple[Copied, ...]
    skipped: tuple[Fault, ...]
    faults: tuple[Fault, ...]
    seconds: float
    dry_run: bool

    def count(self, outcome: Outcome) -> int:
        """Return the number of resources with this outcome."""
        return len([resource for resource in self.resources if resource.outcome == outcome])

    def size(self, outcome: Outcome) -> int:
        """Return how many bytes the resources with this outcome have."""
        return sum(resource.size for resource in self.resources if resource.outcome == outcome)
