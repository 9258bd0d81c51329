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
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.positions import as_index_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.tables.cells import cells_of
from data_stack.exchange.tables.table import NamedColumns
from data_stack.formats.arrow_ipc.arrow_dataset import ArrowAccess
from data_stack.formats.arrow_ipc.features import StoredFeature
from data_stack.formats.arrow_tables import ArrowColumn, Origin, TableIterator, unshifted
from data_stack.formats.arrow_tables.readable_cells import readable_chunks
from data_stack.formats.class_name_metadata import class_names_of
from data_stack.formats.columns import ColumnsAccess
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

#: The features of lists; version 4 of datasets has brought ``List``.
_LIST_FEATURES = tuple(
    getattr(datasets, name) for name in ("List", "LargeList", "Sequence") if hasattr(datasets, name)
)

#: The features of arrays, by the number of their axes.
_ARRAY_FEATURES: dict[int, Any] = {
    2: datasets.Array2D,
    3: datasets.Array3D,
    4: datasets.Array4D,
    5: datasets.Array5D,
}
_ARRAY_CLASSES = tuple(_ARRAY_FEATURES.values())


def from_huggingface(dataset: datasets.Dataset, *, target: str | None = None) -> DatasetIteratorIF:
    """Return the rows of a Hugging Face dataset as dict samples.

    A row is read from the Arrow files of the dataset when its sample is read. The format and the
    transforms of the dataset (``set_format``) are ignored. Values are:

    - ``Image``: an array in the type of the picture, see :mod:`data_stack.codecs.images`: uint8
      ``(height, width)`` or ``(height, width, channels)``, the indices of a palette, and so on.
      ``datasets.Image(mode="RGB")`` converts pictures.
    - ``Array2D`` to ``Array5D``: an array.
    - ``ClassLabel``: an integer.
    - audio and video: a dict with ``bytes`` and ``path``, as they are stored.
    - others: see :func:`data_stack.from_arrow`.

    Args:
        dataset: a ``datasets.Dataset``: one split.
        target: the column of the target; None: the only ``ClassLabel``, whose names are the meta's
            ``class_names``.

    Raises:
        ConfigError: ``dataset`` is not a ``datasets.Dataset``, or the column does not exist.
    """
    _check_dataset(dataset)
    features = dataset.features
    labels = _names_of_features(features, datasets.ClassLabel)
    images = _names_of_features(features, datasets.Image)
    if target is None and len(labels) == 1:
        target = labels[0]
    class_names = features[target].names if target in labels else None
    only_image = images[0] if len(images) == 1 else None

    columns: dict[str, ArrowColumn] = {}
    for name, feature in features.items():
        columns[name] = _FeatureColumn(dataset, name, feature)
    source = dataset.info.dataset_name or "huggingface"
    return with_target(
        TableIterator(columns), source, list(features), target, class_names, only_image
    )


def _check_dataset(dataset: Any) -> None:
    """Check the argument of :func:`from_huggingface`.

    Raises:
        ConfigError: it is not a ``datasets.Dataset``.
    """
    if isinstance(dataset, datasets.Dataset):
        return
    advice = "load it without streaming=True"
    if isinstance(dataset, dict):
        advice = "choose a split: dataset['train']"
    raise ConfigError(
        f"from_huggingface() expects a datasets.Dataset, got {type(dataset).__name__}; {advice}"
    )


def _names_of_features(features: datasets.Features, feature_class: type[Any]) -> list[str]:
    """Return the names of the columns whose feature is of a class."""
    return [name for name, feature in features.items() if isinstance(feature, feature_class)]


