"""What other libraries call the things of data_stack, for their users."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Method = TypeVar("_Method", bound=Callable[..., Any])


_CLASSES = "`dataset_meta.class_names`"
_LEFT = '`select("image", "label")`, of the columns that stay'
_BATCHES_FOR_OTHERS = "`data_stack.Loader(dataset, 64).torch()`, `to_tensorflow()`, `to_pandas()`"

METHODS: Mapping[str, str] = {
    "add_column": '`zip(data_stack.from_numpy({"name": values}))`, of dict samples',
    "apply": "`map(function)`, or `function(dataset)`",
    "as_numpy_iterator": "nothing: iterate over it",
    "cardinality": "`len(dataset)`",
    "cast_column": '`map(function, column="label")`',
    "class_names": _CLASSES,
    "class_to_idx": _CLASSES + ", in the order of their numbers",
    "classes": _CLASSES,
    "columns": "`column_names`",
    "concatenate": "`combine(other)`",
    "data": '`read_column("image")`',
    "describe": "`report(statistics=True)`",
    "drop": _LEFT,
    "drop_duplicates": '`deduplicate("text")`',
    "enumerate": "`enumerate(dataset)`, or `zip([*range(len(dataset))])`",
    "iloc": "`dataset[3]`, `dataset[[5, 3]]`, `dataset[:10]`",
    "info": '`dataset_meta`, `report()`, `data_stack.describe("name")`',
    "num_rows": "`len(dataset)`",
    "padded_batch": "`data_stack.Loader(dataset, 64, collate=Padded())`",
    "prefetch": "`data_stack.Loader(dataset, 64)`, which reads ahead",
    "push_to_hub": '`data_stack.publish(storage, "name", target)`',
    "remove_columns": _LEFT,
    "rename_column": '`rename({"old": "new"})`, of dict samples',
    "sample": "`shuffle().take(10)`",
    "save_to_disk": '`data_stack.formats.convert(dataset, "folder")`',
    "select_columns": '`select("image", "label")`',
    "set_format": _BATCHES_FOR_OTHERS,
    "set_transform": "`map(function)`",
    "sort_values": '`sort("label")`',
    "targets": '`read_column("label")`',
    "to_csv": '`to_pandas().to_csv("file")`',
    "to_parquet": '`data_stack.formats.convert(dataset, "folder", target_format="parquet")`',
    "train_test_split": '`split([0.8, 0.2], seed=1, stratify="label")`',
    "value_counts": "`report()`, `plot(column)`",
    "window": "`windows(length)`",
    "with_format": _BATCHES_FOR_OTHERS,
    "with_transform": "`map(function)`",
}
"""Methods and attributes of datasets, and what they are called here. The pages of migration in ``docs`` have more."""

FUNCTIONS: Mapping[str, str] = {
    "ConcatDataset": "`a.combine(b)`",
    "DataLoader": "`data_stack.Loader(dataset, 64).torch()`",
    "Subset": "`dataset[indices]`",
    "builder": '`data_stack.describe("name")`, `data_stack.load("name")`',
    "concatenate_datasets": "`a.combine(b)`",
    "from_generator": "`data_stack.from_numpy(…)`, or a class with `__len__` and `__getitem__`",
    "interleave_datasets": "`a.mix(b, proportions=[0.5, 0.5], seed=1)`",
    "list_datasets": "`data_stack.datasets()`",
    "load_dataset": '`data_stack.load("name", split="train")`',
    "load_from_disk": '`data_stack.load("./folder")`',
    "random_split": "`dataset.split([0.8, 0.2], seed=1)`",
    "read_csv": '`data_stack.from_csv("file.csv")`',
}
"""Functions and classes of packages, and what they are called here."""

ARGUMENTS: Mapping[str, str] = {
    "cache_dir": "`storage=` of load",
    "collate_fn": "`collate=function` of a Loader",
    "data_dir": "`storage=` of load",
    "download": "nothing: it is downloaded at the first use",
    "num_workers": "`workers=` of a Loader; None measures how many pay",
    "pin_memory": "`loader.torch(pin_memory=True)`",
    "prefetch_factor": "`prefetch=` of a Loader",
    "root": "`storage=` of load",
    "sampler": "`shuffle=` of a Loader, or `dataset.balance(seed=1)`, `dataset.resample(n, seed=1)`",
    "streaming": "nothing: only what a sample needs is read",
    "train": '`split="train"` of load',
    "transform": '`load(…).map(function, column="image")`',
    "trust_remote_code": "nothing: reading runs no code of a dataset",
    "worker_init_fn": "nothing: functions receive generators, `map(function, seed=7)`",
}
"""Arguments of loaders and of functions that load a dataset, and what they are called here."""


def explain(name: str, names: Mapping[str, str]) -> str:
    """``"; here it is …"``, or an empty string for a name that no library has."""
    return f"; here it is {names[name]}" if name in names else ""


def explains(names: Mapping[str, str]) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Decorates a function whose TypeError for an argument of another library says what that is called here."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        foreign = names.keys() - inspect.signature(function).parameters.keys()

        @functools.wraps(function)
        def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            for name in foreign & kwargs.keys():
                what = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
                raise TypeError(f"{what}() has no argument {name!r}{explain(name, names)}")
            return function(*args, **kwargs)

        return called

    return decorate


class Yielding:
    """A method that yields to an attribute of that name of a client's class or instance, also of one inside of a wrapper.

    Args:
        function: of the iterator.
        is_attribute: whether it is called by itself.
    """

    def __init__(self, function: Callable[..., Any], *, is_attribute: bool = False) -> None:
        self._function, self._is_attribute = function, is_attribute
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # for its documentation

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self._function
        name, wrapped = self._function.__name__, instance
        while getattr(wrapped, "_forwards_attributes", False):
            wrapped = vars(wrapped).get("_dataset_iterator")
            if wrapped is not None and inspect.getattr_static(wrapped, name, self) is not self:
                return getattr(wrapped, name)
        return self._function(instance) if self._is_attribute else self._function.__get__(instance)


def yielding(method: _Method) -> _Method:
    """Decorates a method of iterators that has a name which clients use."""
    return cast("_Method", Yielding(method))


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

    _forwards_attributes: bool = False
    """Whether this is a wrapper that has the attributes of what it wraps, in ``_dataset_iterator``."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in METHODS or hasattr(self, name)]


for _name in METHODS:
    setattr(FamiliarNames, _name, _Elsewhere(_name))
