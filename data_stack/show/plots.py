"""Plots the values of columns with matplotlib."""

from __future__ import annotations

import decimal
import io
import numbers
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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

#: The maximum number of classes in a plot; of more classes, the most frequent ones are plotted.
_MAX_BARS = 50

#: A column of numbers with at most this number of different values is plotted like classes.
_MAX_COUNTED_NUMBERS = 30

#: The maximum number of bars that stand upright; more bars lie.
_MAX_UPRIGHT_BARS = 12

#: The maximum number of characters below a bar that stands upright; bars of longer names lie.
_MAX_UPRIGHT_CHARACTERS = 12

#: Longer names of classes are cut.
_MAX_LABEL_CHARACTERS = 30

#: The width of all bars of a class together; 1 is the distance between classes.
_WIDTH_OF_CLASS = 0.8

#: The height of a bar that lies, in inches.
_BAR_INCHES = 0.2

#: The color of text and lines, readable on light and dark pages.
_INK = "#777777"


class Plot(Figure):
    """A figure with a transparent background.

    Notebooks display it, and pyplot does not keep it.
    """

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
    """Plot a column: the number of samples of each class, or a histogram of numbers.

    The method ``iterator.plot`` documents the arguments.

    Raises:
        ConfigError: there are no samples or no bins, or the column has neither classes nor numbers.
    """
    if not len(iterator) or bins < 1:
        raise ConfigError(f"cannot plot: the iterator has no samples, or there are {bins} bins")
    meta = getattr(iterator, "dataset_meta", None)
    first_sample = iterator[0]
    _, target_key = default_keys(meta, first_sample)
    if column is not None:
        key: Any = column_key(iterator, column)
    elif part_of(first_sample, target_key) is not None:
        key = target_key
    else:
        raise ConfigError(
            "cannot plot the target: the samples have none; name a column: plot(column)"
        )
    names: dict[Any, Any] = dict(enumerate(column_names(iterator)))
    name = str(names.get(key, key))
    class_names = getattr(meta, "class_names", None) if key == target_key else None
    if title is None:
        title = title_of(iterator)

    # A bare sample is its own column 0.
    values = iterator.read_column(0 if key is None else key)
    numbers_to_plot = None if class_names else _find_numbers(values)
    if numbers_to_plot is not None and len(np.unique(numbers_to_plot)) > _MAX_COUNTED_NUMBERS:
        return _plot_histogram(name, values, numbers_to_plot, bins=bins, title=title)
    counts = target_distribution(values)
    if not counts:
        raise ConfigError(
            f"cannot plot column {name!r}: expected classes or numbers, "
            f"got {values.dtype} of shape {values.shape}"
        )
    return plot_counts({name: counts}, class_names, title=title)


