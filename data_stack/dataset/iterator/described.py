"""The methods of iterators that describe the samples, or convert them for other libraries, by our names or theirs."""

# mypy: no-warn-unused-ignores

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator.access import ColumnKey
from data_stack.util.program_lines import warn_deprecated

_CLASSES = "`dataset_meta.class_names`"
_LEFT = '`select("image", "label")`, of the columns that stay'
_BATCHES_FOR_OTHERS = "`data_stack.Loader(dataset, 64).torch()`, `to_tensorflow()`, `to_pandas()`"

METHODS: Mapping[str, str] = {
    "apply": "`map(function)`, or `function(dataset)`",
    "as_numpy_iterator": "nothing: iterate over it",
    "cast_column": '`map(function, column="label")`',
    "class_names": _CLASSES,
    "classes": _CLASSES,
    "columns": "`column_names`",
    "concatenate": "`combine(other)`",
    "describe": "`report(statistics=True)`",
    "drop": _LEFT,
    "enumerate": "`enumerate(dataset)`, or `zip([*range(len(dataset))])`",
    "iloc": "`dataset[3]`, `dataset[[5, 3]]`, `dataset[:10]`",
    "info": '`dataset_meta`, `report()`, `data_stack.describe("name")`',
    "num_rows": "`len(dataset)`",
    "prefetch": "`data_stack.Loader(dataset, 64)`, which reads ahead",
    "remove_columns": _LEFT,
    "push_to_hub": '`to_huggingface().push_to_hub("owner/name")`, or `data-stack publish NAME FOLDER`',
    "save_to_disk": '`data_stack.formats.convert(dataset, "folder")`',
    "select_columns": '`select("image", "label")`',
    "set_format": _BATCHES_FOR_OTHERS,
    "sort_values": '`sort("label")`',
    "targets": '`read_column("label")`',
    "to_csv": '`to_pandas().to_csv("file.csv")`',
    "to_dict": "`read_column(name)` of each of `column_names`, or `to_arrow().to_pydict()`",
    "to_json": '`to_pandas().to_json("file.jsonl", orient="records", lines=True)`',
    "to_list": "`list(dataset)`",
    "to_parquet": '`data_stack.formats.convert(dataset, "folder", target_format="parquet")`',
    "train_test_split": '`split([0.8, 0.2], seed=1, stratify="label")`',
    "value_counts": "`report()`, `plot(column)`",
    "with_format": _BATCHES_FOR_OTHERS,
    "with_transform": "`map(function)`",
}
"""Methods and attributes of datasets, and what they are called here. The pages of migration in ``docs`` have more."""

FUNCTIONS: Mapping[str, str] = {
    "ConcatDataset": "`a.combine(b)`",
    "DataLoader": "`data_stack.Loader(dataset, 64).torch()`",
    "Subset": "`dataset[indices]`",
    "concatenate_datasets": "`a.combine(b)`",
    "interleave_datasets": "`a.mix(b, proportions=[0.5, 0.5], seed=1)`",
    "load_dataset": '`data_stack.load("name", split="train")`',
    "load_from_disk": '`data_stack.load("./folder")`',
    "random_split": "`dataset.split([0.8, 0.2], seed=1)`",
    "read_csv": '`data_stack.from_csv("file.csv")`',
}
"""Functions and classes of packages, and what they are called here."""

ARGUMENTS: Mapping[str, str] = {
    "cache_dir": "`storage=`",
    "download": "nothing: it is downloaded at the first use",
    "root": "`storage=`",
    "streaming": "nothing: only what a sample needs is read",
    "train": '`split="train"`',
    "trust_remote_code": "nothing: reading runs no code of a dataset",
}
"""Arguments of functions that load a dataset, and what they are called here."""

