"""What other libraries call the things of data_stack, for their users."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

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
    "save_to_disk": '`data_stack.formats.convert(dataset, "folder")`',
    "select_columns": '`select("image", "label")`',
    "set_format": _BATCHES_FOR_OTHERS,
    "sort_values": '`sort("label")`',
    "targets": '`read_column("label")`',
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
    return AttributeError(f"{kind!r} object has no attribute {name!r}{explain(name, METHODS)}", name=name, obj=instance)


class FamiliarNames:
    """Says what an attribute of another library's datasets is called here."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in METHODS or hasattr(self, name)]


for _name in METHODS:
    setattr(FamiliarNames, _name, _Elsewhere(_name))
