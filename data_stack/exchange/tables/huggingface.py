"""Converts between Hugging Face datasets and samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import fits_shape
from data_stack.codecs.images import decode_image, pixels_of
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.tables.table import NamedColumns, cells_of
from data_stack.formats.arrow_tables import ArrowColumn, Origin, TableIterator, unshifted
from data_stack.formats.targets import with_target
from data_stack.values.stacked_values import objects, stack_values
from data_stack.values.stacking import ColumnArray

try:
    import datasets
    from datasets.table import InMemoryTable, table_cast
except ImportError as error:
    raise MissingDependencyError(
        "from_huggingface() and to_huggingface()", "datasets", "huggingface"
    ) from error

_LISTS = tuple(
    getattr(datasets, name) for name in ("List", "LargeList", "Sequence") if hasattr(datasets, name)
)
_ARRAYS = (datasets.Array2D, datasets.Array3D, datasets.Array4D, datasets.Array5D)


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

    def read(self, indices: npt.NDArray[np.int64] | None) -> ColumnArray:
        return self._values(self._take(indices))

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        return unshifted(
            self._dataset[slice(None) if indices is None else indices.tolist() or slice(0)].column(
                0
            )
        )

    def _decode(self, cells: pa.Array, *, lent: bool = False) -> ColumnArray:
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
        features: features of all columns, instead of inferred ones. No value changes: one that does not fit its feature is an
            error, such as 1.5 as int64.

    Raises:
        ConfigError: a column holds values of several types, or of a type that Hugging Face lacks, or a value does not fit its
            feature; lazily, when it is read.
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
    table = pa.concat_tables(list(_tables(columns, features)))
    return datasets.Dataset(InMemoryTable(table), info=datasets.DatasetInfo(features=features))


def _rows(samples: Any, features: datasets.Features) -> Iterator[dict[str, Any]]:
    for table in _tables(NamedColumns(samples), features):
        yield from table.to_pylist()


def _tables(columns: NamedColumns, features: datasets.Features) -> Iterator[pa.Table]:
    """The samples as tables of a few MiB."""
    n_rows = 0
    for block in columns.blocks():
        table = _encode(block, features, n_rows)
        n_rows += table.num_rows
        yield table


def _feature(name: str, values: ColumnArray, columns: NamedColumns) -> Any:
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


def _encode(block: dict[str, ColumnArray], features: datasets.Features, first_row: int) -> pa.Table:
    cells = {}
    try:
        schema = features.arrow_schema
        for name, values in block.items():
            feature = features[name]
            if isinstance(feature, datasets.Image):
                files = [
                    None if value is None else feature.encode_example(value) for value in values
                ]
                cells[name] = pa.array(files, feature.pa_type)
            elif _is_plain(feature):
                _check_shapes(values, feature, name, first_row)
                origin = Origin(schema.field(name))
                cells[name] = cells_of(values, name, origin, first_row=first_row)
            else:  # a ClassLabel or Audio, say, which converts and checks values by itself
                cells[name] = cells_of(values, name, first_row=first_row)
        return table_cast(pa.table(cells), schema)
    except (pa.ArrowException, ConfigError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"samples do not fit the features {features!s:.300}: {error!s:.300}; pass features=…"
        ) from error


def _is_plain(feature: Any) -> bool:
    """Whether a feature holds values of its Arrow type, without a conversion of its own."""
    if isinstance(feature, dict):
        return all(map(_is_plain, feature.values()))
    if isinstance(feature, list):
        return all(map(_is_plain, feature))
    if isinstance(feature, _LISTS):
        inner = feature.feature
        is_transposed = type(feature).__name__ == "Sequence" and isinstance(inner, dict)
        return not is_transposed and _is_plain(inner)  # before version 4: a dict of lists
    return isinstance(feature, (datasets.Value, *_ARRAYS))


def _check_shapes(values: ColumnArray, feature: Any, name: str, first_row: int) -> None:
    """Refuse an array of another shape than that of its feature.

    Raises:
        ConfigError: a value is one.
    """
    if not isinstance(feature, _ARRAYS):
        return
    for row, value in enumerate(values):
        if value is not None and not fits_shape(np.shape(value), feature.shape):
            raise ConfigError(
                f"column {name!r}, row {first_row + row}: expected shape {feature.shape}, got {np.shape(value)}"
            )
