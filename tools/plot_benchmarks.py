"""Draw the tables of ``benchmarks/README.md`` as bars, in colours that can be read on light and on
dark pages.

``python tools/plot_benchmarks.py`` writes the pictures of ``docs/fast_reading.md`` to
``docs/images``; ``tools/build_docs.py`` puts a plot of its targets below each table of the site.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "benchmarks" / "README.md"
IMAGES = ROOT / "docs" / "images"
OURS, OTHERS, PEER, LIMIT, MISSED, TEXT = (
    "#3f78d8",
    "#8fb0e6",
    "#8a949f",
    "#2f9458",
    "#d9822b",
    "#77818d",
)
NAMES = {
    OURS: "ours",
    OTHERS: "ours, other kinds",
    PEER: "peers",
    LIMIT: "by hand",
    MISSED: "worse than wanted",
}
QUANTITY = re.compile(r"(?<![\w.,])(-?\d[\d,]*(?:\.\d+)?)\s*([kM]\b)?\s*(MiB|MB|µs|ms|ns|s\b|%|×)?")
BOUND = re.compile(r"[≤≥]")
SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
MAX_TIMES = 30.0  # better or worse than wanted; longer bars end here
WIDTH, LEFT, RIGHT, ROW = 760, 250, 200, 20


@dataclass(frozen=True)
class Table:
    """A table of the page: the line behind it, its header and its rows."""

    end: int
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Bar:
    """A bar with what is written on its left and right; a label starts a new group."""

    label: str
    value: float
    text: str
    color: str


@dataclass(frozen=True)
class Chart:
    """Bars on one axis, from ``start``, or from the line at ``start`` to both sides on a
    logarithmic one; ``hand`` is a limit.
    """

    title: str
    bars: list[Bar] = field(default_factory=list)
    logarithmic: bool = False
    start: float = 0.0
    hand: float | None = None


def read_tables(text: str) -> list[Table]:
    """The tables of a Markdown page; a first cell that begins with … repeats what stands above it
    before a comma.
    """
    tables: list[Table] = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if re.fullmatch(r"\|[-:| ]+\|", line):
            end = next(
                (j for j in range(i, len(lines)) if not lines[j].startswith("|")), len(lines)
            )
            rows = [_cells(row) for row in lines[i + 1 : end]]
            for before, row in pairwise(rows):
                if row[0].startswith("…"):
                    row[0] = f"{re.split('[,:]', before[0])[0]}, {row[0][1:].strip()}"
            tables.append(Table(end, _cells(lines[i - 1]), rows))
    return tables


def chart_targets(table: Table) -> Chart:
    """How many times better than wanted each figure with a target is; a cell has several, between
    semicolons.
    """
    chart = Chart("times better than wanted", logarithmic=True, start=1.0)
    what, ours, ratio, target = (
        table.header.index(name) for name in ("what", "ours", "ratio", "target")
    )
    for row in table.rows:
        label = row[what]
        for wanted, found in zip(
            row[target].split(";"), row[ratio if row[ratio] else ours].split(";"), strict=False
        ):
            bound, goal, figure = (
                BOUND.search(wanted),
                QUANTITY.search(wanted),
                QUANTITY.search(found),
            )
            if bound is not None and goal is not None and figure is not None:
                times = max(_value(figure), 1e-9) / _value(goal)
                times = min(max(times if bound[0] == "≥" else 1 / times, 1 / MAX_TIMES), MAX_TIMES)
                shown = found.partition(", ")[0] if "×" in found else figure[0]
                text = f"{shown.strip()}, wanted {bound[0]} {goal[0].strip()}"
                chart.bars.append(Bar(label, times, text, OURS if times >= 1 else MISSED))
                label = ""
    return chart


def chart_training(tables: Sequence[Table]) -> Chart:
    """How near to the loop written by hand ours and the best peer come."""
    table, chart = (
        _table(tables, "what"),
        Chart("speed of whole training programs, relative to a loop written by hand", hand=1.0),
    )
    for row in table.rows:
        figures = [QUANTITY.search(cell) for cell in row[1:4]]
        if figures[0] and figures[1] and row[1].endswith("/s"):
            for name, color, figure in (
                ("ours", OURS, figures[0]),
                (re.split(r" \d", row[3])[0], PEER, figures[2]),
            ):
                if figure:
                    stated = re.search(r"([\d.]+) × limit", row[4]) if name == "ours" else None
                    share = float(stated[1]) if stated else _value(figure) / _value(figures[1])
                    text = f"{name} {share:.2f}" if share >= 0.01 else f"{name} {share:.4f}"
                    chart.bars.append(Bar(row[0] if name == "ours" else "", share, text, color))
    return chart


def chart_images(tables: Sequence[Table]) -> Chart:
    """Samples per second of each program that trains on JPEGs, the fastest first."""
    rows = sorted(_table(tables, "program").rows, key=lambda row: -_quantity(row[1]))
    chart = Chart("JPEGs of 500 × 375, decoded, cropped, in batches: samples/s")
    for row in rows:
        color = (
            OURS if row[0].startswith("ours") else LIMIT if row[0].startswith("by hand") else PEER
        )
        chart.bars.append(
            Bar(
                row[0],
                _quantity(row[1]),
                f"{row[1]}/s, {row[2]} MiB" if row[2] else f"{row[1]}/s",
                color,
            )
        )
    return chart


def chart_workers(tables: Sequence[Table]) -> Chart:
    """Each kind of workers by kind of work, relative to the best."""
    table, chart = (
        _table(tables, "work"),
        Chart("samples/s by kind of workers, relative to the best kind"),
    )
    for row in table.rows:
        kinds = [
            (name, cell)
            for name, cell in zip(table.header[1:], row[1:], strict=True)
            if QUANTITY.search(cell)
        ]
        best = max(_quantity(cell) for name, cell in kinds if name != "torch")
        for i, (name, cell) in enumerate(kinds):
            value = _quantity(cell)
            color = PEER if name == "torch" else OURS if value == best else OTHERS
            chart.bars.append(Bar("" if i else row[0], value / best, f"{name} {cell}", color))
    return chart


def chart_orders(tables: Sequence[Table]) -> Chart:
    """What an epoch over the network moves by order."""
    table = _table(tables, "order")
    chart = Chart("an epoch over HTTP: bytes moved, in sizes of the dataset")
    for column in (1, 2):
        for i, row in enumerate(table.rows):
            value = _quantity(row[column])
            text = f"{row[0]} {row[column]}"
            chart.bars.append(
                Bar("" if i else table.header[column], value, text, MISSED if value > 1.2 else OURS)
            )
    return chart


PICTURES: dict[str, Callable[[Sequence[Table]], Chart]] = {
    "speed_training": chart_training,
    "speed_images": chart_images,
    "speed_workers": chart_workers,
    "speed_orders": chart_orders,
}


def _table(tables: Sequence[Table], first: str) -> Table:
    return next(table for table in tables if table.header[0] == first)


def _cells(line: str) -> list[str]:
    return [re.sub(r"[*`$]", "", cell).strip() for cell in line.strip().strip("|").split("|")]


def _value(quantity: re.Match[str]) -> float:
    return (
        float(quantity[1].replace(",", ""))
        * SCALES[quantity[2] or ""]
        * SCALES.get(quantity[3] or "", 1.0)
    )


def _quantity(cell: str) -> float:
    found = QUANTITY.search(cell)
    if found is None:
        raise ValueError(f"no figure in the cell {cell!r} of {README}")
    return _value(found)


def draw(chart: Chart) -> str:
    """A chart as SVG."""
    ends = [bar.value for bar in chart.bars] + [chart.start, chart.hand or chart.start]
    scale = math.log if chart.logarithmic else float
    lowest, highest = scale(min(ends)), scale(max(ends))
    plane = (WIDTH - LEFT - RIGHT) / (highest - lowest or 1.0)
    origin, top, lines = LEFT + (scale(chart.start) - lowest) * plane, 54.0, []
    hand = LEFT + (scale(chart.hand) - lowest) * plane if chart.hand is not None else 0.0
    for i, bar in enumerate(chart.bars):
        top += 8 if bar.label and i else 0
        end = LEFT + (scale(bar.value) - lowest) * plane
        left, width = min(origin, end), max(abs(end - origin), 1.0)
        lines.append(
            f'<rect x="{left:.1f}" y="{top:.0f}" width="{width:.1f}" height="{ROW - 5}" rx="2" fill="{bar.color}"/>'
        )
        beside = max(
            origin, end, hand if end > hand - 66 else 0.0
        )  # text does not cross the line of the limit
        lines.append(_text(beside + 6, top + 12, bar.text))
        lines.append(
            _text(LEFT - 8, top + 12, _shorten(bar.label, 36), anchor="end") if bar.label else ""
        )
        top += ROW
    legend, x = [], float(LEFT)
    for color in dict.fromkeys(
        [bar.color for bar in chart.bars] + [LIMIT] * (chart.hand is not None)
    ):
        legend.append(
            f'<rect x="{x:.0f}" y="32" width="11" height="11" rx="2" fill="{color}"/>{_text(x + 16, 42, NAMES[color])}'
        )
        x += 34 + 7 * len(NAMES[color])
    font = 'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 10:.0f}" role="img" {font}>'
    axis = f'<path d="M{origin:.1f} 50 V{top:.0f}" stroke="{TEXT}"/>'
    if chart.hand is not None:
        axis += f'<path d="M{hand:.1f} 50 V{top:.0f}" stroke="{LIMIT}" stroke-width="2" stroke-dasharray="4 3"/>'
    title = f"<title>{html.escape(chart.title)}</title>{_text(LEFT, 20, chart.title, weight=600)}"
    return "\n".join([start, title, *legend, *filter(None, lines), axis, "</svg>", ""])


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: int = 400) -> str:
    return f'<text x="{x:.1f}" y="{y:.0f}" fill="{TEXT}" text-anchor="{anchor}" font-weight="{weight}">{html.escape(text)}</text>'


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def plot_targets(folder: Path) -> list[tuple[int, str]]:
    """Plot the targets of every table that has some; return the line behind each table, and the
    name of its plot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plots = []
    for i, table in enumerate(read_tables(README.read_text(encoding="utf-8"))):
        chart = chart_targets(table) if table.header[0] == "what" else Chart("")
        if chart.bars:
            (folder / f"table-{i}.svg").write_text(draw(chart), encoding="utf-8")
            plots.append((table.end, f"table-{i}.svg"))
    return plots


def main() -> None:
    """Write the pictures of the documentation."""
    tables = read_tables(README.read_text(encoding="utf-8"))
    for name, chart in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw(chart(tables)), encoding="utf-8")


if __name__ == "__main__":
    main()
