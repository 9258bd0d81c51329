"""Writes a dataset as one HTML file, without a server or JavaScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.browse.query import compare
from data_stack.browse.table import Table as Samples
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.reproduce.dataset_report import DatasetReport
from data_stack.show.markup import (
    Beside,
    Block,
    Facts,
    Fold,
    Heading,
    Paragraph,
    Rich,
    Table,
    as_html,
    bar,
    readable,
    whole_page,
)
from data_stack.show.page import IteratorPage

_N_SAMPLES: Final = 48
_N_BYTES: Final = 1_100_000  # of all pictures, before base64
_MAX_COLUMNS: Final = 24
_MAX_VALUES: Final = 24
_MAX_SPLITS: Final = 6
_COLUMN_SECONDS: Final = 2.0
_WIDTH, _HEIGHT = 240, 48


def page_of(report: DatasetReport) -> str:
    """The page of a prepared dataset, at most 2 MB; its values are escaped."""
    about = report.description
    shown = dict(list(report.iterators.items())[:_MAX_SPLITS])
    blocks: list[Block] = [*about.header(1), Facts(about.facts())]
    if report.duplicates is not None:
        blocks += report.duplicates.document(2)
    for name, iterator in shown.items():
        page = IteratorPage(iterator, _N_SAMPLES // len(shown), _N_BYTES // len(shown))
        blocks += [Heading(2, readable(name)), *page.facts(), *page.samples()]
    if columns := _columns({name: iterator for name, iterator in shown.items() if len(iterator)}):
        blocks += [Heading(2, "Columns"), Beside(columns)]
    blocks.append(Fold("Report: shapes, classes, files and checksums", report.document(2)))
    return whole_page(about.name, as_html(blocks))


def _columns(splits: Mapping[str, DatasetIteratorIF]) -> list[list[Block]]:
    """The values of each column in all splits."""
    tables = [Samples(iterator) for iterator in splits.values()]
    names = dict.fromkeys(table.columns[number].name for table in tables for number in table.plain_columns())
    return [
        [Heading(3, name), *_values(list(splits), compare(tables, name, _COLUMN_SECONDS))] for name in list(names)[:_MAX_COLUMNS]
    ]


def _values(splits: Sequence[str], found: Mapping[str, Any]) -> list[Block]:
    """Bars of a column's values or ranges, side by side for each split."""
    bars, n_read = found["bars"], found["n_read"]
    notes = [] if found["is_complete"] else [Paragraph(f"from {sum(n_read):,} samples")]
    if found["kind"] == "ranges":
        ranges = [bar for bar in bars if "values" not in bar["where"]]
        ends = f"{ranges[0]['label'].partition(' – ')[0]} … {ranges[-1]['label'].rpartition(' – ')[2]}"
        rows = [[readable(split), _chart([bar["counts"][number] for bar in ranges])] for number, split in enumerate(splits)]
        return [Table(["", ends], rows), *notes]
    if found["kind"] == "texts" or not bars:
        return [Paragraph(f"{found['n_distinct']:,} different values"), *notes]
    most = max(count / max(1, n) for each in bars for count, n in zip(each["counts"], n_read, strict=True))
    rows = []
    for each in bars[:_MAX_VALUES]:
        shares = [count / max(1, n) / most for count, n in zip(each["counts"], n_read, strict=True)]
        cells = [(f"{count:,}", bar(share)) for count, share in zip(each["counts"], shares, strict=True)]
        rows.append([each["label"], *(cell for pair in cells for cell in pair)])
    n_more = found["n_distinct"] - _MAX_VALUES
    more = [Paragraph(f"… {n_more:,} more values")] if n_more > 0 else []
    header = ["", *(part for split in splits for part in (readable(split), ""))]
    return [Table(header, rows, frozenset(range(1, len(header), 2))), *more, *notes]


def _chart(counts: Sequence[int]) -> Rich:
    """Counts as columns side by side."""
    width, most = _WIDTH / len(counts), max(1, *counts)
    heights = [count / most * _HEIGHT for count in counts]
    columns = "".join(
        f'<rect x="{place * width:.1f}" y="{_HEIGHT - height:.1f}" width="{width - 1:.1f}" height="{height:.1f}"/>'
        for place, height in enumerate(heights)
    )
    return Rich(
        " ".join(map(str, counts)), f'<svg width="{_WIDTH}" height="{_HEIGHT}" style="fill: var(--accent)">{columns}</svg>'
    )