class _FeatureColumn(ArrowColumn):
    """A column of a dataset, read by position.

    Args:
        dataset: the dataset.
        name: the name of the column.
        feature: what the column holds.
    """

    #: The dataset with all of its columns.
    source: datasets.Dataset

    #: The dataset with this column alone.
    _dataset: datasets.Dataset

    #: Decodes images; None if the column holds none.
    _image: datasets.Image | None

    def __init__(self, dataset: datasets.Dataset, name: str, feature: Any) -> None:
        cells = dataset.data.column(name)
        shape = tuple(getattr(feature, "shape", ()))
        if None in shape:
            shape = ()
        super().__init__(cells, pa.field(name, cells.type), kind=feature, shape=shape)

        self.source = dataset
        self._dataset = dataset.select_columns(name).with_format("arrow")
        self._image = None
        if isinstance(feature, datasets.Image):
            self._image = datasets.Image(mode=feature.mode)
        # The cells of images and arrays are stored forms of the values, so the types of the cells
        # are not the types of the values.
        if self._image is not None or shape:
            self.origin = Origin(None, kind=feature)
            self._declared = self._declared._replace(origin=self.origin)
        if self._image is not None:
            self._declared = self._declared._replace(dtype=None, shape=None)

    def __len__(self) -> int:
        return len(self._dataset)

    def value(self, index: int) -> Any:
        return self.values(np.array([index]))[0]

    def read(self, indices: npt.NDArray[np.int64] | None) -> ColumnArray:
        return self.array_of_cells(self._take(indices))

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        rows: slice | list[int] = slice(None)
        if indices is not None:
            # A dataset takes no empty list.
            rows = indices.tolist() or slice(0)
        return unshifted(readable_chunks(self._dataset[rows].column(0)))

    def _decode(self, cells: pa.Array, *, lent: bool = False) -> ColumnArray:
        if self._image is None:
            return super()._decode(cells, lent=lent)
        if not len(cells):
            return self._no_images()
        arrays: list[npt.NDArray[Any] | None] = []
        for image in cells.to_pylist():
            arrays.append(None if image is None else _decode_image(self._image, image))
        if self._declared.is_nullable:
            return objects(arrays)
        return stack_values(arrays)

    def _no_images(self) -> ColumnArray:
        """Return no values, of the shape and dtype of the first image."""
        if not len(self):
            return np.empty(0, np.uint8)
        first_position = np.zeros(1, np.int64)
        return self.read(first_position)[:0]


def _decode_image(feature: datasets.Image, image: dict[str, Any]) -> npt.NDArray[Any]:
    """Return the pixels of an image, which is a dict of ``bytes`` and ``path``."""
    is_in_file = image["bytes"] is None
    if is_in_file:
        return pixels_of(feature.decode_example(image))
    return decode_image(image["bytes"], feature.mode)


# ---------------------------------------------------------------------- writing


def to_huggingface(
    iterator: Any, *, streaming: bool = False, features: datasets.Features | None = None
) -> datasets.Dataset | datasets.IterableDataset:
    """Return all samples as a ``datasets.Dataset`` in memory.

    With ``streaming``, return a ``datasets.IterableDataset`` that reads samples when it is
    iterated.

    Samples of a Hugging Face dataset, and of Arrow files with its features, keep these if only rows
    and columns were selected since. Rows of either are not copied: the result has the cells of the
    dataset, or the pages of local files. Otherwise features are inferred from the first few MiB:

    - the target is a ``ClassLabel`` if the meta has its class names,
    - uint8 arrays of shape ``(height, width)``, ``(height, width, 3)`` or ``(height, width, 4)``
      are an ``Image``, stored as PNG without loss,
    - other arrays of numbers of one shape are ``Array2D`` to ``Array5D``,
    - all other columns are as in :func:`data_stack.to_arrow`. None is null.

    Args:
        iterator: any iterator.
        streaming: whether to read lazily.
        features: features of all columns, instead of inferred ones. A value that does not fit its
            feature, such as 1.5 as int64, is an error; no value is changed to fit.

    Raises:
        ConfigError: a column holds values of several types, or of a type that Hugging Face lacks,
            or a value does not fit its feature. With ``streaming``, the error of a value is raised
            when its row is read.
    """
    if features is None and not streaming:
        stored = _dataset_of_source(iterator)
        if stored is None:
            stored = _dataset_of_files(iterator)
        if stored is not None:
            return stored
    columns = NamedColumns(iterator)
    if features is None:
        features = _infer_features(columns)
    if streaming:
        arguments = {"samples": columns.iterator, "features": features}
        return datasets.IterableDataset.from_generator(_read_rows, features, arguments)
    table = pa.concat_tables(list(_read_tables(columns, features)))
    return datasets.Dataset(InMemoryTable(table), info=datasets.DatasetInfo(features=features))


