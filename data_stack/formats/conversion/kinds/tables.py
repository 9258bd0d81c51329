"""Files of one table or array, which :func:`data_stack.load` reads and no conversion writes."""

from __future__ import annotations

from data_stack.formats.conversion.format import Format, register_format


@register_format
class CSVFormat(Format):
    """Comma- or tab-separated values with a header; :func:`data_stack.from_csv` reads them."""

    name = "csv"
    suffixes = {".csv": "text/csv", ".tsv": "text/tab-separated-values"}
    is_streamed = True
    options = frozenset({"dtypes", "delimiter", "encoding", "missing"})


@register_format
class JsonLinesFormat(Format):
    """A JSON object per line; :func:`data_stack.from_jsonl` reads them."""

    name = "jsonl"
    suffixes = {".jsonl": "application/jsonlines", ".ndjson": "application/x-ndjson"}
    is_streamed = True
    options = frozenset({"dtypes"})


@register_format
class NpyFormat(Format):
    """One array of NumPy."""

    name = "npy"
    suffixes = {".npy": "application/x-npy"}
