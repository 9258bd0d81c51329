"""A function of each sample of an iterator, or of one of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.layers.mapped_column import ColumnMapAccess, ValueMapAccess
from data_stack.dataset.iterator.layers.mapped_meta import (
    derive_meta_of_mapped_column,
    derive_meta_of_mapped_samples,
)
from data_stack.dataset.iterator.layers.mapped_samples import BatchMapAccess, SampleMapAccess
from data_stack.dataset.meta import DatasetMeta, column_key
from data_stack.dataset.positions import check_integer
from data_stack.dataset.randomness import Draw, derive_seed
from data_stack.exception import ConfigError
from data_stack.util.functions import check_takes
from data_stack.values.stacking import SampleForm


@layer("mapped")
class MappedDatasetIterator(LayerDatasetIterator):
    """Sample ``i`` is ``function`` of sample ``i`` below, called whenever the sample is read.

    Nothing is kept. The function may return any sample: a tuple, a dict, a bare value. It must not
    modify its argument in place, which may be the memory of the dataset. Its exceptions are not
    changed, except for StopIteration, which would end a loop over the samples and becomes an
    :class:`~data_stack.exception.EarlyEndError`. A function that is pickled for a worker process
    must be one that pickle finds by its name, so no lambda.

    A batched function takes and returns columns, as ``read_batch`` returns them, so that many
    samples share its cost::

        iterator.map(lambda batch: (batch[0] / np.float32(255), batch[1]), batched=True)

    It must treat each row by itself, as batches are of any size. ``iterator[i]`` calls it with a
    batch of one, and is row 0 of what it returns, so a number in it is a numpy scalar. The function
    is never called with an empty batch. It returns a tuple or dict of columns, or one column of
    bare values. A column is an array, a tensor or a list with one element for each row.

    A function that draws random numbers needs a ``seed``. Its second argument is then a
    ``numpy.random.Generator`` made for the sample; if ``batched``, a list of them, one for each
    row. Seed, epoch and the position of the sample alone decide the numbers: a sample does not
    depend on order, batch, worker or process, and differs from epoch to epoch. (A generator takes
    4 µs to make.)

    With a ``column``, the function takes and returns the values of that column only. The other
    columns pass through, and reading them does not call it. Numbers are Python's, values with a
    shape are arrays, times are numpy's, all others are as they are in the sample. A batched
    function takes and returns the column. All columns keep their names. If the column is the
    target, the meta loses its class names and its kind; if the column is the sample proper, the
    meta loses the names of its features.

    A function of whole samples may move columns. So the columns lose their names, and the sample
    proper the names of its features, unless ``names`` declares the names of the new columns. With
    ``names``, the sample proper, target and tag are where the columns of the same names are.
    Without ``names``, the positions, the classes and the target kind of the meta stay. A function
    that changes them needs an ``InformedDatasetIterator`` around this one, with the right meta.

    To read a column or a batch of no samples calls the function for sample 0, to know the columns.
    An empty iterator has no columns.

    Args:
        dataset_iterator: the samples; it is not closed.
        function: ``(sample) -> sample``; if ``batched``, ``(batch) -> batch``. With ``seed`` it has
            a second argument.
        batched: whether the function takes many samples at once.
        seed: an int for a function that draws random numbers, otherwise None.
        epoch: an int; without a seed it has no meaning.
        column: position, name or key of the only column to map; None for whole samples.
        names: the names of the columns of the tuples that the function returns; None if they are
            unknown.

    Raises:
        ConfigError: ``function`` cannot be called with one argument (with ``seed``, two); ``seed``
            or ``epoch`` is not an integer; ``names`` are not distinct strings or given together
            with ``column``. When reading: a batched function returned no columns, or columns of
            another length than its batch; samples are not tuples of as many columns as ``names``.
    """

    #: The function that maps samples, values, batches or columns.
    _function: Callable[..., Any]

    #: Whether the function takes many samples at once.
    _is_batched: bool

    #: The only column to map; None for whole samples.
    _column: ColumnKey | None

    #: The names of the columns that the function returns; None if they are unknown.
    _names: tuple[str, ...] | None

    #: What the random generators are derived from; None for a function without one.
    _mixed_seed: int | None

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        function: Callable[..., Any],
        *,
        batched: bool = False,
        seed: int | None = None,
        epoch: int = 0,
        column: ColumnKey | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if isinstance(column, (list, tuple)):
            raise ConfigError(
                f"column= names one column, got {column!r:.80}; a function of several columns "
                f"takes whole samples: leave out column=, and name what it returns by columns="
            )
        is_of_column = column is not None
        _check_function(
            function, is_batched=batched, is_of_column=is_of_column, is_random=seed is not None
        )
        self._function = function
        self._is_batched = bool(batched)
        self._column = None
        if column is not None:
            self._column = column_key(dataset_iterator, column)
        self._names = None
        if names is not None:
            self._names = _check_names(names, is_of_column=is_of_column)
        checked_epoch = check_integer("epoch", epoch)
        self._mixed_seed = None

        # A recipe has the arguments that were given. Without a seed each epoch is the same.
        arguments: dict[str, Any] = {"function": function, "batched": self._is_batched}
        if self._column is not None:
            arguments["column"] = self._column
        if self._names is not None:
            arguments["names"] = self._names
        if seed is not None:
            checked_seed = check_integer("seed", seed)
            arguments["seed"] = checked_seed
            arguments["epoch"] = checked_epoch
            self._mixed_seed = derive_seed("mapped", checked_seed, checked_epoch)
            self._draw = Draw(checked_seed, checked_epoch, self._mixed_seed)
        super().__init__(dataset_iterator, **arguments)

    def make_access(self) -> SampleAccess:
        below = self._below()
        if self._column is not None:
            if self._is_batched:
                return ColumnMapAccess(below, self._column, self._function, self._mixed_seed)
            return ValueMapAccess(below, self._column, self._function, self._mixed_seed)
        function = self._function
        if self._names is not None:
            function = partial(_call_and_check_columns, function, self._names)
        if self._is_batched:
            return BatchMapAccess(below, function, self._mixed_seed)
        return SampleMapAccess(below, function, self._mixed_seed)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        if self._column is not None:
            return derive_meta_of_mapped_column(self._dataset_iterator, meta, self._column)
        return derive_meta_of_mapped_samples(meta, self._names)


def _check_function(
    function: Any, *, is_batched: bool, is_of_column: bool, is_random: bool
) -> None:
    """Check that a function can be called with what a map passes.

    Raises:
        ConfigError: it cannot.
    """
    if not callable(function):
        raise ConfigError(f"a map needs a function of a sample, got {function!r}")
    if is_of_column:
        argument = "a column" if is_batched else "a value"
    else:
        argument = "a batch" if is_batched else "a sample"
    advice: list[str] = []
    if not is_of_column:
        advice.append(
            "Take the sample apart inside: image, label = sample. Or map one column: column=…"
        )
    if is_random:
        arguments = [argument, "a random generator"]
    else:
        arguments = [argument]
        advice.append("A random function needs a seed: map(function, seed=7)")
    check_takes(function, arguments, ". ".join(advice))


def _check_names(names: Any, *, is_of_column: bool) -> tuple[str, ...]:
    if is_of_column:
        raise ConfigError(
            "a map of one column keeps the names of all; "
            "columns= declares those after a map of whole samples"
        )
    is_list = not isinstance(names, str) and bool(names)
    are_names = is_list and all(isinstance(name, str) and name for name in names)
    if not are_names or len(set(names)) < len(names):
        raise ConfigError(
            f"columns= takes distinct names of the mapped columns, such as ['image', 'label'], "
            f"got {names!r:.80}"
        )
    return tuple(names)


def _call_and_check_columns(
    function: Callable[..., Any], names: Sequence[str], *arguments: Any
) -> Any:
    """Call ``function``, and check that it returns a tuple with a column for each of ``names``."""
    mapped = function(*arguments)
    form = SampleForm.of(mapped)
    if form.kind == "tuple" and len(form.keys) == len(names):
        return mapped
    what = f"a {type(mapped).__name__}"
    if form.kind == "tuple":
        what = f"{len(form.keys)} columns"
    raise ConfigError(
        f"a map to columns={list(names)} must return tuples of {len(names)} columns; "
        f"its function returned {what}"
    )