def _dataset_of_source(iterator: Any) -> datasets.Dataset | None:
    """Return rows and columns of the dataset that :func:`from_huggingface` was called with.

    Returns:
        None for other samples, and if the meta says more of a column than its feature.
    """
    access, positions = access_to(as_iterator(iterator)).unwrap()
    if not isinstance(access, ColumnsAccess) or not isinstance(access.source, TableIterator):
        return None
    declared = access.declare_columns()
    if not declared:
        return None
    names = list(declared)
    readers: list[Any] = access.readers_of(names)
    if not all(isinstance(reader, _FeatureColumn) for reader in readers):
        return None
    dataset = readers[0].source
    are_of_one_dataset = all(reader.source is dataset for reader in readers)
    if not are_of_one_dataset or [reader.name for reader in readers] != names:
        return None
    meta: Any = getattr(iterator, "dataset_meta", None)
    class_names = _class_names_of_meta(meta)
    feature = dataset.features.get(getattr(meta, "target_pos", None))
    if class_names and class_names != getattr(feature, "names", None):
        return None

    result = dataset.with_format(None).select_columns(names)
    if positions is None:
        return result
    return result.select(as_index_array(positions))


def _dataset_of_files(iterator: Any) -> datasets.Dataset | None:
    """Return rows of mapped Arrow files as a dataset, without a copy of the cells.

    Returns:
        None for other samples, and if the meta says more of a column than its feature.
    """
    access, positions = access_to(as_iterator(iterator)).unwrap()
    if not isinstance(access, ArrowAccess):
        return None
    rows = access.source
    for name, column in (access.declare_columns() or {}).items():
        has_feature = name in rows.stored_features
        is_of_arrays = column.shape is not None and len(column.shape) > 1
        # Such arrays become an Image or an ArrayXD.
        if is_of_arrays and not has_feature:
            return None
    meta: Any = getattr(iterator, "dataset_meta", None)
    class_names = _class_names_of_meta(meta)
    if class_names and class_names != class_names_of(rows.stored_features.get(meta.target_pos)):
        return None
    table = rows.stored_table()
    if table is None:
        return None

    features = datasets.Features.from_arrow_schema(table.schema)
    for name in table.column_names:
        if name in rows.stored_features:
            features[name] = _feature_described(rows.stored_features[name])
    table = table_cast(table, features.arrow_schema)
    dataset = datasets.Dataset(InMemoryTable(table), info=datasets.DatasetInfo(features=features))
    if positions is None:
        return dataset
    return dataset.select(as_index_array(positions))


def _class_names_of_meta(meta: Any) -> list[Any]:
    """Return the names of the classes of the target; none if a meta has none, or is None."""
    return list(getattr(meta, "class_names", None) or ())


def _feature_described(description: Any) -> Any:
    """Return the feature that plain data describe."""
    return datasets.Features.from_dict({"value": description})["value"]


def _read_rows(samples: Any, features: datasets.Features) -> Iterator[dict[str, Any]]:
    for table in _read_tables(NamedColumns(samples), features):
        yield from table.to_pylist()


def _read_tables(columns: NamedColumns, features: datasets.Features) -> Iterator[pa.Table]:
    """Yield the samples as tables of a few MiB."""
    n_rows = 0
    for block in columns.blocks():
        table = _table_of(block, features, first_row=n_rows)
        n_rows += table.num_rows
        yield table


def _infer_features(columns: NamedColumns) -> datasets.Features:
    """Infer the features of all columns from the first block."""
    first_block = next(columns.blocks())
    features: dict[str, Any] = {}
    for name, values in first_block.items():
        features[name] = _infer_feature(name, values, columns)
    return datasets.Features(features)


