"""The words of Croissant 1.1 for documents, files and values."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any, Final

import numpy as np

from data_stack.dataset.iterator.access import DeclaredColumn

CONFORMS_TO: Final = "http://mlcommons.org/croissant/1.1"

_OWN_WORDS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate "
    "separator source subField transform"
)
_LANGUAGES: Final = {"@container": "@language"}

#: The ``@context`` that https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html asks for.
CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": _LANGUAGES,
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": _LANGUAGES,
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{word: f"cr:{word}" for word in _OWN_WORDS.split()},
}

_KINDS = {"b": "sc:Boolean", "i": "cr:Int", "u": "cr:UInt", "f": "cr:Float", "M": "sc:DateTime"}


def describe_type(value: Any, declared: DeclaredColumn | None) -> dict[str, Any]:
    """The ``dataType`` of a column, with ``isArray`` and ``arrayShape`` where its values are arrays.

    Args:
        value: one of them; None if missing.
        declared: their type in a schema; None if the schema has none.
    """
    if type(value).__module__.startswith("PIL."):
        return {"dataType": "sc:ImageObject"}
    array = np.asarray(value)
    dtype, shape = array.dtype, array.shape
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        shape = tuple(-1 if extent is None else extent for extent in declared.shape)
        with contextlib.suppress(TypeError):  # of a name that numpy does not know
            dtype = np.dtype(declared.dtype)
    kind = _KINDS.get(dtype.kind, "sc:Text")
    if isinstance(value, datetime.date):
        kind = "sc:DateTime" if isinstance(value, datetime.datetime) else "sc:Date"
    kind += str(8 * dtype.itemsize) * kind.startswith("cr:")
    return {"dataType": kind} | ({"isArray": True, "arrayShape": ",".join(map(str, shape))} if shape else {})
