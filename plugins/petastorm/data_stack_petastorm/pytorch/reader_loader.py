"""The common part of the torch loaders of a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader import Loader
from data_stack.loader.conversion import MissingValuesError
from data_stack.loader.torch import collate
from data_stack_petastorm.any_reader import check_reader
from data_stack_petastorm.batches import map_columns
from data_stack_petastorm.nan_for_null import NanForNull
from data_stack_petastorm.nested_columns import names_without_tensors, warn_of_omitted_columns
from data_stack_petastorm.pytorch.collation import RowCollate
from data_stack_petastorm.pytorch.loader_base import LoaderBase
from data_stack_petastorm.pytorch.row_batches import RowBatches
from data_stack_petastorm.pytorch.tensors import refusal
from data_stack_petastorm.reader.reader import Reader
from data_stack_petastorm.shards import Sharding


class ReaderLoader(LoaderBase):
    """Batches of a reader's rows in the reader's order, for any number of passes.

    Batches of our readers come from a :class:`~data_stack.loader.loader.Loader`, which reads and
    shuffles columns. The rows of other readers are taken one by one, and so are those of a reader
    whose transform drops rows: their number is not known before they are read.

    Args:
        reader: the reader, which is stopped at the end of a ``with`` block.
        batch_size: rows of a batch.
        shuffling_queue_capacity: minimum number of rows to shuffle together; 0: the reader's order.
        drop_last: whether to drop the last batch of an epoch if it is shorter.
        collate_fn: makes a batch of a list of rows, which are dicts; None: batches of columns.

    Raises:
        ConfigError: an argument is out of range.

    Attributes:
        reader: as given.
        batch_size: as given.
        shuffling_queue_capacity: as given.
    """

    reader: Any
    batch_size: int
    shuffling_queue_capacity: int
    _drop_last: bool
    #: Names of columns that batches do not have.
    _omitted: frozenset[str]
    #: Makes a batch of a list of rows by the user's function; None for batches of columns.
    _collate: RowCollate | None
    #: Reads the batches; None if rows are taken one by one.
    _loader: Loader | None
    #: The batches of rows that are taken one by one.
    _row_batches: RowBatches
    #: Whether this is inside of a ``with`` block.
    _is_entered: bool

    def __init__(
        self,
        reader: Any,
        batch_size: int,
        *,
        shuffling_queue_capacity: int,
        drop_last: bool,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        super().__init__()
        check_reader(reader)
        self.reader = reader
        self.batch_size = check_integer("batch_size", batch_size, at_least=1)
        self.shuffling_queue_capacity = shuffling_queue_capacity
        self._drop_last = bool(drop_last)
        self._is_entered = False
        self._omitted = names_without_tensors(reader)
        warn_of_omitted_columns(self._omitted)

        nan_for_null = NanForNull.of_reader(reader)
        self._collate = None
        if collate_fn is not None:
            self._collate = RowCollate(
                collate_fn,
                refuses_text=bool(reader.batched_output),
                omitted=self._omitted,
                nan_for_null=nan_for_null,
            )
        self._row_batches = RowBatches(
            reader,
            self.batch_size,
            shuffling_queue_capacity=shuffling_queue_capacity,
            drop_last=self._drop_last,
            nan_for_null=nan_for_null,
        )
        self._loader = self._make_loader()

    def _make_loader(self, sharding: Sharding | None = None) -> Loader | None:
        """Make a loader of the reader's rows; None for a reader whose rows are taken one by one.

        Args:
            sharding: the sharding of the state that the loader will load; None: the reader's own.
        """
        if not isinstance(self.reader, Reader) or self.reader.drops_rows:
            return None
        return self.reader.loader(
            self.batch_size,
            shuffling_queue_capacity=self.shuffling_queue_capacity,
            drop_last=self._drop_last,
            collate=self._collate,
            sharding=sharding,
        )

    # ------------------------------------------------------------------ batches

    def _convert_column(self, name: str, column: Any) -> Any:
        """Convert a column for the batch; subclasses implement it.

        Args:
            name: name of the field.
            column: a tensor of shape ``(n, ...)``, or a list of values that are not tensors.
        """
        raise NotImplementedError

    def _iter_impl(self) -> Iterator[Any]:
        """Iterate over the reader's epochs; each pass begins with the next epoch.

        Raises (while iterating):
            TypeError: torch has no tensors for the values of a field; the message names it.
            LoadingError: a row could not be read.
        """
        if self._collate is None:
            yield from self._iterate_columns()
        elif self._loader is not None:
            yield from self._loader  # its workers collate
        else:
            # A loop and not map(): that would end without an error if the function raised
            # StopIteration.
            for rows in self._row_batches:
                yield self._collate(rows)

    def _iterate_columns(self) -> Iterator[dict[Any, Any]]:
        """Iterate over batches of converted columns."""
        if self._loader is not None:
            batches: Any = self._loader.torch()
        else:
            batches = map(collate, self._row_batches)
        try:
            for batch in batches:
                yield map_columns(batch, self._convert_column, self._omitted)
        except MissingValuesError as error:
            # The path to the column is (name,), or (offset, name) for n-grams.
            if not error.column:
                raise
            raise refusal(error.column[-1], "rows without a value (None)") from None

    def __len__(self) -> int:
        """Return the number of batches of an iteration.

        Raises:
            TypeError: the loader is endless, or takes rows one by one.
        """
        if self._loader is None:
            raise TypeError("this loader takes rows one by one and has no length")
        return len(self._loader)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loop as plain JSON data.

        A loop can resume from it with any number of shards and workers.

        Raises:
            ConfigError: the loader takes rows one by one.
        """
        return self._loader_with_state().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration resume where :meth:`state_dict` was called.

        Shards may have changed since then: the loader is made anew, to divide the rows as at that
        time.

        Raises:
            LoaderStateError: the state is invalid, or of other rows or another order; or it is of
                shards with another seed.
        """
        current_loader = self._loader_with_state()
        sharding_of_state = Sharding.of_state(state)
        loader: Any = self._make_loader(sharding_of_state)
        loader.load_state_dict(state)

        # A seed that the user passed may differ from rank to rank, and each rank's state has its
        # own. The state of another rank would give this rank the other one's order.
        has_shards = sharding_of_state.n_shards > 1 or loader.shard[1] > 1
        has_other_seed = state["seed"] != self.reader.seed
        if has_shards and has_other_seed and self.reader.has_own_seed:
            raise LoaderStateError(
                f"this state has the seed {state['seed']}, the reader has {self.reader.seed}. "
                "Ranks with different seeds must each load their own state; to load one state on "
                "all ranks, make all readers with its seed"
            )

        # Everything is checked: replace the loader.
        current_loader.close()
        if self._is_entered:
            loader.__enter__()
        self._loader = loader
        self._in_iter = False

    def _loader_with_state(self) -> Loader:
        """Return the loader, which has a state.

        Raises:
            ConfigError: rows are taken one by one, so there is no loader.
        """
        if self._loader is None:
            raise ConfigError("this loader takes rows one by one and has no state")
        return self._loader

    # ------------------------------------------------------------------ closing

    def __enter__(self) -> Any:
        """Return this loader, whose workers then live until the end of the block."""
        self._is_entered = True
        if self._loader is not None:
            self._loader.__enter__()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the workers, and stop the reader."""
        self._is_entered = False
        if self._loader is not None:
            self._loader.__exit__(error_type, error, traceback)
        self.reader.stop()
        self.reader.join()
