"""Names of other libraries, and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CLASSES = "`dataset_meta.class_names`"
_KEPT_COLUMNS = '`select("image", "label")`, of the columns that stay'
_WORKERS = "`data_stack.Loader(dataset, 64, workers=4)`, whose workers run the functions"
_BATCHES_FOR_OTHERS = "`data_stack.Loader(dataset, 64).torch()`, `to_tensorflow()`, `to_pandas()`"

METHODS: Mapping[str, str] = {
    "apply": "`map(function)`, or `function(dataset)`",
    "as_numpy_iterator": "nothing: iterate over it",
    "cast": '`map(function, column="label")`',
    "cast_column": '`map(function, column="label")`',
    "class_names": _CLASSES,
    "class_encode_column": '`encode({"label": CategoricalEncoder()}, fit_on=train)`',
    "classes": _CLASSES,
    "column_types": "`features`",
    "columns": "`column_names`",
    "concatenate": "`combine(other)`",
    "describe": "`report(statistics=True)`",
    "drop": _KEPT_COLUMNS,
    "enumerate": "`enumerate(dataset)`, or `zip([*range(len(dataset))])`",
    "iloc": "`dataset[3]`, `dataset[[5, 3]]`, `dataset[:10]`",
    "info": '`dataset_meta`, `report()`, `data_stack.describe("name")`',
    "num_rows": "`len(dataset)`",
    "prefetch": "`data_stack.Loader(dataset, 64)`, which reads ahead",
    "remove_columns": _KEPT_COLUMNS,
    "push_to_hub": (
        '`to_huggingface().push_to_hub("owner/name")`, or `data-stack publish NAME FOLDER`'
    ),
    "rename_column": '`rename({"old": "new"})`',
    "rename_columns": '`rename({"old": "new"})`',
    "save_to_disk": '`data_stack.formats.convert(dataset, "folder")`',
    "select_columns": '`select("image", "label")`',
    "set_format": _BATCHES_FOR_OTHERS,
    "shape": "`len(dataset)`, and `features` for the shapes of its columns",
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
"""Methods and attributes of datasets, and what they are called here.

