"""The base class of datasets in the binary files of CIFAR."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack import PreparedResources, Resources
from data_stack.io.archives import Archive, open_archive
from data_stack_classics.arrays import ArraysFactory, read_rows

#: The shape of a stored image: the planes red, green and blue, each of 32 × 32 bytes.
_PLANES_SHAPE = (3, 32, 32)
_PLANES_BYTES = math.prod(_PLANES_SHAPE)


class PlanesFactory(ArraysFactory):
    """A dataset of small images in the files of CIFAR, which are in ``raw/archive.tar.gz``.

    A file consists of records. A record has a byte for each label, and then the planes of an image.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(32, 32, 3)``, the label as an
    int, and the label again.

    Attributes:
        folder: folder of the files in the archive.
        files: names of the files of each split, in order. All files of a split have equally many
            samples.
        bytes_before: the column of each byte before an image.
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
        with contextlib.ExitStack() as stack:
            images = stack.enter_context(self.open_column(prepared, split, "image", self.folder))
            label_columns = []
            for column in self.bytes_before:
                writer = self.open_column(prepared, split, column, self.folder)
                label_columns.append(stack.enter_context(writer))

            for file, records in self._iterate_records(archive, split):
                planes = records[:, n_labels:].reshape(-1, *_PLANES_SHAPE)
                images.append(planes.transpose(0, 2, 3, 1))
                for position, column in enumerate(self.bytes_before):
                    labels = records[:, position].astype(np.int64)
                    if column == "label":
                        # The writer checks labels, too, but does not know the file.
                        self.check_labels(file, labels)
                    label_columns[position].append(labels)

    def _iterate_records(
        self, archive: Archive, split: str
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Iterate over the records of a split in blocks.

        Yields:
            The name of a file, and some of its records as rows of bytes: uint8 of shape
            ``(n, n_labels + 3 * 32 * 32)``.
        """
        files = self.files[split]
        n_records_of_file = self.n_samples[split] // len(files)
        record_bytes = len(self.bytes_before) + _PLANES_BYTES
        for file in files:
            name = f"{self.folder}/{file}"
            with archive.open(name) as stream:
                shape = (n_records_of_file, record_bytes)
                for records in read_rows(stream, name, shape, np.uint8):
                    yield name, records
