"""Plot the tables of ``benchmarks/README.md`` as bars: ours, peers and limits, for light and for dark pages.

``python tools/plot_benchmarks.py FOLDER`` writes them; ``tools/build_docs.py`` puts each below its table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

README = Path(__file__).parent.parent / "benchmarks" / "README.md"
OURS, PEER, LIMIT, MISSED, TEXT = "#2f6fdf", "#9aa3ad", "#5f6670", "#d9822b", "#1b1c1d"
DARK = {OURS: "#6ea1ff", PEER: "#6f7882", LIMIT: "#aab2bb", MISSED: "#f0a050", TEXT: "#d8dadd"}
LIMITS = ("memory map", "take", "decoder", "bare", "`numpy.random.permutation`", "before", "full shuffle")
QUANTITY = re.compile(r"(?<![\w.,])(-?\d[\d,]*(?:\.\d+)?)\s*([kM](?![\w]))?\s*(MiB|MB|µs|ms|ns|s\b|%|×|x\b)?")
BOUND = re.compile(r"[≤≥<>]")
SCALES = {"": 1.0, "k": 1e3, "M": 1e6}
WIDEST = 100.0  # times better or worse than wanted; longer bars end here


@dataclass(frozen=True)
class Table:
    """A table of the page: the line behind it, its header and its rows."""

    end: int
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Bar:
    """A bar with what is written beside it."""

    label: str
    value: float
    text: str
    color: str


@dataclass(frozen=True)
class Panel:
    """Bars on one axis; ``goal`` draws the line at 1, to the right of which a target is met."""

    title: str
    bars: list[Bar]
    goal: bool = False


def read_tables(text: str) -> list[Table]:
    """The tables of a Markdown page; empty cells of the first column repeat the one above."""
    tables: list[Table] = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if re.fullmatch(r"\|[-:| ]+\|", line):
            end = next((j for j in range(i, len(lines)) if not lines[j].startswith("|")), len(lines))
            rows = [_cells(row) for row in lines[i + 1 : end]]
            for before, row in pairwise(rows):
                row[0] = row[0] if row[0] not in ("", "…", "the same") else before[0]
            tables.append(Table(end, _cells(lines[i - 1]), rows))
    return tables


def make_panels(table: Table) -> list[Panel]:
    """How a table is drawn: against targets, ours beside others, or one panel a column."""
    header = [cell.lower() for cell in table.header]
    figures = [i for i, cell in enumerate(header) if cell in ("ratio", "figure")]
    goals = [i for i, cell in enumerate(header) if cell in ("target", "wanted") and i > 0]
    if figures and goals:
        return [Panel("times better than wanted", list(_bars_of_targets(table, figures[0], goals[0])), goal=True)]
    if {"ours", "before"} & set(header):
        return [Panel("", list(_bars_of_series(table, [i for i in range(1, len(header)) if i not in goals and header[i]])))]
    return [panel for i in range(1, len(header)) if i not in goals for panel in _panels_of_column(table, i)]


def _bars_of_targets(table: Table, figure: int, goal: int) -> Iterator[Bar]:
    for row in table.rows:
        bound = BOUND.search(row[goal])
        wanted = QUANTITY.search(row[goal], bound.end()) if bound else None
        if bound is None or wanted is None:
            continue
        found = [q for cell in (row[figure], row[1]) for q in QUANTITY.finditer(cell) if _unit(q) == _unit(wanted)]
        if found:
            value, limit = max(_value(found[0]), 1e-9), _value(wanted)
            times = limit / value if bound[0] in "≤<" else value / limit
            label = " · ".join(dict.fromkeys(cell for cell in (row[0], row[1] if row[1][:1].isalpha() else "") if cell))
            against = f" ({_shorten(row[2].partition(':')[0], 34)})" if row[2] else ""
            text = f"{found[0][0].strip()}{against}, wanted {row[goal][bound.start() : wanted.end()].strip()}"
            yield Bar(label, min(max(times, 1 / WIDEST), WIDEST), text, OURS if times >= 1 else MISSED)


def _bars_of_series(table: Table, columns: Sequence[int]) -> Iterator[Bar]:
    for row in table.rows:
        parts = [re.split(r";|, (?=\d)", row[i]) for i in columns]
        count = len(parts[0]) if len({len(part) for part in parts if part != ["–"]}) == 1 else 1
        names = [name.strip() for name in re.split(r";", row[0].partition(": ")[2])] if count > 1 else []
        for k in range(count):
            label = f"{row[0].partition(': ')[0]}: {names[k]}" if len(names) == count else "" if k else row[0]
            for i, part in zip(columns, parts, strict=True):
                quantity = QUANTITY.search(part[k]) if k < len(part) else None
                if quantity is not None and _value(quantity) > 0:
                    series = table.header[i]
                    yield Bar(label, _value(quantity), f"{series} {part[k].strip()}".replace("best peer ", ""), _color(series))
                    label = ""


def _panels_of_column(table: Table, column: int) -> list[Panel]:
    """A panel for each unit of a column."""
    panels: dict[str, Panel] = {}
    has_peers = any(row[0].startswith("ours") for row in table.rows)
    for row in table.rows:
        quantity = QUANTITY.search(row[column]) if column < len(row) else None
        if quantity is not None:
            color = _color(row[0] if has_peers or row[0].startswith(LIMITS) else "ours")
            panel = panels.setdefault(_unit(quantity), Panel(table.header[column], []))
            panel.bars.append(Bar(row[0], _value(quantity), row[column].strip("*"), color))
    return [*panels.values()]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _value(quantity: re.Match[str]) -> float:
    return float(quantity[1].replace(",", "")) * SCALES[quantity[2] or ""]


def _unit(quantity: re.Match[str]) -> str:
    return "" if quantity[3] in ("×", "x", None) else str(quantity[3])


def _color(name: str) -> str:
    if name.startswith(("ours", "after")):
        return OURS
    return LIMIT if name.startswith(LIMITS) else PEER


def draw(panels: Sequence[Panel], file: Path) -> None:
    """Draw panels, two beside each other where their labels are short, as ``NAME-light.svg`` and ``NAME-dark.svg``."""
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": file.name,
        "font.size": 9,
        "font.family": "sans-serif",
        "text.color": TEXT,
    }
    columns = 1 if max(len(bar.label) for panel in panels for bar in panel.bars) > 40 else 2
    lines = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    rows = [max(len(panel.bars) for panel in line) for line in lines]
    with mpl.rc_context(style):
        figure = Figure(figsize=(10, sum(0.5 + 0.24 * count for count in rows)), layout="constrained")
        grid = figure.add_gridspec(len(lines), len(lines[0]), height_ratios=[count + 2 for count in rows])
        for i, line in enumerate(lines):
            for j, panel in enumerate(line):
                _draw_panel(figure.add_subplot(grid[i, j]), panel, rows[i])
        figure.supxlabel("logarithmic; blue: ours, dark: limits or before, light: peers, orange: short of the target", fontsize=7)
        light = file.with_name(f"{file.name}-light.svg")
        figure.savefig(light, transparent=True, metadata={"Date": None})
    svg = light.read_text(encoding="utf-8")
    file.with_name(f"{file.name}-dark.svg").write_text(
        re.sub("|".join(DARK), lambda color: DARK[color[0]], svg), encoding="utf-8"
    )


def _draw_panel(axes: Axes, panel: Panel, rows: int) -> None:
    bars, start = panel.bars[::-1], min([bar.value for bar in panel.bars if bar.value > 0], default=1.0) / 3
    left = 1.0 if panel.goal else start
    axes.set_xscale("log")
    axes.barh(range(len(bars)), [bar.value - left for bar in bars], left=left, color=[bar.color for bar in bars], height=0.7)
    for i, bar in enumerate(bars):
        axes.annotate(
            _plain(bar.text), (max(bar.value, left), i), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(range(len(bars)), [_shorten(bar.label, 70) for bar in bars], color=TEXT)
    axes.set_title(_plain(panel.title), fontsize=9, loc="left")
    if panel.goal:
        axes.axvline(1, color=TEXT, linewidth=1)
    axes.set_xlim(left=min(start, left / 3), right=max(bar.value for bar in bars) * (60 if panel.goal else 12))
    axes.set_ylim(len(bars) - rows - 0.6, len(bars) - 0.4)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelbottom=False, which="both")


def _plain(text: str) -> str:
    return re.sub(r"[*`$]", "", text)


def _shorten(text: str, length: int) -> str:
    return _plain(text) if len(_plain(text)) <= length else f"{_plain(text)[: length - 1]}…"


def plot(folder: Path) -> list[tuple[int, str]]:
    """Plot every table into ``folder``; return the line behind each table, and the name of its plot."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = []
    for i, table in enumerate(read_tables(README.read_text(encoding="utf-8"))):
        draw(make_panels(table), folder / f"table-{i}")
        plots.append((table.end, f"table-{i}"))
    return plots


if __name__ == "__main__":
    plot(Path(sys.argv[1]))
