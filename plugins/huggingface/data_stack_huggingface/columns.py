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
from data_stack.dataset.iterator import access_to
from data_stack.exception import CatalogueSchemaError, ConfigError
from data_stack.values.stacked_values import stack_values
from data_stack_huggingface.cast_encoder import CastEncoder, arrow_type_of, check_cast
from data_stack_huggingface.layout import info_of

if TYPE_CHECKING:
    import pyarrow as pa

    from data_stack.formats.parquet import Field, ParquetDataset

_LISTS = ("List", "Sequence", "LargeList")
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
        if array.dtype == object:
            array = self._without_none(array)
        cast = self._cast(array)
        return cast.reshape(self._shape) if self._shape else cast if cast.ndim else cast[()]

    def _without_none(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Numbers among which None is NaN.

        Raises:
            TypeError: None among integers, or values that are no numbers.
        """
        has_nan = np.dtype(self._dtype).kind == "f"
        numbers = [
            np.nan if value is None and has_nan else value for value in array.reshape(-1).tolist()
        ]
        stacked = stack_values(numbers)
        if stacked.dtype == object:
            raise TypeError(f"no numbers of {self._dtype}: {array!s:.80}")
        return stacked.reshape(array.shape)

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
    """Return the features in the ``dataset_info`` of a card in the same form; ``config`` as for :func:`info_of`.

    Raises:
        CatalogueSchemaError: a class id has no name.
    """
    try:
        return _features(_listed(card, config))
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
        inner: Any = content
        if isinstance(content, str):
            inner = {"dtype": content}
        elif isinstance(content, list) and kind != "sequence":  # which would be a dict of lists
            inner = {"struct": content}
        listed = {
            "_type": "LargeList" if kind == "large_list" else "List",
            "feature": _feature(inner) if isinstance(inner, dict) else {},
        }
        return {**listed, "length": given["length"]} if "length" in given else listed
    if kind == "struct" and isinstance(content, list):
        return _features(content)
    if kind == "class_label" and isinstance(names := content.get("names"), dict):
        return {"_type": "ClassLabel", "names": _names_of_ids(names)}
    return {**content, "_type": _camel(kind)} if isinstance(content, dict) else {}


def _features(listed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Features by name of a list of them."""
    return {
        str(each["name"]): _feature({key: each[key] for key in each if key != "name"})
        for each in listed
    }


def _names_of_ids(names: Mapping[Any, Any]) -> list[Any]:
    """The names of classes in the order of their ids.

    Raises:
        CatalogueSchemaError: an id is missing, so that other ids would get its name.
    """
    by_id = {int(key): name for key, name in names.items()}
    missing = sorted(set(range(len(by_id))) - by_id.keys())
    if missing:
        raise CatalogueSchemaError(
            f"the card has names for the class ids {sorted(by_id)!s:.200}, but not for {missing[0]}: report it to its owner"
        )
    return [by_id[number] for number in range(len(by_id))]


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def encoders_of(
    rows: ParquetDataset, features: Mapping[str, Any], place: str, image_mode: str | None = None
) -> dict[int | str, Encoder]:
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
    encoders: dict[int | str, Encoder] = {}
    declared = access_to(rows).declare_columns() or {}
    for name, feature in features.items() if not differing else ():
        try:
            is_nullable = name not in declared or declared[name].is_nullable
            encoder = _encoder_of(rows.schema[name], feature, image_mode, is_nullable)
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
    field: Field, feature: Mapping[str, Any], image_mode: str | None, is_nullable: bool
) -> Encoder | None:
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
    dtype = "int64" if kind == "ClassLabel" else _dtype_of(feature)
    has_numbers = isinstance(field.dtype, np.dtype) and field.dtype.kind in "iuf"
    if dtype in _NUMBERS and has_numbers:
        return None if field.dtype == dtype else HubEncoder(None, dtype)
    return _cast_encoder_of(type_, feature, is_nullable)


def _dtype_of(feature: Mapping[str, Any]) -> str | None:
    """The dtype of a value, or of the values of a list; None of other features."""
    inner = feature.get("feature") if feature.get("_type") in _LISTS else feature
    if not isinstance(inner, Mapping) or inner.get("_type") != "Value":
        return None
    return str(inner.get("dtype"))


def _cast_encoder_of(
    stored: pa.DataType, feature: Mapping[str, Any], is_nullable: bool
) -> CastEncoder | None:
    """Return an encoder that casts; None where the values have the declared type, or are no plain ones.

    Raises:
        ConfigError: Arrow does not cast the stored type to the declared one.
    """
    from data_stack.formats.parquet.types import describe_type

    declared = arrow_type_of(feature)
    described = describe_type(stored)
    if declared is None or describe_type(declared) == described:
        return None
    check_cast(stored, declared)
    return CastEncoder(described, feature, is_nullable)


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
