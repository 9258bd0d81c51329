"""The methods of iterators that describe the samples, or convert them for other libraries."""

# mypy: no-warn-unused-ignores

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator.access import ColumnKey
from data_stack.util.program_lines import warn_deprecated


class Attribute:
    """An attribute of iterators that is computed when it is read.

    A client's class or instance may define or set an attribute of its name, which it could not if it
    were a property.

    Args:
        function: of the iterator.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # for its documentation

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self._function if instance is None else self._function(instance)


class DescribedIterator:
    """Methods that describe an iterator, or convert its samples for other libraries."""

    # ------------------------------------------------------------------ its columns

    if TYPE_CHECKING:
        column_names: list[int | str]
        features: Any  # clients have attributes of this name
    else:

        @Attribute
        def column_names(self):
            """The names or keys of the columns; positions of tuples without names, nothing of bare values. May read sample 0."""
            from data_stack.dataset.iterator.layers.columns_layer import list_column_names

            return list_column_names(self)

        @Attribute
        def features(self):
            """The columns by their names, keys or positions, with dtype and shape, by a schema or a few samples."""
            from data_stack.show.reporting import features

            return features(self)

    def unique(self: Any, column: int | str | None = None) -> Any:
        """The distinct values of a column, the target's by default, in the order of their appearance. Reads the column."""
        from data_stack.dataset.iterator.layers.deduplicated import unique

        return unique(self, column)

    # ------------------------------------------------------------------ its stack, and pages

    def recipe(self: Any) -> dict[str, Any]:
        """Plain JSON data that names this stack exactly; ``data_stack.from_recipe`` rebuilds it. See ``docs/stacking.md``."""
        from data_stack.dataset.recipes.recipe import recipe

        return recipe(self)

    def fingerprint(self: Any) -> str:
        """SHA-256 of the recipe, as far as it decides the samples: the same in every process, machine and Python version."""
        from data_stack.dataset.recipes.fingerprint import fingerprint

        return fingerprint(self)

    def explain(self: Any) -> Any:
        """The stack as a tree, with lengths, costs and licenses; prints as text, shows as HTML in a notebook."""
        from data_stack.show.explanation import explain

        return explain(self)

    def licenses(self: Any) -> Any:
        """The licenses of all datasets in the stack, with what they ask: attribution, share-alike and so on."""
        from data_stack.show.licensed_datasets import licenses

        return licenses(self)

    def licences(self: Any) -> Any:
        """Return :meth:`licenses`, by the name that it had before version 0.2."""
        warn_deprecated("it.licences()", instead="it.licenses()", since="0.2", removed_in="1.0")
        return self.licenses()

    def citation(self: Any, *, with_data_stack: bool = False) -> str:
        """BibTeX entries of all datasets in the stack, each once; that of data_stack at the end, if asked."""
        from data_stack.show.citation import citation

        return citation(self, with_data_stack)

    def provenance(self: Any) -> list[dict[str, Any]]:
        """Of each dataset in the stack: who prepared it, when, and from which sources. Plain JSON data.

        Returns:
            Dicts with ``name``, ``version``, ``split``, ``config``, ``distribution`` (of the plugin, now installed), and
            ``preparation``: None for a dataset that stores nothing, else a dict with ``created`` (ISO 8601, UTC), ``seconds``
            it took, ``factory``, ``distribution`` and ``framework`` that prepared it, ``adopted`` and ``sources``.
        """
        from data_stack.show.provenance import provenance

        return provenance(self)

    def __str__(self: Any) -> str:
        """Name, length, license and the tree of layers; reads no sample, so it is safe in log lines."""
        from data_stack.show.page import IteratorPage

        return str(IteratorPage(self))

    def _repr_html_(self: Any) -> str:
        """What notebooks show: facts, eight samples, columns, classes, the stack; see ``docs/display.md``. It raises nothing."""
        from data_stack.show.page import IteratorPage

        return str(IteratorPage(self).to_html())

    def show(
        self: Any,
        n_samples: int | None = None,
        *,
        seed: int | None = None,
        columns: Sequence[ColumnKey] | ColumnKey | None = None,
        per_class: int | None = None,
        n_columns: int | None = None,
        title: str | None = None,
    ) -> Any:
        """Draw samples with their labels in a grid, as a picture of Pillow, which notebooks display and ``.save()`` writes.

        Args:
            n_samples: how many at most; None: 100, or as many as ``per_class`` gives.
            seed: of random samples; None: equally many of each class, the first ones.
            columns: the column of the picture, and those of the labels; None: those of the meta.
            per_class: how many of each class at most, a row for each class.
            n_columns: pictures in a row.
            title: None: the dataset's name and tag.

        Raises:
            ConfigError: a number is out of range, or a column does not exist.
            MissingDependencyError: Pillow is not installed.
        """
        from data_stack.show.pictures import contact_sheet

        return contact_sheet(
            self,
            n_samples,
            seed=seed,
            columns=columns,
            per_class=per_class,
            n_columns=n_columns,
            title=title,
        )

    def plot(
        self: Any, column: ColumnKey | None = None, *, bins: int = 30, title: str | None = None
    ) -> Any:
        """Plot how often each value of a column occurs: bars of classes, a histogram of numbers. Reads the column.

        Args:
            column: None: the target.
            bins: of a histogram.
            title: of the figure; None: the dataset's name and tag.

        Returns:
            A figure of matplotlib, in the style of its ``rcParams``; notebooks display it.

        Raises:
            ConfigError: a column does not exist, or it has neither classes nor numbers.
            MissingDependencyError: matplotlib is not installed.
        """
        from data_stack.show.plots import plot

        return plot(self, column, bins=bins, title=title)

    def report(self: Any, report_format: str = "data_class", **options: Any) -> Any:
        """See ``DatasetIteratorReportGenerator.generate_report``."""
        from data_stack.show.reporting import DatasetIteratorReportGenerator

        return DatasetIteratorReportGenerator.generate_report(self, report_format, **options)

    # ------------------------------------------------------------------ for other libraries

    def to_pandas(self) -> Any:
        """All samples as a ``pandas.DataFrame``, see :func:`data_stack.to_pandas`."""
        from data_stack.exchange.tables.pandas import to_pandas

        return to_pandas(self)

    def to_polars(self) -> Any:
        """All samples as a ``polars.DataFrame``, see :func:`data_stack.to_polars`."""
        from data_stack.exchange.tables.polars import to_polars

        return to_polars(self)

    def to_arrow(self, **options: Any) -> Any:
        """All samples as a ``pyarrow.Table``, or ``lazy=True`` as a reader of batches, see :func:`data_stack.to_arrow`."""
        from data_stack.exchange.tables.arrow import to_arrow

        return to_arrow(self, **options)

    def to_huggingface(self, **options: Any) -> Any:
        """All samples as a ``datasets.Dataset``, or ``streaming=True`` lazily, see :func:`data_stack.to_huggingface`."""
        from data_stack.exchange.tables.huggingface import to_huggingface

        return to_huggingface(self, **options)

    def to_tensorflow(self, **options: Any) -> Any:
        """The samples as a lazy ``tf.data.Dataset``, see :func:`data_stack.to_tensorflow`."""
        from data_stack.exchange.arrays import to_tensorflow

        return to_tensorflow(self, **options)
