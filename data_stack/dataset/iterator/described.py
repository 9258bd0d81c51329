"""Gives every iterator the methods that describe its samples and its stack."""

# mypy: no-warn-unused-ignores
# ``self: Any`` stands for DatasetIteratorIF, whose module imports this one.

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator.access import ColumnKey
from data_stack.util.program_lines import warn_deprecated


class Attribute:
    """An attribute of iterators that is computed when it is read.

    A client's class may define an attribute of the same name, and its instances may set one. A
    property would refuse that.

    Args:
        function: computes the attribute of an iterator.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # for its documentation

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self._function
        return self._function(instance)


class DescribedIterator:
    """Methods that describe an iterator."""

    # ------------------------------------------------------------------ its columns

    if TYPE_CHECKING:
        column_names: list[int | str]
        features: Any  # clients have attributes of this name
    else:

        @Attribute
        def column_names(self):
            """Return the names or keys of the columns. May read sample 0.

            The columns of tuples without names are their positions. Bare values have no columns.
            """
            from data_stack.dataset.iterator.layers.columns_layer import list_column_names

            return list_column_names(self)

        @Attribute
        def features(self):
            """Return the columns by their names, keys or positions, with dtype and shape.

            These come from a schema, or from a few samples.
            """
            from data_stack.show.reporting import features

            return features(self)

    def unique(self: Any, column: int | str | None = None) -> Any:
        """Return the distinct values of a column, in the order of their appearance.

        Reads the column.

        Args:
            column: the column; None for the target.

        Returns:
            A column of shape ``(n_distinct, ...)``.

        Raises:
            ConfigError: there is no such column, or a value is an object of unknown content.
        """
        from data_stack.dataset.iterator.layers.deduplicated import unique

        return unique(self, column)

    # ------------------------------------------------------------------ its stack, and pages

    def recipe(self: Any) -> dict[str, Any]:
        """Return plain JSON data that names this stack exactly.

        ``data_stack.from_recipe`` rebuilds it. See ``docs/reference/recipes.md``.
        """
        from data_stack.dataset.recipes.recipe import recipe

        return recipe(self)

    def fingerprint(self: Any) -> str:
        """Return the SHA-256 of the recipe, as far as it decides the samples.

        It is the same in every process, machine and Python version. See
        ``docs/reference/fingerprints.md``.
        """
        from data_stack.dataset.recipes.fingerprint import fingerprint

        return fingerprint(self)

    def explain(self: Any) -> Any:
        """Return the stack as a tree, with lengths, costs and licenses.

        It prints as text, and shows as HTML in a notebook.
        """
        from data_stack.show.explanation import explain

        return explain(self)

    def licenses(self: Any) -> Any:
        """Return the licenses of all datasets in the stack.

        They print as text, and show as HTML in a notebook.
        """
        from data_stack.show.licensed_datasets import licenses

        return licenses(self)

    def licences(self: Any) -> Any:
        """Return :meth:`licenses`, by the name that it had before version 0.2."""
        warn_deprecated("it.licences()", instead="it.licenses()", since="0.2", removed_in="1.0")
        return self.licenses()

    def citation(self: Any, *, with_data_stack: bool = False) -> str:
        """Return the BibTeX entries of all datasets in the stack, each once.

        Args:
            with_data_stack: whether the last entry is that of data_stack.
        """
        from data_stack.show.citation import citation

        return citation(self, with_data_stack)

    def provenance(self: Any) -> list[dict[str, Any]]:
        """Return who prepared each dataset in the stack, when, and from which sources.

        Returns:
            Plain JSON data: dicts with ``name``, ``version``, ``split``, ``config``,
            ``distribution`` (of the plugin, now installed), and ``preparation``: None for a dataset
            that stores nothing, else a dict with ``created`` (ISO 8601, UTC), ``seconds`` it took,
            ``factory``, ``distribution`` and ``framework`` that prepared it, ``adopted`` and
            ``sources``.
        """
        from data_stack.show.provenance import provenance

        return provenance(self)

    def __str__(self: Any) -> str:
        """Return name, length, license and the tree of layers.

        Reads no sample, so it is safe in log lines.
        """
        from data_stack.show.page import IteratorPage

        return str(IteratorPage(self))

    def _repr_html_(self: Any) -> str:
        """Return what notebooks show: facts, eight samples, columns, classes, the stack.

        It raises nothing. See ``docs/display.md``.
        """
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
        """Draw samples with their labels in a grid.

        Args:
            n_samples: how many at most; None: 100, or as many as ``per_class`` gives.
            seed: the seed of random samples; None: equally many of each class, the first ones.
            columns: the column of the picture, and those of the labels; None: those of the meta.
            per_class: how many of each class at most, a row for each class.
            n_columns: pictures in a row.
            title: None: the dataset's name and tag.

        Returns:
            A picture of Pillow, which notebooks display and ``.save()`` writes.

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
        """Plot how often each value of a column occurs: bars of classes, a histogram of numbers.

        Reads the column.

        Args:
            column: None: the target.
            bins: the number of bins of a histogram.
            title: the title of the figure; None: the dataset's name and tag.

        Returns:
            A figure of matplotlib, in the style of its ``rcParams``; notebooks display it.

        Raises:
            ConfigError: a column does not exist, or it has neither classes nor numbers.
            MissingDependencyError: matplotlib is not installed.
        """
        from data_stack.show.plots import plot

        return plot(self, column, bins=bins, title=title)

    def report(
        self: Any,
        report_format: str = "data_class",
        *,
        measure_speed: bool = False,
        statistics: bool = False,
    ) -> Any:
        """Report on this iterator and those below: lengths, dtypes, shapes and classes.

        This reads the columns of targets, and a few samples. Types of columns come from the schema
        of records or Parquet (``utf8[]``, ``float32 or None``), and from eight samples otherwise.

        A report shows as HTML in a notebook, and prints as Markdown; ``to_html()`` returns a
        document. Its ``sub_reports`` are those of the iterators below. See
        ``DatasetIteratorReportGenerator.generate_report``.

        Args:
            report_format: ``"data_class"``, ``"dict"``, ``"json"`` or ``"yaml"``.
            measure_speed: iterate for up to 0.2 s over each iterator.
            statistics: read all samples, for missing values, extremes, means and distinct values of
                each column.
        """
        from data_stack.show.reporting import DatasetIteratorReportGenerator

        return DatasetIteratorReportGenerator.generate_report(
            self, report_format, measure_speed=measure_speed, statistics=statistics
        )