The pages of migration in ``docs`` have more.
"""

FUNCTIONS: Mapping[str, str] = {
    "Dataset": "`data_stack.load(…)`; `data_stack.DatasetIterator` is the class to derive from",
    "ConcatDataset": "`a.combine(b)`",
    "DataLoader": "`data_stack.Loader(dataset, 64).torch()`",
    "Subset": "`dataset[indices]`",
    "concatenate_datasets": "`a.combine(b)`",
    "interleave_datasets": "`a.mix(b, proportions=[0.5, 0.5], seed=1)`",
    "load_dataset": '`data_stack.load("name", split="train")`',
    "load_from_disk": '`data_stack.load("./folder")`',
    "random_split": "`dataset.split([0.8, 0.2], seed=1)`",
    "read_csv": '`data_stack.from_csv("file.csv")`',
    "read_json": '`data_stack.from_jsonl("file.jsonl")`',
    "read_parquet": '`data_stack.load("./file.parquet")`',
}
"""Functions and classes of packages, and what they are called here."""

ARGUMENTS: Mapping[str, str] = {
    "batch_size": "`data_stack.Loader(dataset, batch_size)`",
    "cache_dir": "`storage=`",
    "data_dir": '`data_stack.load("./folder")`: the path is the name',
    "data_files": '`data_stack.load("./file.csv")`: the path is the name',
    "download": "nothing: it is downloaded at the first use",
    "num_proc": "`data_stack.Loader(dataset, 64, workers=4)`",
    "num_workers": "`data_stack.Loader(dataset, 64, workers=4)`",
    "root": "`storage=`",
    "shuffle": "`data_stack.load(…).shuffle(seed=1)`, or `data_stack.Loader(…, shuffle=True)`",
    "streaming": "nothing: only what a sample needs is read",
    "train": '`split="train"`',
    "transform": '`data_stack.load(…).map(function, column="image")`',
    "trust_remote_code": "nothing: reading runs no code of a dataset",
}
"""Arguments of functions that load a dataset, and what they are called here."""

FILE_ARGUMENTS: Mapping[str, str] = {
    **ARGUMENTS,
    "dtype": "`dtypes=`",
    "label": "`target=`",
    "label_column": "`target=`",
    "labels": (
        "a column of `metadata.csv` in the folder, which has a column `file_name`, or "
        "`target=` of a table"
    ),
    "metadata": "a file `metadata.csv` in the folder, which has a column `file_name`",
    "na_values": "`missing=`",
    "sep": "`delimiter=`",
    "usecols": "`columns=`",
}
"""Arguments of functions that load files, and what they are called here."""

METHOD_ARGUMENTS: Mapping[str, str] = {
    "batched": "`batch(n).map(function)`, or a function of columns by `map(function, column=…)`",
    "batch_size": "`batch(n).map(function)`, or `data_stack.Loader(dataset, n)`",
    "buffer_size": "nothing: all samples are shuffled, without a buffer",
    "desc": "nothing: `map` and `filter` show no progress, as they compute what is read",
    "fn_kwargs": "`functools.partial(function, …)`",
    "groups": "`group_by=`",
    "group": "`group_by=`",
    "test_size": "`[0.8, 0.2]`, the sizes of all parts",
    "stratify_by_column": "`stratify=`",
    "frac": "`shuffle(seed).take(n)`",
    "input_columns": "`column=`",
    "keep_in_memory": "`.in_memory()`",
    "load_from_cache_file": "`.cache()`",
    "n_jobs": _WORKERS,
    "num_parallel_calls": _WORKERS,
    "num_proc": _WORKERS,
    "random_state": "`seed=`",
    "remove_columns": _KEPT_COLUMNS,
    "reshuffle_each_iteration": "nothing: a Loader draws a new order for each epoch",
    "with_indices": "`zip([*range(len(dataset))]).map(function)`",
}
"""Arguments of methods, and what they are called here."""

LOADER_ARGUMENTS: Mapping[str, str] = {
    "batch_sampler": "`shuffle=`, and `batch_size=` or `budget=`",
    "collate_fn": "`collate=`",
    "dataset": "`iterator`, the first argument",
    "device_mesh": '`shard=mesh["dp"]`, the mesh of the data-parallel dimensions',
    "generator": "`seed=`",
    "handler": '`on_error="skip"` or `"replace"`',
    "max_duration": "`budget=`, with `cost=` for what a sample costs",
    "max_tokens": "`budget=`, with `cost=` for what a sample costs",
    "mesh": '`shard=mesh["dp"]`, the mesh of the data-parallel dimensions',
    "multiprocessing_context": '`worker_kind="processes"`',
    "n_workers": "`workers=`",
    "num_epochs": "`epochs=`",
    "num_proc": "`workers=`",
    "num_replicas": "`shard=(rank, world)`",
    "num_workers": "`workers=`",
    "persistent_workers": "`with loader:`, inside of which workers stay for the next epoch",
    "pin_memory": "`loader.torch(pin_memory=True)`",
    "prefetch_factor": "`prefetch=`",
    "process_group": "`shard=`, which takes a process group",
    "rank": "`shard=(rank, world)`",
    "sampler": "`shuffle=`; `shard=(rank, world)` in place of a DistributedSampler",
    "timeout": "`timeout_seconds=`",
    "worker_init_fn": "nothing: `transform=` with a parameter `rng` draws the same in all workers",
    "world_size": "`shard=(rank, world)`",
}
"""Arguments of loaders of other libraries, and what they are called here."""


def explain(name: str, names: Mapping[str, str]) -> str:
    """Return what a name of another library is called here, as the end of a message.

    Args:
        name: the name that was used.
        names: one of the tables above.

    Returns:
        ``"; here it is …"``, or an empty string for a name that is not in the table.
    """
    if name not in names:
        return ""
    return f"; here it is {names[name]}"


def missing_attribute(instance: Any, name: str) -> AttributeError:
    """Return the error of an attribute that an iterator lacks, with what it is called here."""
    kind = type(instance).__name__
    return AttributeError(
        f"{kind!r} object has no attribute {name!r}{explain(name, METHODS)}",
        name=name,
        obj=instance,
    )
