"""Encoders and meta of a dataset, from the Hub's descriptions of columns (*features*)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack import IteratorMeta
from data_stack.codecs.fitting import as_dtype
from data_stack.codecs.images import decode_image
from data_stack.dataset.encoders import Encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import CatalogueSchemaError, ConfigError
from data_stack.values.stacked_values import stack_values
from data_stack_huggingface.layout import info_of

if TYPE_CHECKING:
    from data_stack.formats.parquet import Field, ParquetDataset

_NUMBERS = frozenset(
    f"{kind}{n_bits}" for kind in ("int", "uint", "float") for n_bits in (8, 16, 32, 64)
) - {"float8"}


class HubEncoder(Encoder):
    """Converts values by their feature: images to arrays, lists to arrays of a shape, names of classes to numbers.

    Images are files, or dicts of ``bytes`` and ``path``; for their arrays see :mod:`data_stack.codecs.images`.

    Args:
        mode: mode of Pillow to convert images to; None: no conversion.
        dtype: dtype of numbers or arrays; None: the values are images, or names of classes.
        shape: shape of arrays; empty: that of the value.
        names: names of classes.
    """

    kind = "huggingface"

    def __init__(
        self,
        mode: str | None = None,
        dtype: str | None = None,
        shape: Sequence[int] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._mode, self._dtype, self._shape, self._names, self._learned = (
            mode,
            dtype,
            tuple(shape),
            tuple(names),
            {},
        )

    def config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "mode": self._mode,
            "dtype": self._dtype,
            "shape": list(self._shape),
            "names": list(self._names),
        }

    def _transform(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._dtype is not None and not self._shape and column.dtype != object:
            with contextlib.suppress(ValueError):  # the loop below finds the value
                return self._cast(column)
        values = []
        for place, value in enumerate(column):
            try:
                values.append(None if value is None else self._decode(value))
            except (TypeError, ValueError) as error:
                is_image = self._dtype is None and not self._names
                what = (
                    "an image with bytes" if is_image else f"a value of {self._dtype or 'a class'}"
                )
                raise EncodingError(f"expected {what}: {error!s:.200}", place) from error
        return stack_values(values)

    def _decode(self, value: Any) -> Any:
        if self._names:
            if value not in self._names:
                raise ValueError(f"{value!r:.80} is not one of {self._names!s:.200}")
            return np.int64(self._names.index(value))
        if self._dtype is None:
            return decode_image(value if isinstance(value, bytes) else value["bytes"], self._mode)
        array = np.asarray(value)
        cast = (
            self._cast(array) if array.dtype != object else array.astype(self._dtype)
        )  # None becomes NaN in floats
        return cast.reshape(self._shape) if self._shape else cast if cast.ndim else cast[()]

    def _cast(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return as_dtype(array, np.dtype(self._dtype), rounds=True, whole_floats=True)


def features_of_files(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the features in the metadata of Parquet files, by column; may be empty."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"].items()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}
    return {name: each if isinstance(each, dict) else {} for name, each in features}


def features_of_card(card: Mapping[str, Any], config: str | None) -> dict[str, Any]:
    """Return the features in the ``dataset_info`` of a card in the same form; ``config`` as for :func:`info_of`."""
    try:
        return {
            str(each["name"]): _feature({key: each[key] for key in each if key != "name"})
            for each in _listed(card, config)
        }
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return {}


def _listed(card: Mapping[str, Any], config: str | None) -> Sequence[Mapping[str, Any]]:
    return info_of(card, config).get("features") or ()


def _feature(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a feature of a card, ``{"dtype": "int32"}`` or ``{"list": "int32"}``, to the form in files."""
    kind, content = next(iter(given.items()))
    if kind == "dtype" and isinstance(content, dict):
        return _feature(content)
    if kind == "dtype":
        return (
            {"_type": _camel(content)}
            if content in ("image", "audio", "video")
            else {"_type": "Value", "dtype": content}
        )
    if kind in ("list", "sequence", "large_list"):
        inner = {"dtype": content} if isinstance(content, str) else content
        return {"_type": "List", "feature": _feature(inner) if isinstance(inner, dict) else {}}
    if kind == "class_label" and isinstance(names := content.get("names"), dict):
        return {"_type": "ClassLabel", "names": [names[key] for key in sorted(names, key=int)]}
    return {**content, "_type": _camel(kind)} if isinstance(content, dict) else {}


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def encoders_of(
    rows: ParquetDataset, features: Mapping[str, Any], place: str, image_mode: str | None = None
) -> dict[int | str, HubEncoder]:
    """Return encoders for the columns whose values differ from Parquet's.

    Args:
        rows: rows of the files.
        features: features by column; may be empty.
        place: name of the files for errors.
        image_mode: mode of Pillow to convert images to; None: that of their feature, or no conversion.

    Raises:
        CatalogueSchemaError: the columns of a file differ from the features, or from those of the first file.
    """
    differing = rows.all_columns ^ (features or rows.schema.fields).keys()
    encoders: dict[int | str, HubEncoder] = {}
    for name, feature in features.items() if not differing else ():
        try:
            encoder = _encoder_of(rows.schema[name], feature, image_mode)
        except ConfigError as error:
            differing = {f"{name}: {error}"}
            continue
        if encoder is not None:
            encoders[name] = encoder
    if differing:
        raise CatalogueSchemaError(
            f"{place} has columns that differ from its features ({', '.join(differing)}): report it to its owner"
        )
    return encoders


def _encoder_of(
    field: Field, feature: Mapping[str, Any], image_mode: str | None
) -> HubEncoder | None:
    """Return the encoder of a column; None if its values need none.

    Raises:
        ConfigError: the type of the column differs from the feature.
    """
    import pyarrow as pa

    type_, kind, shape = field.arrow_type(), str(feature.get("_type")), feature.get("shape")
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    if kind == "Image":
        is_file = pa.types.is_struct(type_) and type_.get_field_index("bytes") >= 0
        if not is_file and not pa.types.is_binary(type_) and not pa.types.is_large_binary(type_):
            raise ConfigError(f"Image is stored as {type_!s:.60}")
        return HubEncoder(image_mode or feature.get("mode"))
    if kind == "ClassLabel" and is_text and feature.get("names"):
        return HubEncoder(names=feature["names"])
    if kind == "ClassLabel" and not pa.types.is_integer(type_):
        raise ConfigError(f"ClassLabel is stored as {type_!s:.60}")
    if kind.startswith("Array") and isinstance(shape, list) and None not in shape:
        return HubEncoder(None, feature.get("dtype"), shape)
    inner = feature.get("feature") if kind in ("List", "Sequence", "LargeList") else feature
    dtype = (
        "int64" if kind == "ClassLabel" else inner.get("dtype") if isinstance(inner, dict) else None
    )
    is_other = (
        dtype in _NUMBERS
        and isinstance(field.dtype, np.dtype)
        and field.dtype.kind in "iuf"
        and field.dtype != dtype
    )
    return HubEncoder(None, dtype) if is_other else None


def parts_of(features: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the ``iterator_meta`` and ``class_names`` of a dataset.

    The only ClassLabel is the target. The sample is the only image, or the first column that is not a ClassLabel.
    """
    kinds = {name: features.get(name, {}).get("_type") for name in names}
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    images = [name for name, kind in kinds.items() if kind == "Image"]
    samples = images if len(images) == 1 else [name for name in names if name not in labels]
    target = labels[0] if len(labels) == 1 else 1
    meta = IteratorMeta(samples[0] if samples else 0, target)
    return {"iterator_meta": meta, "class_names": features.get(str(target), {}).get("names")}
