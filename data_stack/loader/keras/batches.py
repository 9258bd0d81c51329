"""The batches of a loader as a dataset of Keras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import keras

from data_stack.exception import ConfigError
from data_stack.loader.loader import Loader

#: The kinds of numpy's dtypes of which Keras makes tensors.
_NUMBER_KINDS: Final = frozenset("biufc")

#: Inputs, targets, and weights of the samples.
_MAX_COLUMNS: Final = 3


@dataclass
class _KerasEpoch:
    """An epoch of Keras, as far as it has come.

    Attributes:
        batches: the iteration of the loader.
        start: where it began, see :meth:`Loader.tell`.
        n_batches: the number of its batches.
        n_taken: the number of batches that Keras has taken.
        place: where the loader is after them.
        was_trained: whether a backup has seen its end.
    """

    batches: Iterator[Any]
    start: tuple[int, int, int]
    n_batches: int
    n_taken: int
    place: tuple[int, int, int]
    was_trained: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether Keras has taken all batches."""
        return self.n_taken == self.n_batches


class KerasBatches(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types
    """The batches of a loader as a dataset of Keras.

    ::

        batches = KerasBatches(Loader(train, 64, shuffle=True, seed=7))
        model.fit(batches, epochs=3, shuffle=False)

    An epoch of Keras is one iteration of the loader, whose workers make batches ahead. After
    :meth:`Loader.load_state_dict` inside of an epoch, the next epoch has the remaining batches.

    Keras takes a first batch to find its shapes, and begins the epoch again. An epoch that was
    interrupted also begins again, unless the loader was moved by ``set_epoch`` or
    ``load_state_dict``. Of an epoch of one batch, the first look counts as an epoch, unless a
    :class:`LoaderBackup` takes part.

    Args:
        loader: a loader with a length. Its batches are tuples (inputs,), (inputs, targets) or
            (inputs, targets, weights of the samples), where inputs may be a dict, or they are dicts
            of inputs. Pass the loader of numpy's arrays, not ``loader.torch()``: Keras moves them
            to its device.

    Raises:
        ConfigError: the loader is endless. While Keras iterates: the loader has no batches, its
            batches have another form, or Keras asks for them in an order of its own.
    """

    #: The loader.
    loader: Loader
    #: The state of the loader after each batch of the epoch, by the number of batches taken; None
    #: unless a :class:`LoaderBackup` needs them.
    states: dict[int, dict[str, Any]] | None
    #: The current or last epoch; None before the first one.
    _epoch: _KerasEpoch | None
    #: The number of batches of the first whole epoch, which Keras takes for that of each; None
    #: before it.
    _n_batches_of_whole_epoch: int | None

    def __init__(self, loader: Loader) -> None:
        super().__init__()  # with one thread, as the loader has workers of its own
        try:
            len(loader)
        except TypeError as error:
            raise ConfigError(
                "Keras needs the number of batches of an epoch, but this loader is endless: pass "
                "the number of epochs that are one epoch of Keras, such as Loader(…, epochs=1)"
            ) from error
        self.loader = loader
        self.states = None
        self._epoch = None
        self._n_batches_of_whole_epoch = None

    def __len__(self) -> int:
        """Return the number of batches of the epoch; fewer after a state inside of an epoch."""
        epoch = self._epoch
        if epoch is not None and self._begins_again(epoch):
            return epoch.n_batches
        n_batches = self.loader.n_batches_left
        if n_batches == 0:
            raise ConfigError(
                f"{self.loader!r} has no batches: it needs more samples, a smaller batch_size, or "
                "drop_last=False"
            )
        return n_batches

    def __getitem__(self, index: int) -> Any:
        """Return the next batch of the epoch, or its first one for index 0.

        Raises:
            ConfigError: ``index`` is another one, or Keras cannot take the batch.
        """
        if index == 0:
            self._epoch = self._begin_epoch()
        epoch = self._epoch
        if epoch is None or index != epoch.n_taken:
            n_taken = 0 if epoch is None else epoch.n_taken
            raise ConfigError(
                f"Keras asks for batch {index} after {n_taken} batches, but the loader has an "
                "order of its own: pass shuffle=False to fit(), and leave workers at 1"
            )

        batch = next(epoch.batches)
        if index == 0:
            _check_form(batch)
        epoch.n_taken += 1
        epoch.place = self.loader.tell()
        if self.states is not None:
            self.states[epoch.n_taken] = self.loader.state_dict()
        if epoch.is_complete:
            next(epoch.batches, None)  # ends the iteration, and its workers
        return batch

    def end_epoch(self) -> None:
        """Note that Keras has trained with all batches that it has taken."""
        if self._epoch is not None:
            self._epoch.was_trained = True

    def _begins_again(self, epoch: _KerasEpoch) -> bool:
        """Return whether Keras begins the last epoch again, rather than the next one."""
        if self._was_moved(epoch):
            return False
        if not epoch.is_complete:
            return True
        # Nothing but the backup tells a look at the only batch from a training with it.
        return epoch.n_batches == 1 and self.states is not None and not epoch.was_trained

    def _begin_epoch(self) -> _KerasEpoch:
        last = self._epoch
        if last is not None and self._begins_again(last):
            self.loader.seek(*last.start)
        if self.states is not None:
            self.states.clear()
        start = self.loader.tell()
        batches = iter(self.loader)
        n_batches = self.loader.n_batches_left
        _, position, _ = start
        if position == 0:
            self._check_length(n_batches)
        return _KerasEpoch(batches, start, n_batches, n_taken=0, place=start)

    def _check_length(self, n_batches: int) -> None:
        """Check that a whole epoch has as many batches as Keras expects.

        Raises:
            ConfigError: it has more or fewer.
        """
        expected = self._n_batches_of_whole_epoch
        if expected is None:
            self._n_batches_of_whole_epoch = n_batches
        elif n_batches != expected:
            raise ConfigError(
                f"this epoch has {n_batches} batches, but Keras counts {expected} in each: put "
                "layers that select other samples in each epoch, such as filter(…), below the "
                "random ones, or pass redraw=False to the loader; with a budget, let its window "
                "have all samples"
            )

    def _was_moved(self, epoch: _KerasEpoch) -> bool:
        """Return whether the loader has left the place that an epoch has brought it to."""
        return self.loader.is_inside or self.loader.tell() != epoch.place


def _check_form(batch: Any) -> None:
    """Check that Keras can take a batch.

    Raises:
        ConfigError: it cannot; the message names the column.
    """
    if isinstance(batch, Mapping):
        columns = [(f"column {name!r}", column) for name, column in batch.items()]
    elif isinstance(batch, tuple):
        if len(batch) > _MAX_COLUMNS:
            raise ConfigError(
                f"a batch has {len(batch)} columns, but Keras takes (inputs,), (inputs, targets) "
                "or (inputs, targets, weights of the samples); choose two of them: "
                "Loader(…, transform=lambda batch: (batch[0], batch[1]))"
            )
        columns = []
        for position, column in enumerate(batch):
            if isinstance(column, Mapping):
                for name, value in column.items():
                    columns.append((f"column {name!r} of column {position}", value))
            else:
                columns.append((f"column {position}", column))
    else:
        columns = [("the batch", batch)]

    for name, column in columns:
        dtype = getattr(column, "dtype", None)
        is_of_numbers = dtype is not None and getattr(dtype, "kind", "f") in _NUMBER_KINDS
        if not is_of_numbers:
            described = type(column).__name__ if dtype is None else f"an array of {dtype}"
            raise ConfigError(
                f"{name} is {described}, of which Keras makes no tensor; make it numbers of one "
                "shape by map(…), transform= or collate=Padded(), or leave it out"
            )
    if isinstance(batch, tuple) and len(batch) == _MAX_COLUMNS:
        weights = batch[2]
        if getattr(weights.dtype, "kind", "f") != "f":
            raise ConfigError(
                f"Keras takes column 2 for the weights of the samples, but it has {weights.dtype}; "
                "leave it out: Loader(…, transform=lambda batch: (batch[0], batch[1])), or make "
                "weights floats"
            )
