"""What the Hub says of columns (its *features*), as encoders of columns and as the meta of a dataset."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack import IteratorMeta
from data_stack.codecs.images import pillow
from data_stack.dataset.encoders import Encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import CatalogueSchemaError
from data_stack.formats.parquet import ParquetDataset
from data_stack.util.request_limit import check_request
from data_stack.util.stacked_values import stack_values
from data_stack.util.untrusted_text import parse_json

#: Modes of images whose values are the pixels; palettes, inks and the like are converted.
_MODES = ("L", "LA", "RGB", "RGBA", "I;16")


class HubEncoder(Encoder):
    """Images of the Hub, dicts of ``bytes`` and ``path``, as arrays, uint8 ``(height, width[, channels])``; or lists as arrays.

    Args:
        mode: of Pillow, to convert images to; None: as they are stored.
        dtype: of arrays; None: the values are images.
        shape: of arrays.
    """

    kind = "huggingface"

    def __init__(self, mode: str | None = None, dtype: str | None = None, shape: Sequence[int] = ()) -> None:
        self._mode, self._dtype, self._shape, self._learned = mode, dtype, tuple(shape), {}

    def config(self) -> dict[str, Any]:
        """What it was made with."""
        return {"mode": self._mode, "dtype": self._dtype, "shape": list(self._shape)}

    def _transform(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values = []
        for place, value in enumerate(column):
            try:
                values.append(None if value is None else self._decode(value))
            except (OSError, SyntaxError, TypeError, ValueError, pillow().DecompressionBombError) as error:
                raise EncodingError(f"it is no {self._dtype or 'image'} with bytes: {error!s:.200}", place) from error
        return stack_values(values)

    def _decode(self, value: Any) -> npt.NDArray[Any]:
        if self._dtype is not None:
            return np.asarray(value, self._dtype).reshape(self._shape)
        with pillow().open(io.BytesIO(value["bytes"])) as opened:
            check_request(3 * math.prod(opened.size), f"an image of {opened.width} x {opened.height} pixels")
            image = pillow("ImageOps").exif_transpose(opened)
            wanted = self._mode or (image.mode if image.mode in _MODES else "RGB")
            return np.array(image if image.mode == wanted else image.convert(wanted))


def features_of_files(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The features that Parquet files carry in their metadata, by column; empty if they carry none."""
    try:
        features = parse_json(metadata[b"huggingface"])["info"]["features"].items()
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return {name: each if isinstance(each, dict) else {} for name, each in features}


def features_of_card(card: Mapping[str, Any], config: str | None) -> dict[str, Any]:
    """The features in the ``dataset_info`` of a card in the same form, as far as samples depend on them."""
    infos, found = card.get("dataset_info") or [], dict[str, Any]()
    try:
        for info in infos if isinstance(infos, list) else [infos]:
            for each in info["features"] if info.get("config_name", "default") == (config or "default") else ():
                dtype = each.get("dtype")
                names = dtype["class_label"]["names"] if isinstance(dtype, dict) and "class_label" in dtype else None
                listed = [names[key] for key in sorted(names, key=int)] if isinstance(names, dict) else names
                kind = {"_type": "Image"} if dtype == "image" else {}
                found[each["name"]] = {"_type": "ClassLabel", "names": listed} if listed else kind
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    return found


def encoders_of(rows: ParquetDataset, features: Mapping[str, Any], place: str) -> dict[int | str, HubEncoder]:
    """The encoders of the columns whose values are not as Parquet has them.

    Args:
        rows: of the files.
        features: by column; empty if there are none.
        place: names the files in errors.

    Raises:
        CatalogueSchemaError: the files have other columns than the features say, or than the first of them.
    """
    differing = rows.all_columns ^ (features or rows.schema.fields).keys()
    encoders: dict[int | str, HubEncoder] = {}
    for name, feature in features.items() if not differing else ():
        type_, kind, shape = rows.schema[name].arrow_type(), str(feature.get("_type")), feature.get("shape")
        is_file = pa.types.is_struct(type_) and type_.get_field_index("bytes") >= 0
        if (kind == "Image" and not is_file) or (kind == "ClassLabel" and not pa.types.is_integer(type_)):
            differing = {f"{name}: {kind} is stored as {type_!s:.60}"}
        elif kind == "Image":
            encoders[name] = HubEncoder(feature.get("mode"))
        elif kind.startswith("Array") and isinstance(shape, list) and None not in shape:
            encoders[name] = HubEncoder(None, feature.get("dtype"), shape)
    if differing:
        raise CatalogueSchemaError(f"{place} has other columns than its features say ({', '.join(differing)}): tell its owner")
    return encoders


def parts_of(features: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The ``iterator_meta`` and ``class_names`` of a dataset.

    The only ClassLabel is the target; the only image, or else the first column that is no ClassLabel, the sample.
    """
    kinds = {name: features.get(name, {}).get("_type") for name in names}
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    images = [name for name, kind in kinds.items() if kind == "Image"]
    samples = images if len(images) == 1 else [name for name in names if name not in labels]
    target = labels[0] if len(labels) == 1 else 1
    meta = IteratorMeta(samples[0] if samples else 0, target)
    return {"iterator_meta": meta, "class_names": features.get(str(target), {}).get("names")}
