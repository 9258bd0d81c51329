"""The index of the images of a folder."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.io.versions import SeenVersions


@dataclass(frozen=True)
class ImageIndex:
    """The images of a folder.

    Attributes:
        paths: the paths of the images relative to the folder, in the order of the samples.
        columns: the values of each field, except the images.
        class_names: the classes by label; empty with metadata.
    """

    paths: list[str]
    columns: Mapping[str, list[Any]]
    class_names: tuple[str, ...]

    @functools.cached_property
    def seen(self) -> SeenVersions:
        """The versions of the images as they were first read."""
        return SeenVersions(len(self.paths))

    def select(self, numbers: Sequence[int]) -> ImageIndex:
        """Return the index of some of the images, by their numbers."""
        return ImageIndex(
            [self.paths[number] for number in numbers],
            {name: [values[number] for number in numbers] for name, values in self.columns.items()},
            self.class_names,
        )
