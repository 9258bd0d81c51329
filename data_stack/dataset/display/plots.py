"""Plots of columns and of class balance, by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.display.kinds import shorten
from data_stack.dataset.reports.target_distribution import class_name, target_distribution
from data_stack.exception import ConfigError, MissingDependencyError

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingDependencyError("plot", "matplotlib", "plots") from error

_MOST_BARS = 50
_MOST_UPRIGHT = 12
_MOST_CLASSES = 30  # distinct numbers; more are a histogram


class Plot(Figure):
    """A figure that notebooks display without pyplot, and that no state of pyplot keeps."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", bbox_inches="tight")
        return stream.getvalue()


def plot_values(
    values: npt.NDArray[Any], name: str, class_names: Sequence[Any] | None = None, *, bins: int = 30, title: str = ""
) -> Plot:
    """How often values occur: bars of classes, a histogram of many distinct numbers or times.

    Args:
        values: a column, shape ``(n,)`` or one-hot ``(n, classes)``.
        name: of the column.
        class_names: by number.
        bins: of a histogram.
        title: of the figure.

    Raises:
        ConfigError: they are arrays, or ``bins`` is below 1.
    """
    if bins < 1:
        raise ConfigError(f"bins must be at least 1, got {bins}")
    is_continuous = values.ndim == 1 and values.dtype.kind in "iufM" and len(np.unique(values)) > _MOST_CLASSES
    if not is_continuous or class_names:
        counts = target_distribution(values)
        if not counts:
            raise ConfigError(f"column {name!r} has neither classes nor numbers to plot: shape {values.shape}, {values.dtype}")
        return plot_counts({name: counts}, class_names, title=title)
    is_known = ~np.isnat(values) if values.dtype.kind == "M" else np.isfinite(values)
    figure, axes = _figure(title)
    axes.hist(values[is_known].astype("M8[us]") if values.dtype.kind == "M" else values[is_known], bins=bins)
    n_missing = len(values) - int(is_known.sum())
    axes.set(xlabel=name + (f" ({n_missing:,} missing or infinite)" if n_missing else ""), ylabel="samples")
    return figure


def plot_counts(
    counts: Mapping[str, Mapping[Any, int]], class_names: Sequence[Any] | None = None, *, title: str = "", kind: str | None = None
) -> Plot:
    """Numbers of samples by class, of one or several splits beside each other.

    Args:
        counts: for each split or column the number of samples by class, as ``DatasetIteratorReport.target_dist`` has it.
        class_names: by number.
        title: of the figure.
        kind: of the targets, see ``DatasetMeta``.

    Raises:
        ConfigError: there are no classes.
    """
    totals: dict[Any, int] = {}
    for each in counts.values():
        for target, count in each.items():
            totals[target] = totals.get(target, 0) + count
    if not totals:
        raise ConfigError("there is nothing to plot: the targets were not counted")
    most = set(sorted(totals, key=lambda target: -totals[target])[:_MOST_BARS])
    shown = [target for target in totals if target in most]
    labels = [shorten(class_name(target, class_names, kind) or str(target), 30) for target in shown]
    figure, axes = _figure(title)
    is_upright = len(shown) <= _MOST_UPRIGHT and max(map(len, labels)) <= 12
    thickness, places = 0.8 / len(counts), np.arange(len(shown))
    for number, (name, each) in enumerate(counts.items()):
        heights = [each.get(target, 0) for target in shown]
        offsets = places + (number - (len(counts) - 1) / 2) * thickness
        (axes.bar if is_upright else axes.barh)(offsets, heights, thickness, label=name)
    more = f" (the {_MOST_BARS} most frequent of {len(totals):,})" if len(totals) > len(shown) else ""
    if is_upright:
        axes.set_xticks(places, labels)
        axes.set(ylabel="samples")
    else:
        figure.set_figheight(max(figure.get_figheight(), 0.2 * len(shown) + 1))
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.set(xlabel=f"samples{more}")
    if len(counts) > 1:
        axes.legend()
    else:
        (axes.set_xlabel if is_upright else axes.set_ylabel)(next(iter(counts)))
    return figure


def _figure(title: str) -> tuple[Plot, Any]:
    figure = Plot(layout="constrained")
    axes = figure.subplots()
    if title:
        axes.set_title(shorten(title))
    return figure, axes
