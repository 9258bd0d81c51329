"""Datasets in the files of MNIST: images and labels in IDX files, compressed one by one."""

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
    """Samples are ``(image, label, tag)``: uint8 of shape ``(height, width)`` and an int.

    The tag repeats the label, unless ``columns`` names it otherwise: then it is a row of the file
    of labels, which has more columns than the class.
    """

    @contextlib.contextmanager
    def open_file(self, raw: Resources, split: str, part: str) -> Iterator[IO[bytes]]:
        """Open the file of the ``"images"`` or ``"labels"`` of a split, decompressed."""
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
        dtype, shape = read_idx_header(stream)
        if dtype != np.uint8 or len(shape) != 3:
            raise DatasetFileCorruptError(
                f"{stream.name!r} holds {dtype} of shape {shape}, expected uint8 images"
            )
        self.check_count(stream.name, split, shape[0])
        blocks = read_rows(stream, stream.name, shape, dtype)
        self.write(prepared, split, "image", blocks, stream.name)

    def _write_labels(self, stream: IO[bytes], split: str, prepared: PreparedResources) -> None:
        values = read_idx(stream).astype(np.int64)
        if values.ndim == 1:
            self.write(prepared, split, "label", [values], stream.name)
            return
        # The first of several columns is the class.
        self.write(prepared, split, "label", [values[:, 0]], stream.name)
        self.write(prepared, split, self.columns[2], [values], stream.name)
