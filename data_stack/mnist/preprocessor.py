"""From the IDX files of MNIST to tensors, a block of images at a time."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.idx import read_idx
from data_stack.formats.torch_tensors import write_tensor
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector

_IMAGES_AT_ONCE = 1024


class MNISTPreprocessor:
    """Makes the stored tensors of one split from its two stored IDX files.

    Args:
        storage_connector: where both are.
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
        """Read the gzipped IDX files and store ``(n, 28, 28)`` float32 samples in [0, 1] and ``(n,)`` int64 targets.

        Raises:
            DatasetFileCorruptError: a file is damaged, or no images or labels; what was damaged is not stored.
        """
        connector = self.storage_connector
        with (
            connector.get_resource(raw_sample_identifier) as raw,
            connector.create(sample_identifier) as file,
        ):
            n_samples = write_samples(raw, file)
        with (
            connector.get_resource(raw_target_identifier) as raw,
            connector.create(target_identifier) as file,
        ):
            write_targets(raw, file, n_samples)


def write_samples(raw: StreamedResource, file: Any) -> int:
    """Write the images of a gzipped IDX file as one float32 tensor in [0, 1]; return how many there are.

    Only a block of images is in memory as float32, of which 60,000 are 188 MB.

    Raises:
        DatasetFileCorruptError: it is damaged, or holds no uint8 images.
    """
    with gzip.GzipFile(raw.identifier, "rb", fileobj=raw) as stream:
        images = read_idx(stream)
    if images.dtype != np.uint8 or images.ndim != 3:
        found = f"{images.dtype} of shape {images.shape}"
        raise DatasetFileCorruptError(
            f"{raw.identifier!r} holds {found}, but images are uint8 of shape (n, height, width)"
        )
    blocks = (
        images[start : start + _IMAGES_AT_ONCE] for start in range(0, len(images), _IMAGES_AT_ONCE)
    )
    scaled = (np.divide(block, 255, dtype=np.float32) for block in blocks)
    write_tensor(file, scaled, shape=images.shape, dtype=np.float32)
    return len(images)


def write_targets(raw: StreamedResource, file: Any, n_samples: int) -> None:
    """Write the labels of a gzipped IDX file as one int64 tensor.

    Raises:
        DatasetFileCorruptError: it is damaged, or does not hold ``n_samples`` uint8 labels.
    """
    with gzip.GzipFile(raw.identifier, "rb", fileobj=raw) as stream:
        labels = read_idx(stream)
    if labels.dtype != np.uint8 or labels.shape != (n_samples,):
        found = f"{labels.dtype} of shape {labels.shape}"
        raise DatasetFileCorruptError(
            f"{raw.identifier!r} holds {found}, but there are {n_samples} images to label"
        )
    write_tensor(file, [labels], shape=labels.shape, dtype=np.int64)
