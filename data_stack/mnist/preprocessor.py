"""Converts the IDX files of MNIST to tensors, a block of images at a time."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.idx import read_idx
from data_stack.formats.torch_tensors import write_tensor
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector

#: Number of images that are in memory as float32. All 60,000 would take 188 MB.
_IMAGES_AT_ONCE = 1024

#: The value of a white pixel in the IDX files.
_MAX_PIXEL = 255


class MNISTPreprocessor:
    """Makes the stored tensors of one split from its two stored IDX files.

    Args:
        storage_connector: the store of the files and of the tensors.
    """

    def __init__(self, storage_connector: StorageConnector) -> None:
        self.storage_connector = storage_connector

    def preprocess(
        self,
        raw_sample_identifier: str,
        raw_target_identifier: str,
        sample_identifier: str,
        target_identifier: str,
    ) -> None:
        """Read the gzipped IDX files, and store tensors.

        Args:
            raw_sample_identifier: the IDX file of the images.
            raw_target_identifier: the IDX file of the labels.
            sample_identifier: the new tensor of shape ``(n, 28, 28)``, float32 in [0, 1].
            target_identifier: the new tensor of shape ``(n,)``, int64.

        Raises:
            DatasetFileCorruptError: a file is damaged, or holds no images or labels. Its tensor is
                not stored.
        """
        connector = self.storage_connector
        with connector.get_resource(raw_sample_identifier) as raw:
            with connector.create(sample_identifier) as file:
                n_samples = write_samples(raw, file)
        with connector.get_resource(raw_target_identifier) as raw:
            with connector.create(target_identifier) as file:
                write_targets(raw, file, n_samples)


def write_samples(raw: StreamedResource, file: Any) -> int:
    """Write the images of a gzipped IDX file as one float32 tensor in [0, 1].

    Returns:
        The number of images.

    Raises:
        DatasetFileCorruptError: the file is damaged, or holds no uint8 images.
    """
    images = _read_gzipped_idx(raw)
    if images.dtype != np.uint8 or images.ndim != 3:
        raise DatasetFileCorruptError(
            f"{raw.identifier!r} holds {images.dtype} of shape {images.shape}, "
            "but images are uint8 of shape (n, height, width)"
        )
    write_tensor(file, _iterate_scaled_blocks(images), shape=images.shape, dtype=np.float32)
    return len(images)


def write_targets(raw: StreamedResource, file: Any, n_samples: int) -> None:
    """Write the labels of a gzipped IDX file as one int64 tensor.

    Raises:
        DatasetFileCorruptError: the file is damaged, or does not hold ``n_samples`` uint8 labels.
    """
    labels = _read_gzipped_idx(raw)
    if labels.dtype != np.uint8 or labels.shape != (n_samples,):
        raise DatasetFileCorruptError(
            f"{raw.identifier!r} holds {labels.dtype} of shape {labels.shape}, "
            f"but there are {n_samples} images to label"
        )
    write_tensor(file, [labels], shape=labels.shape, dtype=np.int64)


def _read_gzipped_idx(raw: StreamedResource) -> npt.NDArray[Any]:
    """Read the array of a gzipped IDX file.

    Raises:
        DatasetFileCorruptError: the file is damaged.
    """
    with gzip.GzipFile(raw.identifier, "rb", fileobj=raw) as stream:
        return read_idx(stream)


def _iterate_scaled_blocks(images: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.float32]]:
    """Yield images as float32 in [0, 1], a block at a time."""
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        block = images[start : start + _IMAGES_AT_ONCE]
        yield np.divide(block, _MAX_PIXEL, dtype=np.float32)
