"""The words of Croissant 1.1 that documents are written with, and what values are called in it."""

from __future__ import annotations

import datetime
from typing import Any, Final

import numpy as np

from data_stack.dataset.iterator.declared_column import DeclaredColumn

__all__ = ["CONFORMS_TO", "CONTEXT", "FORMATS", "describe_type"]

CONFORMS_TO: Final = "http://mlcommons.org/croissant/1.1"

_OWN_WORDS = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject", "fileProperty"),
    *("fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
    *("references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
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
    **{word: f"cr:{word}" for word in _OWN_WORDS},
}

#: Media types of files with columns, by the endings of their names.
FORMATS: Final = {
    ".parquet": "application/x-parquet",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".jsonl": "application/jsonlines",
}

_KINDS = {"b": "sc:Boolean", "U": "sc:Text", "S": "sc:Text", "M": "sc:DateTime"}


def describe_type(value: Any, declared: DeclaredColumn | None) -> dict[str, Any]:
    """The ``dataType`` of a column, with ``isArray`` and ``arrayShape`` where its values are arrays.

    Args:
        value: one of them; None: there is none.
        declared: what a schema says of them; None: nothing.
    """
    if type(value).__module__.startswith("PIL."):
        return {"dataType": "sc:ImageObject"}
    array = np.asarray(value)
    dtype, shape = array.dtype, array.shape
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        dtype, shape = _dtype_named(declared.dtype), tuple(-1 if extent is None else extent for extent in declared.shape)
    if dtype.kind in "iuf" and dtype.itemsize <= 8:
        kind = f"cr:{ {'i': 'Int', 'u': 'UInt', 'f': 'Float'}[dtype.kind] }{8 * dtype.itemsize}"
    elif isinstance(value, datetime.date):
        kind = "sc:DateTime" if isinstance(value, datetime.datetime) else "sc:Date"
    else:
        kind = _KINDS.get(dtype.kind, "sc:Text")
    return {"dataType": kind} | ({"isArray": True, "arrayShape": ",".join(map(str, shape))} if shape else {})


def _dtype_named(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(object)
