"""Converts between Hugging Face datasets and samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.images import decode_image, pixels_of
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.arrays import with_target
from data_stack.exchange.tables.table import (
    ArrowColumn,
    NamedColumns,
    Origin,
    TableIterator,
    cells_of,
    unshifted,
)
from data_stack.values.stacked_values import objects, stack_values
from data_stack.values.stacking import Column

try:
    import datasets
    from datasets.table import InMemoryTable, table_cast
except ImportError as error:
    raise MissingDependencyError(
        "from_huggingface() and to_huggingface()", "datasets", "huggingface"
    ) from error


def from_huggingface(dataset: datasets.Dataset, *, target: str | None = None) -> DatasetIteratorIF:
    """The rows of a dataset of Hugging Face as dict samples, read from its Arrow files when they are asked for.

    Images are decoded to arrays in the type of the picture, see :mod:`data_stack.codecs.images`: uint8 ``(height, width)`` or
    ``(height, width, channels)``, the indices of a palette, and so on; ``datasets.Image(mode="RGB")`` converts them. ``Array2D``
    to ``Array5D`` are arrays, a ``ClassLabel`` is an integer. Audio and video stay as stored: a dict with ``bytes`` and ``path``.
    For other values see :func:`data_stack.from_arrow`. Format and transforms of the dataset (``set_format``) are ignored.

    Args:
        dataset: a ``datasets.Dataset``: one split.
        target: the column of the target; None: the only ``ClassLabel``, whose names are the meta's ``class_names``.

    Raises:
        ConfigError: ``dataset`` is not a ``datasets.Dataset``, or the column does not exist.
    """
    if not isinstance(dataset, datasets.Dataset):
        advice = (
            "choose a split: dataset['train']"
            if isinstance(dataset, dict)
            else "load it without streaming=True"
        )
        raise ConfigError(
            f"from_huggingface() expects a datasets.Dataset, got {type(dataset).__name__}; {advice}"
        )
    features = dataset.features
    labels = [
        name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)
    ]
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    target = labels[0] if target is None and len(labels) == 1 else target
    iterator = TableIterator(
        {name: _FeatureColumn(dataset, name, feature) for name, feature in features.items()}
    )
    names, image = (
        features[target].names if target in labels else None,
        images[0] if len(images) == 1 else None,
    )
    return with_target(
        iterator, dataset.info.dataset_name or "huggingface", list(features), target, names, image
    )


class _FeatureColumn(ArrowColumn):
    """A column of a dataset, read by position."""

    def __init__(self, dataset: datasets.Dataset, name: str, feature: Any) -> None:
        shape = getattr(feature, "shape", ())
        cells, shape = dataset.data.column(name), () if None in shape else tuple(shape)
        super().__init__(cells, pa.field(name, cells.type), kind=feature, shape=shape)
        self._dataset = dataset.select_columns(name).with_format("arrow")
        self._image = (
            datasets.Image(mode=feature.mode) if isinstance(feature, datasets.Image) else None
        )
        if self._image or shape:
            self.origin = Origin(None, kind=feature)
            dtype, value_shape = (None, None) if self._image else self._declared[:2]
            self._declared = self._declared._replace(
                dtype=dtype, shape=value_shape, origin=self.origin
            )

    def __len__(self) -> int:
        return len(self._dataset)

    def value(self, index: int) -> Any:
        return self.values(np.array([index]))[0]

    def read(self, indices: npt.NDArray[np.int64] | None) -> Column:
        return self._values(self._take(indices))

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        return unshifted(
            self._dataset[slice(None) if indices is None else indices.tolist() or slice(0)].column(
                0
            )
        )

    def _decode(self, cells: pa.Array, *, lent: bool = False) -> Column:
        if self._image is None:
            return super()._decode(cells, lent=lent)
        if not len(cells):
            return self.read(np.zeros(1, np.int64))[:0] if len(self) else np.empty(0, np.uint8)
        arrays = [image and _pixels(self._image, image) for image in cells.to_pylist()]
        return objects(arrays) if self._declared.is_nullable else stack_values(arrays)


def _pixels(feature: datasets.Image, image: dict[str, Any]) -> npt.NDArray[Any]:
    if image["bytes"] is None:  # stored in a file
        return pixels_of(feature.decode_example(image))
    return decode_image(image["bytes"], feature.mode)


def to_huggingface(
    iterator: Any, *, streaming: bool = False, features: datasets.Features | None = None
) -> datasets.Dataset | datasets.IterableDataset:
    """All samples as a ``datasets.Dataset`` in memory, or as a ``datasets.IterableDataset`` that reads them when it is iterated.

    Samples of a Hugging Face dataset keep its features if only rows and columns were selected since. Otherwise features are
    inferred from the first few MiB: the target is a ``ClassLabel`` if the meta has its class names; uint8 arrays of shape
    ``(height, width)``, or with 3 or 4 channels last, are an ``Image`` (stored as PNG, lossless); other arrays of numbers of one
    shape are ``Array2D`` to ``Array5D``, and all other columns as in :func:`data_stack.to_arrow`. None is null.

    Args:
        iterator: any iterator.
        streaming: whether to read lazily.
        features: features of all columns, instead of inferred ones.

    Raises:
        ConfigError: a column holds values of several types, or of a type that Hugging Face lacks; lazily, when it is read.
    """
    columns = NamedColumns(iterator)
    if features is None:
        block = next(columns.blocks())
        features = datasets.Features(
            {name: _feature(name, values, columns) for name, values in block.items()}
        )
    if streaming:
        return datasets.IterableDataset.from_generator(
            _rows, features, {"samples": columns.iterator, "features": features}
        )
    table = pa.concat_tables([_encode(block, features) for block in columns.blocks()])
    return datasets.Dataset(InMemoryTable(table), info=datasets.DatasetInfo(features=features))


def _rows(samples: Any, features: datasets.Features) -> Iterator[dict[str, Any]]:
    for block in NamedColumns(samples).blocks():
        yield from _encode(block, features).to_pylist()


def _feature(name: str, values: Column, columns: NamedColumns) -> Any:
    origin = columns.origins.get(name)
    if origin is not None and (
        isinstance(origin.kind, (dict, list))
        or type(origin.kind).__module__.startswith("datasets.")
    ):
        return origin.kind
    meta: Any = getattr(columns.iterator, "dataset_meta", None)
    classes = getattr(meta, "class_names", None) or (None,)
    is_target = meta is not None and meta.target_pos in (name, columns.names.index(name))
    if is_target and all(isinstance(each, str) for each in classes) and values.dtype.kind in "iu":
        return datasets.ClassLabel(names=list(classes))
    first: Any = next((value for value in values if value is not None), None)
    is_bytes = isinstance(first, np.ndarray) and first.dtype == np.uint8 and first.size
    if is_bytes and (first.ndim, *first.shape[2:]) in ((2,), (3, 3), (3, 4)):
        return datasets.Image()
    if 2 <= values.ndim - 1 <= 5 and values.dtype.kind in "biuf" and 0 not in values.shape[1:]:
        return getattr(datasets, f"Array{values.ndim - 1}D")(
            shape=values.shape[1:], dtype=values.dtype.name
        )
    cells = cells_of(
        values, name, None if origin is None or origin.categories is not None else origin
    )
    return datasets.Features.from_arrow_schema(pa.schema([pa.field(name, cells.type)]))[name]


def _encode(block: dict[str, Column], features: datasets.Features) -> pa.Table:
    cells = {}
    try:
        for name, values in block.items():
            feature = features[name]
            is_image = isinstance(feature, datasets.Image)
            files = (
                [None if value is None else feature.encode_example(value) for value in values]
                if is_image
                else None
            )
            cells[name] = pa.array(files, feature.pa_type) if is_image else cells_of(values, name)
        return table_cast(pa.table(cells), features.arrow_schema)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"samples do not fit the features {features!s:.300}: {error!s:.300}; pass features=…"
        ) from error
