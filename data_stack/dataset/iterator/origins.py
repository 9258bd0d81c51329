"""The places in sources that samples are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Origin:
    """A sample of a source, or a part of one.

    Attributes:
        position: the position of the sample in its source, from 0.
        source: the name of the source: its name in a mix, or its number where iterators without
            names were mixed, combined, interleaved or zipped; ``"web/1"`` where one such layer lies
            on another. None if there is one source only.
        location: where the source stores the sample, ``"row 3 of row group 0 of a.parquet"``; None
            if the source does not say, as with arrays in memory.
        part: what was taken of the sample, such as ``"tokens 0:512"``; None for all of it.
    """

    position: int
    source: str | None = None
    location: str | None = None
    part: str | None = None

    def in_source(self, name: str) -> Origin:
        """Return this origin, as that of one of several sources."""
        if self.source is None:
            return replace(self, source=name)
        return replace(self, source=f"{name}/{self.source}")

    def of_part(self, part: str) -> Origin:
        """Return the origin of a part of what this is the origin of."""
        if self.part is None:
            return replace(self, part=part)
        return replace(self, part=f"{part} of {self.part}")

    def __str__(self) -> str:
        text = self.location
        if text is None:
            text = f"sample {self.position}"
        if self.source is not None:
            text = f"{self.source}: {text}"
        if self.part is not None:
            text = f"{text}, {self.part}"
        return text
