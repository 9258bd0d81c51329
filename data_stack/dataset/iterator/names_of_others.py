"""What other libraries call the things of data_stack, for their users: in errors, and in the tables of the migration pages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Method = TypeVar("_Method", bound=Callable[..., Any])


class Here(NamedTuple):
    """What something is called here.

    Attributes:
        ours: code, or a few words.
        libraries: whose name it is: ``huggingface``, ``tfds`` (also for tf.data), ``torchvision`` (also for torch), ``pandas``.
    """

    ours: str
    libraries: str


_CLASSES = "`dataset_meta.class_names`"
_LEFT = '`select("image", "label")`, of the columns that stay'

METHODS: Mapping[str, Here] = {
    "add_column": Here('`zip(data_stack.from_numpy({"name": values}))`, of dict samples', "huggingface"),
    "apply": Here("`map(function)`, or `function(dataset)`", "tfds pandas"),
    "as_numpy_iterator": Here("nothing: iterate over it", "tfds"),
    "assign": Here("`map(function)`, or `zip(other)`", "pandas"),
    "astype": Here('`map(function, column="image")`', "pandas"),
    "cardinality": Here("`len(dataset)`", "tfds"),
    "cast": Here('`map(function, column="label")`', "huggingface"),
    "cast_column": Here('`map(function, column="label")`', "huggingface"),
    "class_encode_column": Here('`encode({"label": CategoricalEncoder()}, fit_on=train)`', "huggingface"),
    "class_names": Here(_CLASSES, "tfds"),
    "class_to_idx": Here(_CLASSES + ", in the order of their numbers", "torchvision"),
    "classes": Here(_CLASSES, "torchvision"),
    "columns": Here("`column_names`", "pandas"),
    "concatenate": Here("`combine(other)`", "tfds"),
    "data": Here('`read_column("image")`', "torchvision"),
    "describe": Here("`report(statistics=True)`", "pandas"),
    "drop": Here(_LEFT, "pandas"),
    "drop_duplicates": Here('`deduplicate("text")`', "pandas"),
    "dtypes": Here("`features`", "pandas"),
    "enumerate": Here("`enumerate(dataset)`, or `zip([*range(len(dataset))])`", "tfds"),
    "iloc": Here("`dataset[3]`, `dataset[[5, 3]]`, `dataset[:10]`", "pandas"),
    "info": Here('`dataset_meta`, `report()`, `data_stack.describe("name")`', "huggingface"),
    "iter": Here("`data_stack.Loader(dataset, 64)`", "huggingface"),
    "nunique": Here('`len(dataset.unique("label"))`', "pandas"),
    "num_rows": Here("`len(dataset)`", "huggingface"),
    "padded_batch": Here("`data_stack.Loader(dataset, 64, collate=Padded())`", "tfds"),
    "prefetch": Here("`data_stack.Loader(dataset, 64)`, which reads ahead", "tfds"),
    "push_to_hub": Here('`data_stack.publish(storage, "name", target)`', "huggingface"),
    "query": Here('`filter(lambda label: label == 3, column="label")`', "pandas"),
    "remove_columns": Here(_LEFT, "huggingface"),
    "rename_column": Here('`rename({"old": "new"})`, of dict samples', "huggingface"),
    "rename_columns": Here('`rename({"old": "new"})`, of dict samples', "huggingface"),
    "sample": Here("`shuffle().take(10)`", "pandas"),
    "save_to_disk": Here('`data_stack.formats.convert(dataset, "folder")`', "huggingface"),
    "select_columns": Here('`select("image", "label")`', "huggingface"),
    "set_format": Here("`data_stack.Loader(dataset, 64).torch()`, `to_tensorflow()`, `to_pandas()`", "huggingface"),
    "set_transform": Here("`map(function)`", "huggingface"),
    "snapshot": Here('`cache(storage="folder")`', "tfds"),
    "sort_values": Here('`sort("label")`', "pandas"),
    "tail": Here("`dataset[-5:]`", "pandas"),
    "targets": Here('`read_column("label")`', "torchvision"),
    "to_json": Here('`to_pandas().to_json("file")`', "huggingface pandas"),
    "to_csv": Here('`to_pandas().to_csv("file")`', "huggingface pandas"),
    "to_parquet": Here('`data_stack.formats.convert(dataset, "folder", target_format="parquet")`', "huggingface pandas"),
    "train_test_split": Here('`split([0.8, 0.2], seed=1, stratify="label")`', "huggingface"),
    "value_counts": Here("`report()`, `plot(column)`", "pandas"),
    "window": Here("`windows(length)`", "tfds"),
    "with_format": Here("`data_stack.Loader(dataset, 64).torch()`, `to_tensorflow()`, `to_pandas()`", "huggingface"),
    "with_transform": Here("`map(function)`", "huggingface"),
}
"""Methods and attributes of datasets."""

FUNCTIONS: Mapping[str, Here] = {
    "ConcatDataset": Here("`a.combine(b)`", "torchvision"),
    "DataLoader": Here("`data_stack.Loader(dataset, 64).torch()`", "torchvision"),
    "ImageFolder": Here('`data_stack.load("./folder")`', "torchvision"),
    "Subset": Here("`dataset[indices]`", "torchvision"),
    "as_dataframe": Here("`dataset.to_pandas()`", "tfds"),
    "as_numpy": Here("nothing: samples are numpy arrays", "tfds"),
    "builder": Here('`data_stack.describe("name")`, `data_stack.load("name")`', "tfds"),
    "concatenate_datasets": Here("`a.combine(b)`", "huggingface"),
    "even_splits": Here("`dataset.shard(0, 3)`", "tfds"),
    "from_dict": Here('`data_stack.from_numpy({"image": images, "label": labels})`', "huggingface"),
    "from_generator": Here("`data_stack.from_numpy(…)`, or a class with `__len__` and `__getitem__`", "huggingface tfds"),
    "from_list": Here("`data_stack.from_pandas(pandas.DataFrame(rows))`, or the list as it is", "huggingface"),
    "from_tensor_slices": Here("`data_stack.from_numpy(images, labels)`", "tfds"),
    "get_dataset_split_names": Here('`data_stack.describe("name").splits`', "huggingface"),
    "interleave_datasets": Here("`a.mix(b, proportions=[0.5, 0.5], seed=1)`", "huggingface"),
    "list_builders": Here("`data_stack.datasets()`", "tfds"),
    "list_datasets": Here("`data_stack.datasets()`", "huggingface"),
    "load_dataset": Here('`data_stack.load("name", split="train")`', "huggingface"),
    "load_from_disk": Here('`data_stack.load("./folder")`', "huggingface"),
    "random_split": Here("`dataset.split([0.8, 0.2], seed=1)`", "torchvision"),
    "read_csv": Here('`data_stack.from_csv("file.csv")`', "pandas"),
    "read_parquet": Here('`data_stack.load("./file.parquet")`', "pandas"),
}
"""Functions and classes of packages."""

METHOD_ARGUMENTS: Mapping[str, Here] = {
    "batch_size": Here("nothing: batches of `map` and `filter` have the size in which samples are read", "huggingface"),
    "buffer_size": Here("nothing: `shuffle(seed)` and `Loader(dataset, 64, shuffle=True)` are over all samples", "tfds"),
    "drop_last_batch": Here("`drop_last=True`", "huggingface"),
    "drop_remainder": Here("`drop_last=True`", "tfds"),
    "fn_kwargs": Here("`functools.partial(function, …)`", "huggingface"),
    "input_columns": Here('`column="image"`', "huggingface"),
    "num_parallel_calls": Here("`data_stack.Loader(dataset, 64, workers=4)`", "tfds"),
    "num_proc": Here("`data_stack.Loader(dataset, 64, workers=4)`", "huggingface"),
    "remove_columns": Here('`map(function).select("image")`', "huggingface"),
    "reshuffle_each_iteration": Here("`data_stack.Loader(dataset, 64, shuffle=True)`, or `at_epoch(1)`", "tfds"),
    "test_size": Here("`split([0.8, 0.2])`", "huggingface"),
    "train_size": Here("`split([0.8, 0.2])`", "huggingface"),
    "with_indices": Here("`zip([*range(len(dataset))])` below the map", "huggingface"),
}
"""Arguments of methods of datasets."""

LOADER_ARGUMENTS: Mapping[str, Here] = {
    "batch_sampler": Here("`shuffle=Bucketed(…)`, or another order", "torchvision"),
    "collate_fn": Here("`collate=function`", "torchvision"),
    "generator": Here("`seed=7`", "torchvision"),
    "multiprocessing_context": Here("`worker_kind=`", "torchvision"),
    "num_workers": Here("`workers=`; None measures how many pay", "torchvision"),
    "persistent_workers": Here("nothing: workers stay until the loader is closed", "torchvision"),
    "pin_memory": Here("`loader.torch(pin_memory=True)`", "torchvision"),
    "prefetch_factor": Here("`prefetch=`", "torchvision"),
    "sampler": Here("`shuffle=`, or `dataset.balance(seed=1)`, `dataset.resample(n, seed=1)`", "torchvision"),
    "timeout": Here("`timeout_seconds=`", "torchvision"),
    "worker_init_fn": Here("nothing: functions receive generators, `map(function, seed=7)`", "torchvision"),
}
"""Arguments of loaders."""

LOAD_ARGUMENTS: Mapping[str, Here] = {
    "as_supervised": Here('`load(…).select("image", "label")`', "tfds"),
    "cache_dir": Here("`storage=`", "huggingface"),
    "data_dir": Here("`storage=`", "tfds"),
    "data_files": Here('`data_stack.load("./file.csv")`', "huggingface"),
    "download": Here("nothing: it is downloaded at the first use", "tfds torchvision"),
    "revision": Here('the name: `load("name@version")`', "huggingface"),
    "root": Here("`storage=`", "torchvision"),
    "shuffle_files": Here("`load(…).shuffle()`", "tfds"),
    "streaming": Here("nothing: only what a sample needs is read", "huggingface"),
    "target_transform": Here('`load(…).map(function, column="label")`', "torchvision"),
    "train": Here('`split="train"`', "torchvision"),
    "transform": Here('`load(…).map(function, column="image")`', "torchvision"),
    "trust_remote_code": Here("nothing: reading runs no code of a dataset", "huggingface"),
    "with_info": Here('`data_stack.describe("name")`, `dataset_meta`', "tfds"),
}
"""Arguments of functions that load a dataset."""


def explain(name: str, names: Mapping[str, Here]) -> str:
    """``"; here it is …"``, or an empty string for a name that no library has."""
    return f"; here it is {names[name].ours}" if name in names else ""


def explains(names: Mapping[str, Here]) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
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