def _infer_feature(name: str, values: ColumnArray, columns: NamedColumns) -> Any:
    """Return the feature that a column had, or else one that fits its values."""
    origin = columns.origins.get(name)
    if origin is not None and isinstance(origin.kind, StoredFeature):
        return _feature_described(origin.kind.description)
    if origin is not None and _is_feature(origin.kind):
        return origin.kind

    class_names = _class_names_of(name, columns)
    if class_names and values.dtype.kind in "iu":
        return datasets.ClassLabel(names=class_names)
    if _are_images(values):
        return datasets.Image()
    shape = values.shape[1:]
    if len(shape) in _ARRAY_FEATURES and values.dtype.kind in "biuf" and 0 not in shape:
        return _ARRAY_FEATURES[len(shape)](shape=shape, dtype=values.dtype.name)

    # Hugging Face has no categories: the type of their values is inferred.
    has_categories = origin is not None and origin.categories is not None
    cells = cells_of(values, name, None if has_categories else origin)
    schema = pa.schema([pa.field(name, cells.type)])
    return datasets.Features.from_arrow_schema(schema)[name]


def _is_feature(kind: Any) -> bool:
    """Return whether the kind of a column's origin is a feature, rather than a dtype of pandas."""
    return isinstance(kind, (dict, list)) or type(kind).__module__.startswith("datasets.")


def _class_names_of(name: str, columns: NamedColumns) -> list[str]:
    """Return the names of the classes of a column; none if it is not the target."""
    meta: Any = getattr(columns.iterator, "dataset_meta", None)
    if meta is None or meta.target_pos not in (name, columns.names.index(name)):
        return []
    class_names = _class_names_of_meta(meta)
    are_texts = all(isinstance(class_name, str) for class_name in class_names)
    return class_names if are_texts else []


def _are_images(values: ColumnArray) -> bool:
    """Return whether the first value is an array that an ``Image`` stores without loss."""
    first_value: Any = None
    for value in values:
        if value is not None:
            first_value = value
            break
    if not isinstance(first_value, np.ndarray) or first_value.dtype != np.uint8:
        return False
    if not first_value.size:
        return False
    has_channels = first_value.ndim == 3 and first_value.shape[2] in (3, 4)
    return first_value.ndim == 2 or has_channels


def _table_of(
    block: dict[str, ColumnArray], features: datasets.Features, first_row: int
) -> pa.Table:
    """Convert named columns to a table; ``first_row`` is the position of its first row."""
    cells: dict[str, pa.Array] = {}
    try:
        schema = features.arrow_schema
        for name, values in block.items():
            field = schema.field(name)
            cells[name] = _cells_of_feature(values, features[name], field, first_row)
        return table_cast(pa.table(cells), schema)
    except (pa.ArrowException, ConfigError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"samples do not fit the features {features!s:.300}: {error!s:.300}; pass features=…"
        ) from error


def _cells_of_feature(
    values: ColumnArray, feature: Any, field: pa.Field, first_row: int
) -> pa.Array:
    """Convert the values of a column to cells of its feature.

    Raises:
        ConfigError: a value does not fit the feature.
    """
    if isinstance(feature, datasets.Image):
        files = [None if value is None else feature.encode_example(value) for value in values]
        return pa.array(files, feature.pa_type)
    if _is_plain(feature):
        _check_shapes(values, feature, field.name, first_row)
        return cells_of(values, field.name, Origin(field), first_row=first_row)
    # Other features, such as ClassLabel and Audio, convert and check values by themselves.
    return cells_of(values, field.name, first_row=first_row)


def _is_plain(feature: Any) -> bool:
    """Return whether a feature holds values of its Arrow type, without a conversion of its own."""
    if isinstance(feature, dict):
        return all(_is_plain(part) for part in feature.values())
    if isinstance(feature, list):
        return all(_is_plain(part) for part in feature)
    if isinstance(feature, _LIST_FEATURES):
        element = feature.feature
        # Before version 4, a sequence of dicts is a dict of lists.
        is_transposed = type(feature).__name__ == "Sequence" and isinstance(element, dict)
        return not is_transposed and _is_plain(element)
    return isinstance(feature, (datasets.Value, *_ARRAY_CLASSES))


def _check_shapes(values: ColumnArray, feature: Any, name: str, first_row: int) -> None:
    """Check that arrays have the shape of their feature.

    Raises:
        ConfigError: an array has another shape.
    """
    if not isinstance(feature, _ARRAY_CLASSES):
        return
    for row, value in enumerate(values):
        if value is not None and not fits_shape(np.shape(value), feature.shape):
            raise ConfigError(
                f"column {name!r}, row {first_row + row}: expected shape {feature.shape}, "
                f"got {np.shape(value)}"
            )
