"""Reads arrays, PyTorch datasets and image folders as samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.formats.image_folder import ImageFolderIterator, with_labels
from data_stack.formats.targets import with_target

#: Single samples of TensorFlow are read in batches of this size.
_BATCH_SIZE_OF_SINGLE_SAMPLES = 64


def from_numpy(
    *arrays: Any, target: ColumnKey | None = None, class_names: Sequence[str] | None = None
) -> DatasetIteratorIF:
    """Return the rows of arrays as samples, without a copy; memory-mapped arrays are read by row.

    ::

        data_stack.from_numpy(images, labels, target=1)             # (image, label)
        data_stack.from_numpy({"image": images, "label": labels})   # {"image": …, "label": …}
        data_stack.from_numpy(records)  # of a structured dtype: dicts of its fields

    Args:
        arrays: arrays of shape ``(n, ...)``; or one mapping of names to arrays, or one structured
            array. A masked array becomes a column of objects, with None for masked values.
        target: position or name of the target.
        class_names: the classes of the target, in the order of their numbers.

    Raises:
        ConfigError: there are no arrays, their lengths differ, or the target does not exist.
    """
    names = _names_of_columns(arrays[0]) if len(arrays) == 1 else None
    if names is None:
        iterator: DatasetIteratorIF = SequenceDatasetIterator(
            [_check_array(array) for array in arrays]
        )
        return with_target(iterator, "numpy", list(range(len(arrays))), target, class_names)

    columns = [_check_array(arrays[0][name]) for name in names]
    iterator = SequenceDatasetIterator(columns).as_dict(*names)
    return with_target(iterator, "numpy", names, target, class_names)


def from_torch(dataset: Any, *, target: ColumnKey | None = None) -> DatasetIteratorIF:
    """Return a map-style dataset of PyTorch as samples, which are read with ``dataset[i]``.

    A ``TensorDataset`` becomes its tensors, without a copy.

    Args:
        dataset: has ``len`` and ``[i]``.
        target: position of the target in tuple samples, or key in dict samples. None: the target is
            at position 1 if the dataset has ``classes``, as torchvision's datasets do, and there is
            no target otherwise. The ``classes`` become the meta's ``class_names``.

    Raises:
        ConfigError: the dataset has no random access, or the target does not exist.
    """
    # By the name of the class, so that torch is not imported.
    if type(dataset).__name__ == "TensorDataset":
        iterator: DatasetIteratorIF = SequenceDatasetIterator(dataset.tensors)
    else:
        iterator = as_iterator(dataset)
    class_names = _class_names_of_torch(dataset)
    if target is None and class_names:
        target = 1

    # Without samples the columns are unknown: the target is taken to exist, beside a sample at 0.
    keys: list[Any] = [0, target]
    if target is not None and len(iterator):
        keys = _keys_of_sample(iterator[0]) or keys
    return with_target(iterator, "torch", keys, target, class_names)


def from_folder(
    folder: Any,
    *,
    target: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    class_names: Sequence[str] | None = None,
) -> DatasetIteratorIF:
    """Return the images of a folder, with a folder for each class.

    The samples are dicts ``{"image", "label", "class", "path"}``.

    Each image is an array in its own type, of a palette the indices: see
    :mod:`data_stack.codecs.images`. See ``ImageFolderIterator`` for folders with a
    ``metadata.csv`` or ``metadata.jsonl``, or without classes.

    Args:
        folder: a path, a StorageConnector, or the Resources of a dataset.
        target: the column of the target; None for ``"label"`` if there are classes, whose names are
            the meta's ``class_names``.
        on_error: ``"skip"`` decodes all images now, and leaves out broken ones: the log shows their
            number, and the iterator's attribute ``broken`` the reasons by path.
        class_names: the classes in the order of their labels, such as those of the training split;
            None for the names of the folders, sorted.

    Raises:
        ResourceNotFoundError: the folder does not exist.
        ConfigError: it contains both images and folders of classes, or the target does not exist.
    """
    images = ImageFolderIterator(folder, on_error=on_error, class_names=class_names)
    return with_labels(images, target)


def _names_of_columns(columns: Any) -> list[Any] | None:
    """Return the names of a mapping or of a structured array; None for other arrays."""
    if isinstance(columns, Mapping):
        return list(columns)
    names = getattr(getattr(columns, "dtype", None), "names", None)
    return None if names is None else list(names)


def _class_names_of_torch(dataset: Any) -> Sequence[str] | None:
    """Return ``dataset.classes``, if these are texts."""
    classes = getattr(dataset, "classes", None)
    if not isinstance(classes, (list, tuple)):
        return None
    if not all(isinstance(name, str) for name in classes):
        return None
    return classes


def _keys_of_sample(sample: Any) -> list[Any]:
    """Return the keys of a dict, or the positions in a tuple."""
    if isinstance(sample, Mapping):
        return list(sample)
    return list(range(len(sample)))


def _check_array(array: Any) -> Any:
    """Return an array of rows; a masked one as objects with None.

    Raises:
        ConfigError: the array has no rows.
    """
    checked: Any = np.asanyarray(array)
    if checked.ndim == 0:
        raise ConfigError(f"from_numpy() expects arrays of shape (n, …), got {array!r:.80}")
    if isinstance(checked, np.ma.MaskedArray):
        is_masked = np.ma.getmaskarray(checked)
        return np.where(is_masked, np.array(None), checked.data.astype(object))
    return checked


def to_tensorflow(iterator: Any, *, batch_size: int | None = None, **options: Any) -> Any:
    """Return the samples as a ``tf.data.Dataset``, which reads them when it is iterated.

    See ``Loader.tensorflow``.

    Args:
        iterator: any iterator.
        batch_size: number of samples in each element; None for single samples, which must have one
            shape.
        options: options of the loader, such as ``shuffle=True, seed=7, epochs=3``; one epoch by
            default.

    Raises:
        MissingDependencyError: TensorFlow is not installed.
        ConfigError: TensorFlow has no tensors for a column, or there are no samples to infer its
            shape from.
    """
    from data_stack.loader.loader import Loader

    if batch_size is not None:
        return Loader(iterator, batch_size, **options).tensorflow().dataset()
    batches = Loader(iterator, _BATCH_SIZE_OF_SINGLE_SAMPLES, **options).tensorflow().dataset()
    return batches.unbatch()
