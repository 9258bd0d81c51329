"""Plots the values of columns with matplotlib."""

from __future__ import annotations

import decimal
import io
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_key, column_names
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.show.display_value import shorten
from data_stack.show.sample_parts import default_keys, part_of, title_of
from data_stack.show.target_distribution import class_name, target_distribution
from data_stack.values.missing import present_values

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingDependencyError("plot", "matplotlib", "plots") from error

_MAX_BARS = 50
_INK = "#777777"  # readable on light and dark pages


class Plot(Figure):
    """A figure with a transparent background that notebooks display, and that pyplot does not keep."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", bbox_inches="tight", transparent=True)
        return stream.getvalue()


def plot(
    iterator: DatasetIteratorIF,
    column: int | str | None = None,
    *,
    bins: int = 30,
    title: str | None = None,
) -> Plot:
    """See ``iterator.plot``."""
    if not len(iterator) or bins < 1:
        raise ConfigError(f"cannot plot: the iterator has no samples, or there are {bins} bins")
    meta, first = getattr(iterator, "dataset_meta", None), iterator[0]
    target_key = default_keys(meta, first)[1]
    key = target_key if column is None else column_key(iterator, column)
    if column is None and part_of(first, key) is None:
        raise ConfigError(
            "cannot plot the target: the samples have none; name a column: plot(column)"
        )
    names: dict[Any, Any] = dict(enumerate(column_names(iterator)))
    classes = getattr(meta, "class_names", None) if key == target_key else None
    title = title_of(iterator) if title is None else title
    values, name = iterator.read_column(0 if key is None else key), str(names.get(key, key))
    found: Any = None if classes or values.ndim != 1 else present_values(values)[0]
    if (
        found is not None
        and found.dtype == object
        and all(isinstance(each, (numbers.Real, decimal.Decimal)) for each in found)
    ):
        found = np.array([float(each) for each in found])
    if found is not None:
        found = (
            found.astype("M8[us]")
            if found.dtype.kind == "M"
            else found
            if found.dtype.kind in "iuf"
            else None
        )
    counts = target_distribution(values) if found is None or len(np.unique(found)) <= 30 else None
    if counts is not None and not counts:
        raise ConfigError(
            f"cannot plot column {name!r}: expected classes or numbers, got {values.dtype} of shape {values.shape}"
        )
    if counts is not None or found is None:
        return plot_counts({name: counts or {}}, classes, title=title)
    finite = found[np.isfinite(found)]  # or not NaT
    figure, axes = _figure(title)
    try:
        axes.hist(finite, bins=bins)
    except ValueError:  # the range is too wide or too narrow to divide
        return plot_counts({name: target_distribution(values)}, title=title)
    left_out = {"missing": len(values) - len(found), "infinite": len(found) - len(finite)}
    notes = ", ".join(f"{n:,} {what}" for what, n in left_out.items() if n)
    axes.set(xlabel=f"{name} ({notes})" if notes else name, ylabel="samples")
    return figure


def plot_counts(
    counts: Mapping[str, Mapping[Any, int]],
    class_names: Sequence[Any] | None = None,
    *,
    title: str = "",
    kind: str | None = None,
) -> Plot:
    """Plot the number of samples of each class, of one split or of several side by side.

    Args:
        counts: by split or column, the number of samples of each class, as in ``DatasetIteratorReport.target_dist``.
        class_names: by number.
        title: of the figure.
        kind: of the targets, see ``DatasetMeta``.

    Raises:
        ConfigError: ``counts`` has no classes.
    """
    totals = sum(map(Counter, counts.values()), Counter[Any]())
    if not totals:
        raise ConfigError("cannot plot: the targets were not counted")
    most = {target for target, _ in totals.most_common(_MAX_BARS)}
    shown = [target for target in totals if target in most]
    names = [
        "missing" if target is None else class_name(target, class_names, kind) or str(target)
        for target in shown
    ]
    labels = [shorten(name, 30) for name in names]
    figure, axes = _figure(title)
    is_upright = len(shown) <= 12 and max(map(len, labels)) <= 12
    thickness, places = 0.8 / len(counts), np.arange(len(shown))
    for number, (name, each) in enumerate(counts.items()):
        offsets = places + (number - (len(counts) - 1) / 2) * thickness
        (axes.bar if is_upright else axes.barh)(
            offsets, [each.get(target, 0) for target in shown], thickness, label=name
        )
    title_of_counts = "samples" + (
        f" (the {_MAX_BARS} most frequent of {len(totals):,})" if len(totals) > len(shown) else ""
    )
    title_of_classes = next(iter(counts)) if len(counts) == 1 else ""
    if is_upright:
        axes.set(xlabel=title_of_classes, ylabel=title_of_counts, xticks=places, xticklabels=labels)
    else:
        figure.set_figheight(max(figure.get_figheight(), 0.2 * len(shown) + 1))
        axes.set(xlabel=title_of_counts, ylabel=title_of_classes, yticks=places, yticklabels=labels)
        axes.invert_yaxis()
    if len(counts) > 1:
        axes.legend(
            loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=_INK
        )  # beside the bars
    return figure


def _figure(title: str) -> tuple[Plot, Any]:
    figure = Plot(layout="constrained")
    axes: Any = figure.subplots()
    axes.tick_params(colors=_INK)
    for part in (*axes.spines.values(), axes.xaxis.label, axes.yaxis.label, axes.title):
        part.set_color(_INK)
    axes.set_title(shorten(title))
    return figure, axes