def _find_numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Return the numbers or times of a column without missing values; None for other columns."""
    if values.ndim != 1:
        return None
    present, _ = present_values(values)
    if present.dtype == object and all(_is_number(value) for value in present):
        present = np.array([float(value) for value in present])
    if present.dtype.kind == "M":
        # The unit that matplotlib draws.
        return present.astype("M8[us]")
    if present.dtype.kind in "iuf":
        return present
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, decimal.Decimal))


def _plot_histogram(
    name: str,
    values: npt.NDArray[Any],
    present: npt.NDArray[Any],
    *,
    bins: int,
    title: str,
) -> Plot:
    """Plot how many numbers lie in each of ``bins`` ranges.

    Args:
        name: the name of the column.
        values: the values of the column, for the number of missing ones.
        present: the numbers or times among the values.
        bins: the number of ranges.
        title: the title of the figure.
    """
    # NaT does not count as finite.
    finite = present[np.isfinite(present)]
    figure, axes = _make_figure(title)
    try:
        axes.hist(finite, bins=bins)
    except ValueError:
        # The range is too wide or too narrow to divide.
        return plot_counts({name: target_distribution(values)}, title=title)

    notes = []
    n_missing = len(values) - len(present)
    if n_missing:
        notes.append(f"{n_missing:,} missing")
    n_infinite = len(present) - len(finite)
    if n_infinite:
        notes.append(f"{n_infinite:,} infinite")
    label = f"{name} ({', '.join(notes)})" if notes else name
    axes.set(xlabel=label, ylabel="samples")
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
        counts: the number of samples of each class, by split or column, as in
            ``DatasetIteratorReport.target_dist``.
        class_names: the names of the classes, in the order of their numbers; None if unknown.
        title: the title of the figure.
        kind: the kind of the targets, see ``DatasetMeta``.

    Raises:
        ConfigError: ``counts`` has no classes.
    """
    totals = _add_up(counts.values())
    if not totals:
        raise ConfigError("cannot plot: the targets were not counted")
    most_frequent = {target for target, _ in totals.most_common(_MAX_BARS)}
    shown = [target for target in totals if target in most_frequent]
    labels = [_label_of(target, class_names, kind) for target in shown]

    longest_label = max(len(label) for label in labels)
    are_short = longest_label <= _MAX_UPRIGHT_CHARACTERS
    is_upright = are_short and len(shown) <= _MAX_UPRIGHT_BARS
    figure, axes = _make_figure(title)
    places = _draw_bars(axes, counts, shown, is_upright=is_upright)

    title_of_counts = "samples"
    if len(shown) < len(totals):
        title_of_counts += f" (the {_MAX_BARS} most frequent of {len(totals):,})"
    title_of_classes = ""
    if len(counts) == 1:
        title_of_classes = next(iter(counts))
    if is_upright:
        axes.set(xlabel=title_of_classes, ylabel=title_of_counts, xticks=places, xticklabels=labels)
    else:
        figure.set_figheight(max(figure.get_figheight(), _BAR_INCHES * len(shown) + 1))
        axes.set(xlabel=title_of_counts, ylabel=title_of_classes, yticks=places, yticklabels=labels)
        # The first class is at the top.
        axes.invert_yaxis()
    if len(counts) > 1:
        beside_the_bars = (1, 1)
        axes.legend(
            loc="upper left", bbox_to_anchor=beside_the_bars, frameon=False, labelcolor=_INK
        )
    return figure


def _add_up(counts: Iterable[Mapping[Any, int]]) -> Counter[Any]:
    """Return the number of samples of each class in all splits, without classes of no samples."""
    totals: Counter[Any] = Counter()
    for counts_of_split in counts:
        totals.update(counts_of_split)
    return +totals


def _draw_bars(
    axes: Any,
    counts: Mapping[str, Mapping[Any, int]],
    targets: Sequence[Any],
    *,
    is_upright: bool,
) -> npt.NDArray[np.int64]:
    """Draw a bar for each class and split; the bars of a class stand side by side.

    Returns:
        The place of each class on the axis of classes, shape ``(len(targets),)``.
    """
    draw = axes.bar if is_upright else axes.barh
    places = np.arange(len(targets))
    thickness = _WIDTH_OF_CLASS / len(counts)
    middle = (len(counts) - 1) / 2
    for number, (split, counts_of_split) in enumerate(counts.items()):
        places_of_split = places + (number - middle) * thickness
        lengths = [counts_of_split.get(target, 0) for target in targets]
        draw(places_of_split, lengths, thickness, label=split)
    return places


def _label_of(target: Any, class_names: Sequence[Any] | None, kind: str | None) -> str:
    """Return the text at the bar of a class: its name, or its value."""
    if target is None:
        return "missing"
    name = class_name(target, class_names, kind) or str(target)
    return shorten(name, _MAX_LABEL_CHARACTERS)


def _make_figure(title: str) -> tuple[Plot, Any]:
    """Make a figure, and its axes in the color of the ink."""
    figure = Plot(layout="constrained")
    axes: Any = figure.subplots()
    axes.tick_params(colors=_INK)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(_INK)
    axes.set_title(shorten(title))
    return figure, axes
