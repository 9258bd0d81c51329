"""The base class of datasets in the files of MNIST: images and labels in IDX files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO

import numpy as np

from data_stack import PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import read_idx, read_idx_header
from data_stack.io.archives import open_decompressed
from data_stack_classics.arrays import ArraysFactory, read_rows


class IdxFactory(ArraysFactory):
    """A dataset of images and labels, each in a compressed IDX file.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(height, width)``, the label as an
    int, and the label again.

    A file of labels may have several integers a row, of which the first is the label. A derived
    class then names its third column, such as ``columns = ("image", "label", "origin")``. That
    column is the whole row, an int64 array.
    """

    @contextlib.contextmanager
    def open_file(self, raw: Resources, split: str, part: str) -> Iterator[IO[bytes]]:
        """Open a file of a split, decompressed.

        Args:
            raw: the retrieved files.
            split: name of the split.
            part: ``"images"`` or ``"labels"``.
        """
        with raw[f"raw/{split}-{part}"] as resource, open_decompressed(resource) as stream:
            yield stream

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store images block by block, and labels as int64."""
        for split in prepared.steps(self.splits):
            with self.open_file(raw, split, "images") as stream:
                self._write_images(stream, split, prepared)
            with self.open_file(raw, split, "labels") as stream:
                self._write_labels(stream, split, prepared)

    def _write_images(self, stream: IO[bytes], split: str, prepared: PreparedResources) -> None:
        """Write the images of a split block by block.

        Raises:
            DatasetFileCorruptError: the file has no images, or another number of them.
        """
        dtype, shape = read_idx_header(stream)
        if dtype != np.uint8 or len(shape) != 3:
            raise DatasetFileCorruptError(
                f"{stream.name!r} holds {dtype} of shape {shape}, expected uint8 images. "
                f"Fetch it again"
            )
        self.check_count(stream.name, split, shape[0])
        blocks = read_rows(stream, stream.name, shape, dtype)
        self.write(prepared, split, "image", blocks, stream.name)

    def _write_labels(self, stream: IO[bytes], split: str, prepared: PreparedResources) -> None:
        """Write the labels of a split, and the rows with the labels if ``columns`` asks for them.

        Raises:
            DatasetFileCorruptError: the file has another shape than ``columns`` asks for, another
                number of rows, or a label without class.
        """
        values = read_idx(stream).astype(np.int64)
        third_column = self.columns[2]
        has_rows = third_column != "tag"
        n_dimensions = 2 if has_rows else 1
        if values.ndim != n_dimensions:
            raise DatasetFileCorruptError(
                f"{stream.name!r} holds labels of shape {values.shape}, but the third column of "
                f"{type(self).__name__} is {third_column!r}, which needs {n_dimensions} "
                f"dimensions. Fetch it again, or set columns in a class derived from "
                f"{type(self).__name__}"
            )
        if not has_rows:
            self.write(prepared, split, "label", [values], stream.name)
            return
        self.write(prepared, split, "label", [values[:, 0]], stream.name)
        self.write(prepared, split, third_column, [values], stream.name)
