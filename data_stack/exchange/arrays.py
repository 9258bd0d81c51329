"""Reads arrays, PyTorch datasets, image folders as samples."""

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


def from_numpy(
    *arrays: Any, target: ColumnKey | None = None, class_names: Sequence[str] | None = None
) -> DatasetIteratorIF:
    """The rows of arrays as samples, without a copy; a memory-mapped array is read row by row.

    ::

        data_stack.from_numpy(images, labels, target=1)             # (image, label)
        data_stack.from_numpy({"image": images, "label": labels})   # {"image": …, "label": …}
        data_stack.from_numpy(records)                              # of a structured dtype: dicts of its fields

    Args:
        arrays: arrays of shape ``(n, ...)``; or one mapping of names to arrays, or one structured array. A masked array
            becomes a column of objects, with None for masked values.
        target: position or name of the target.
        class_names: the classes of the target, in the order of their numbers.

    Raises:
        ConfigError: there are no arrays, their lengths differ, or the target does not exist.
    """
    given: Any = arrays[0] if len(arrays) == 1 else dict(enumerate(arrays))
    names = (
        given.keys()
        if isinstance(given, Mapping)
        else getattr(getattr(given, "dtype", None), "names", None)
    )
    columns = {0: given} if names is None else {name: given[name] for name in names}
    iterator: DatasetIteratorIF = SequenceDatasetIterator(
        [_check_array(array) for array in columns.values()]
    )
    if names is not None and len(arrays) == 1:
        iterator = iterator.as_dict(*names)
    return with_target(iterator, "numpy", list(columns), target, class_names)


def from_torch(dataset: Any, *, target: ColumnKey | None = None) -> DatasetIteratorIF:
    """A map-style dataset of PyTorch as samples, read with ``dataset[i]``; a ``TensorDataset`` as its tensors, without a copy.

    Args:
        dataset: has ``len`` and ``[i]``.
        target: position of the target in tuple samples, or key in dict samples. None for no target; but 1 if the dataset has
            ``classes``, as torchvision's datasets do, which become the meta's ``class_names``.

    Raises:
        ConfigError: the dataset has no random access, or the target does not exist.
    """
    tensors = dataset.tensors if type(dataset).__name__ == "TensorDataset" else None
    iterator: DatasetIteratorIF = (
        as_iterator(dataset) if tensors is None else SequenceDatasetIterator(tensors)
    )
    classes = getattr(dataset, "classes", None)
    class_names = (
        classes
        if isinstance(classes, (list, tuple)) and all(isinstance(each, str) for each in classes)
        else None
    )
    target = 1 if target is None and class_names else target
    sample = iterator[0] if target is not None and len(iterator) else ()
    keys = list(sample) if isinstance(sample, Mapping) else list(range(len(sample)))
    return with_target(iterator, "torch", keys or [0, target], target, class_names)


def from_folder(
    folder: Any,
    *,
    target: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    class_names: Sequence[str] | None = None,
) -> DatasetIteratorIF:
    """The images of a folder with a folder for each class as samples ``{"image", "label", "class", "path"}``.

    Each image is an array in its own type, of a palette the indices: see :mod:`data_stack.codecs.images`. See
    ``ImageFolderIterator`` for folders with a ``metadata.csv`` or ``metadata.jsonl``, or without classes.

    Args:
        folder: a path, a StorageConnector, or the Resources of a dataset.
        target: the column of the target; None for ``"label"`` if there are classes, whose names are the meta's ``class_names``.
        on_error: ``"skip"`` decodes all images now, and leaves out broken ones: the log shows their number, and the iterator's
            attribute ``broken`` the reasons by path.
        class_names: the classes in the order of their labels, such as those of the training split; None for the names of the
            folders, sorted.

    Raises:
        ResourceNotFoundError: the folder does not exist.
        ConfigError: it contains both images and folders of classes, or the target does not exist.
    """
    return with_labels(
        ImageFolderIterator(folder, on_error=on_error, class_names=class_names), target
    )


def _check_array(array: Any) -> Any:
    checked: Any = np.asanyarray(array)
    if checked.ndim == 0:
        raise ConfigError(f"from_numpy() expects arrays of shape (n, …), got {array!r:.80}")
    if isinstance(checked, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(checked), np.array(None), checked.data.astype(object))
    return checked


def to_tensorflow(iterator: Any, *, batch_size: int | None = None, **options: Any) -> Any:
    """The samples as a ``tf.data.Dataset`` that reads them when it is iterated, see ``Loader.tensorflow``.

    Args:
        iterator: any iterator.
        batch_size: number of samples in each element; None for single samples, which must have one shape.
        options: options of the loader, such as ``shuffle=True, seed=7, epochs=3``; one epoch by default.

    Raises:
        MissingDependencyError: TensorFlow is not installed.
        ConfigError: TensorFlow has no tensors for a column, or there are no samples to infer its shape from.
    """
    from data_stack.loader.loader import Loader

    dataset = Loader(iterator, batch_size or 64, **options).tensorflow().dataset()
    return dataset if batch_size is not None else dataset.unbatch()