METHOD_ARGUMENTS: Mapping[str, str] = {
    "batched": "`batch(n).map(function)`, or a function of columns by `map(function, column=…)`",
    "buffer_size": "nothing: all samples are shuffled, without a buffer",
    "desc": "nothing: `map` and `filter` show no progress, as they compute what is read",
    "fn_kwargs": "`functools.partial(function, …)`",
    "frac": "`shuffle(seed).take(n)`",
    "input_columns": "`column=`",
    "keep_in_memory": "`.in_memory()`",
    "load_from_cache_file": "`.cache()`",
    "n_jobs": "`data_stack.Loader(dataset, 64, workers=4)`, whose workers run the functions",
    "num_parallel_calls": "`data_stack.Loader(dataset, 64, workers=4)`, whose workers run the functions",
    "num_proc": "`data_stack.Loader(dataset, 64, workers=4)`, whose workers run the functions",
    "random_state": "`seed=`",
    "remove_columns": _LEFT,
    "reshuffle_each_iteration": "nothing: a Loader draws a new order for each epoch",
    "with_indices": "`zip([*range(len(dataset))]).map(function)`",
}
"""Arguments of methods, and what they are called here."""

LOADER_ARGUMENTS: Mapping[str, str] = {
    "batch_sampler": "`shuffle=` and `batch_size=`",
    "collate_fn": "`collate=`",
    "dataset": "`iterator`, the first argument",
    "generator": "`seed=`",
    "multiprocessing_context": '`worker_kind="processes"`',
    "num_epochs": "`epochs=`",
    "num_workers": "`workers=`",
    "persistent_workers": "`with loader:`, inside of which workers stay for the next epoch",
    "pin_memory": "`loader.torch(pin_memory=True)`",
    "prefetch_factor": "`prefetch=`",
    "sampler": "`shuffle=`; `shard=(rank, world)` in place of a DistributedSampler",
    "timeout": "`timeout_seconds=`",
    "worker_init_fn": "nothing: `transform=` with a parameter `rng` draws the same in all workers",
}
"""Arguments of loaders of other libraries, and what they are called here."""


def explain(name: str, names: Mapping[str, str]) -> str:
    """``"; here it is …"``, or an empty string for a name that no library has."""
    return f"; here it is {names[name]}" if name in names else ""


class Attribute:
    """An attribute of iterators that is computed when it is read, and that a client's class or instance may define or set.

    Args:
        function: of the iterator.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # for its documentation

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self._function if instance is None else self._function(instance)


class _Elsewhere:
    """A name of other libraries: its error says what it is called here. Attributes of clients' classes and objects come first.

    A ``__getattr__`` of the base class would do the same, but makes each attribute of each iterator slower to read.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise missing_attribute(owner if instance is None else instance, self._name)


def missing_attribute(instance: Any, name: str) -> AttributeError:
    """The error of an attribute that an iterator lacks, with what it is called here."""
    kind = instance.__name__ if isinstance(instance, type) else type(instance).__name__
    return AttributeError(
        f"{kind!r} object has no attribute {name!r}{explain(name, METHODS)}",
        name=name,
        obj=instance,
    )


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
            from data_stack.dataset.iterator.layers.fields import list_column_names

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
        from data_stack.show.explanation import licenses

        return licenses(self)

    def licences(self: Any) -> Any:
        """Return :meth:`licenses`, by the name that it had before version 0.3."""
        warn_deprecated("it.licences()", instead="it.licenses()", since="0.3", removed_in="1.0")
        return self.licenses()

    def citation(self: Any, *, with_data_stack: bool = False) -> str:
        """BibTeX entries of all datasets in the stack, each once; that of data_stack at the end, if asked."""
        from data_stack.show.explanation import citation

        return citation(self, with_data_stack)

    def provenance(self: Any) -> list[dict[str, Any]]:
        """Of each dataset in the stack: who prepared it, when, and from which sources. Plain JSON data.

        Returns:
            Dicts with ``name``, ``version``, ``split``, ``config``, ``distribution`` (of the plugin, now installed), and
            ``preparation``: None for a dataset that stores nothing, else a dict with ``created`` (ISO 8601, UTC), ``seconds``
            it took, ``factory``, ``distribution`` and ``framework`` that prepared it, ``adopted`` and ``sources``.
        """
        from data_stack.show.explanation import provenance

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

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in METHODS or hasattr(self, name)]


for _name in METHODS:
    setattr(DescribedIterator, _name, _Elsewhere(_name))
