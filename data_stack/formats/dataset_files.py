"""The files of one dataset at a place."""

from __future__ import annotations

from dataclasses import dataclass

from data_stack.io.location import Location


@dataclass(frozen=True)
class DatasetFiles:
    """The files of one dataset at a place: of the place itself, or of one of its splits.

    Attributes:
        kind: the name of their format.
        parts: the files or folders, whose samples follow one another.
        is_place: whether the dataset is the place itself, which then has no splits.
        is_split: whether the dataset is named as a split; otherwise it is a file or folder beside
            others, which has its own name.
    """

    kind: str
    parts: tuple[Location, ...]
    is_place: bool = False
    is_split: bool = False

    @property
    def name(self) -> str:
        """The name of the first file or folder, for messages."""
        first = self.parts[0].name
        n_others = len(self.parts) - 1
        if n_others == 0:
            return first
        return f"{first} and {n_others} more"
