"""Plots the values of columns with matplotlib."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.named_columns import column_key, column_names
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.show.kinds import shorten
from data_stack.show.samples import default_keys, part_of, title_of
from data_stack.show.target_distribution import class_name, target_distribution
from data_stack.values.stacked_values import present_values

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingDependencyError("plot", "matplotlib", "plots") from error

_MAX_BARS = 50
_MAX_UPRIGHT = 12
_INK = "#777777"  # readable on light and dark pages
_MAX_CLASSES = 30  # more distinct numbers are drawn as a histogram


class Plot(Figure):
    """A figure with a transparent background that notebooks display, and that pyplot does not keep."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", bbox_inches="tight", transparent=True)
        return stream.getvalue()


def plot(iterator: DatasetIteratorIF, column: int | str | None = None, *, bins: int = 30, title: str | None = None) -> Plot:
    """See ``iterator.plot``."""
    if not len(iterator) or bins < 1:
        raise ConfigError(f"cannot plot {len(iterator)} samples in {bins} bins")
    meta, first = getattr(iterator, "dataset_meta", None), iterator[0]
    target_key = default_keys(meta, first)[1]
    key = target_key if column is None else column_key(iterator, column)
    if column is None and part_of(first, key) is None:
        raise ConfigError("cannot plot the target: the samples have none; name a column: plot(column)")
    names: dict[Any, Any] = dict(enumerate(column_names(iterator)))
    classes = getattr(meta, "class_names", None) if key == target_key else None
    title = title_of(iterator) if title is None else title
    values, name = iterator.read_column(0 if key is None else key), str(names.get(key, key))
    present = present_values(values)[0]
    if not classes and present.ndim == 1 and present.dtype.kind in "iuf" and len(np.unique(present)) > _MAX_CLASSES:
        figure, axes = _figure(title)
        axes.hist(present[np.isfinite(present)].astype(np.float64), bins=bins)
        axes.set(xlabel=name, ylabel="samples")
        return figure
    counts = target_distribution(values)
    if not counts:
        raise ConfigError(f"cannot plot column {name!r}: expected classes or numbers, got {values.dtype} of shape {values.shape}")
    return plot_counts(name, counts, classes, title=title)


def plot_counts(
    name: str, counts: Mapping[Any, int], class_names: Sequence[Any] | None = None, *, title: str = "", kind: str | None = None
) -> Plot:
    """Plot the number of samples of each class.

    Args:
        name: of the column.
        counts: as in ``DatasetIteratorReport.target_dist``.
        class_names: by number.
        title: of the figure.
        kind: of the targets, see ``DatasetMeta``.

    Raises:
        ConfigError: ``counts`` has no classes.
    """
    if not counts:
        raise ConfigError("cannot plot: the targets were not counted")
    most = {target for target, _ in Counter(counts).most_common(_MAX_BARS)}
    shown = [target for target in counts if target in most]
    names = ["missing" if target is None else class_name(target, class_names, kind) or str(target) for target in shown]
    labels, heights = [shorten(each, 30) for each in names], [counts[target] for target in shown]
    figure, axes = _figure(title)
    samples = "samples" + (f" (the {_MAX_BARS} most frequent of {len(counts):,})" if len(counts) > len(shown) else "")
    if len(shown) <= _MAX_UPRIGHT and max(map(len, labels)) <= 12:
        axes.bar(range(len(shown)), heights, tick_label=labels)
        axes.set(xlabel=name, ylabel=samples)
    else:
        figure.set_figheight(max(figure.get_figheight(), 0.2 * len(shown) + 1))
        axes.barh(range(len(shown)), heights, tick_label=labels)
        axes.invert_yaxis()
        axes.set(xlabel=samples, ylabel=name)
    return figure


def _figure(title: str) -> tuple[Plot, Any]:
    figure = Plot(layout="constrained")
    axes = figure.subplots()
    axes.tick_params(colors=_INK)
    parts: list[Any] = [*axes.spines.values(), axes.xaxis.label, axes.yaxis.label, axes.title]
    for part in parts:
        part.set_color(_INK)
    if title:
        axes.set_title(shorten(title))
    return figure, axes
