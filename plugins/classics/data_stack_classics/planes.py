"""Datasets in the binary files of CIFAR: records of labels and of an image, in a tar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack import PreparedResources, Resources
from data_stack.io.archives import Archive, open_archive
from data_stack_classics.arrays import ArraysFactory, read_rows

#: An image of a record: red, green and blue, each of 32 × 32 bytes.
_PLANES_SHAPE = (3, 32, 32)
_PLANES_BYTES = 3 * 32 * 32


class PlanesFactory(ArraysFactory):
    """Samples are ``(image, label, tag)``: uint8 of shape ``(32, 32, 3)`` and ints.

    Attributes:
        folder: folder in the archive.
        files: files of each split, in order, with equal numbers of samples.
        bytes_before: columns of the bytes before the planes of an image.
    """

    folder: ClassVar[str]
    files: ClassVar[Mapping[str, Sequence[str]]]
    bytes_before: ClassVar[Sequence[str]] = ("label",)

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store images block by block as (height, width, channels), and labels as int64."""
        with raw["raw/archive.tar.gz"] as resource, open_archive(resource) as archive:
            for split in prepared.steps(self.splits):
                self._write_split(archive, split, prepared)

    def _write_split(self, archive: Archive, split: str, prepared: PreparedResources) -> None:
        """Write the images and the labels of a split together, in one pass over its files."""
        n_labels = len(self.bytes_before)
        source = f"{self.folder}/{self.files[split][-1]}"
        with contextlib.ExitStack() as stack:
            images = stack.enter_context(self.open_column(prepared, split, "image", source))
            label_columns = [
                stack.enter_context(self.open_column(prepared, split, column, source))
                for column in self.bytes_before
            ]
            for records in self._iterate_records(archive, split):
                planes = records[:, n_labels:].reshape(-1, *_PLANES_SHAPE)
                images.append(planes.transpose(0, 2, 3, 1))
                for position, labels in enumerate(label_columns):
                    labels.append(records[:, position].astype(np.int64))

    def _iterate_records(self, archive: Archive, split: str) -> Iterator[npt.NDArray[Any]]:
        """Iterate over blocks of the records of a split, a row each."""
        files = self.files[split]
        n_records_of_file = self.n_samples[split] // len(files)
        record_bytes = len(self.bytes_before) + _PLANES_BYTES
        for file in files:
            name = f"{self.folder}/{file}"
            with archive.open(name) as stream:
                yield from read_rows(stream, name, (n_records_of_file, record_bytes), np.uint8)
