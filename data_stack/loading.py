"""The functions of ``data_stack`` that ask the default repository: load, datasets, describe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from data_stack.exception import ConfigError
from data_stack.repository.dataset_names import is_place
from data_stack.repository.default_storage import Storage
from data_stack.repository.description import DatasetDescription
from data_stack.repository.repository import default_repository
from data_stack.repository.split_expressions import load_expression
from data_stack.reproduce.lock import LOCK_VARIABLE, load_by_lock
from data_stack.reproduce.lock_file import LockFile

if TYPE_CHECKING:
    from data_stack.dataset.iterator import InformedDatasetIteratorIF

_Storage: TypeAlias = "Storage | None"
_Path: TypeAlias = "str | os.PathLike[str] | None"
_Splits: TypeAlias = "list[str] | tuple[str, ...]"


@overload
def load(
    name: os.PathLike[str], split: Any = None, *, progress: bool | None = None, **config: Any
) -> Any: ...
@overload
def load(
    name: str,
    split: str,
    storage: _Storage = None,
    *,
    progress: bool | None = None,
    lock: _Path = None,
    **config: Any,
) -> InformedDatasetIteratorIF: ...
@overload
def load(
    name: str,
    split: _Splits,
    storage: _Storage = None,
    *,
    progress: bool | None = None,
    lock: _Path = None,
    **config: Any,
) -> list[InformedDatasetIteratorIF]: ...
@overload
def load(
    name: str,
    split: None = None,
    storage: _Storage = None,
    *,
    progress: bool | None = None,
    lock: _Path = None,
    **config: Any,
) -> dict[str, InformedDatasetIteratorIF]: ...
def load(
    name: str | os.PathLike[str],
    split: str | Sequence[str] | None = None,
    storage: _Storage = None,
    *,
    progress: bool | None = None,
    lock: _Path = None,
    **config: Any,
) -> (
    InformedDatasetIteratorIF
    | dict[str, InformedDatasetIteratorIF]
    | list[InformedDatasetIteratorIF]
):
    """Load the samples of a dataset; prepare them first if necessary.

    ::

        train = data_stack.load("digits", split="train")
        splits = data_stack.load("digits", storage="/data/sets")     # {"train": …, "test": …}
        fit, check = data_stack.load("digits", split=["train[:80%]", "train[80%:]"])

    Args:
        name: the name of the dataset, see :func:`datasets`; ``"name@version"`` for a certain
            version, ``"distribution:name"`` where several distributions provide the name. Or a path
            or URL: ``"./pictures"``, ``"/data/train.csv"``, ``"s3://bucket/x.h5"``,
            ``"https://example.org/x.jsonl"``, or a ``Path`` (text that begins with ``./``, ``../``,
            ``/`` or ``~``, or has ``://``); its format is recognised.
        split: name of the split, or an expression as of TFDS and Hugging Face: ``"train[:10%]"``,
            ``"train[-100:]+test"``, ``"all"``, or a list of such; None for all splits. Slices are
            those of lists; percentages are rounded to the nearest sample. An exact split name takes
            precedence over an expression.
        storage: where the dataset is kept: a connector, a path or a URL; None for
            ``$DATA_STACK_HOME``, or else the user's cache folder. It cannot be combined with a path
            or URL as ``name``.
        progress: whether to draw bars while the dataset is retrieved, prepared and opened; None: in
            notebooks and on terminals.
        lock: a lock file: load the version that it names, and compare the samples with it; None for
            ``$DATA_STACK_LOCK``, or else no lock file. Loading never changes the file. All samples
            of the split are read once for each version of the dataset's code;
            ``DATA_STACK_LOCK_SAMPLES=0`` does without where the prepared bytes are equal.
        config: further options of the dataset, see :func:`describe`; of a path those of
            :meth:`~data_stack.repository.places.Place.load`: ``format``, ``target``, ``columns``
            and so on.

    Returns:
        An InformedDatasetIterator; for a list of splits a list of these. For split None: a dict of
        one for each split, in the dataset's order; a legacy factory that declares no splits returns
        its one iterator instead.

    Raises:
        DatasetNotFoundError: no dataset has that name or version; AmbiguousDatasetError: two
            plugins have it.
        LockError: the dataset is not in the lock file, or its samples differ from it.
        LicenseDeniedError: the policy of this process denies its license, see
            :func:`data_stack.policy`.
        ConfigError: the split (UnknownSplitError), the option or the store does not exist, or
            ``storage`` is given for a path or URL.
        PluginError: its plugin is broken, or returned no samples.
        RetrievalError, PreparationError, StorageError: it could not be prepared.
    """
    if storage is not None and is_place(name):
        raise ConfigError(
            f"{name!r:.200} is read where it lies: leave out storage=, which is for datasets by "
            f"name"
        )
    lock_path = lock or os.environ.get(LOCK_VARIABLE)
    if lock_path:
        return _load_by_lock(  # type: ignore[no-any-return]
            lock_path, name, split, storage, progress, config
        )
    # A repository takes a Path as a name, too.
    dataset_name: Any = name
    return default_repository().load(  # type: ignore[no-any-return]
        dataset_name, split, storage, progress=progress, **config
    )


def _load_by_lock(
    lock_path: str | os.PathLike[str],
    name: Any,
    split: str | Sequence[str] | None,
    storage: Storage | None,
    progress: bool | None,
    config: Mapping[str, Any],
) -> Any:
    """Load the version of a dataset that a lock file names; ``split`` may be an expression."""

    def load_split(split_name: str | None) -> Any:
        return load_by_lock(lock_path, name, split_name, storage, progress, **config)

    def list_names() -> list[str]:
        return _list_locked_splits(lock_path, name)

    return load_expression(load_split, split, list_names)


def _list_locked_splits(lock_path: str | os.PathLike[str], name: str) -> list[str]:
    """Return the names of a dataset's splits in a lock file, each once."""
    names: list[str] = []
    for configuration in LockFile.read(lock_path).entry(name)["configurations"]:
        for split in configuration["splits"]:
            # The only split of a dataset may have an empty name.
            if split and split not in names:
                names.append(split)
    return names


def datasets() -> list[str]:
    """Return the names of all datasets that can be loaded, sorted.

    Reads the metadata of installed packages; imports none of them.
    """
    return default_repository().list()


def describe(name: str) -> DatasetDescription:
    """Return license, splits, options and so on of a dataset.

    Imports its plugin, prepares nothing.

    Raises:
        DatasetNotFoundError: no dataset has that name; AmbiguousDatasetError: two plugins have it.
        PluginError: its plugin is broken.
    """
    return default_repository().describe(name)
