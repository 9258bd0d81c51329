"""The batches of a loader for ``fit`` of Keras 3, and backups from which a training continues."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError, LoaderStateError, MissingDependencyError
from data_stack.loader.loader import Loader

try:
    import keras
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.keras", "keras", "keras") from error

#: The kinds of numpy's dtypes of which Keras makes tensors.
_NUMBER_KINDS: Final = frozenset("biufc")

#: Inputs, targets, and weights of the samples.
_MAX_COLUMNS: Final = 3

#: The name that Keras gives to the state of a layer's generator.
_SEED_STATE: Final = "seed_generator_state"

#: The file that makes a backup complete: it names the file of the weights.
_BACKUP_FILE: Final = "backup.json"

_WEIGHTS_SUFFIX: Final = ".weights.h5"


# ---------------------------------------------------------------------- batches


@dataclass
class _KerasEpoch:
    """An epoch of Keras, as far as it has come.

    Attributes:
        batches: the iteration of the loader.
        start: where it began, see :meth:`Loader.tell`.
        n_batches: the number of its batches.
        n_taken: the number of batches that Keras has taken.
        place: where the loader is behind them.
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


# ---------------------------------------------------------------------- backups


class LoaderBackup(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Saves the model and the state of its loader, so that a training continues inside an epoch.

    ::

        batches = KerasBatches(Loader(train, 64, shuffle=True, seed=7))
        backup = LoaderBackup(batches, "backup", every_n_batches=100)
        for initial_epoch, epochs in backup.restore(model, epochs=3):
            model.fit(
                batches,
                initial_epoch=initial_epoch,
                epochs=epochs,
                shuffle=False,
                callbacks=[backup],
            )

    Keras counts the batches of an epoch once per ``fit``, so the rest of an interrupted epoch is a
    ``fit`` of its own: its metrics are those of the rest.

    A backup has the weights, the optimizer, the random state of layers such as ``Dropout``, and the
    state of the loader. It replaces the one before when it is complete. Only the first rank of the
    loader writes; all ranks read.

    Args:
        batches: the batches that ``fit`` receives.
        folder: where the backup is kept; it is made if it does not exist. Nothing else may be kept
            there.
        every_n_batches: a backup is saved after so many batches of an epoch, and after each epoch.

    Raises:
        ConfigError: ``every_n_batches`` is less than 1. While training: ``fit`` has other steps
            than the epoch has batches.
    """

    #: The batches of the training.
    _batches: KerasBatches
    #: The folder of the backup.
    _folder: Path
    #: The number of batches between two backups.
    _every_n_batches: int
    #: The random states that the next ``fit`` begins with; None if they need not change.
    _random_states: Mapping[str, Any] | None
    #: Whether the next ``fit`` begins inside an epoch.
    _continues_inside: bool
    #: The epoch of Keras.
    _epoch: int
    #: The number of its batches that the model was trained with.
    _n_trained: int

    def __init__(
        self, batches: KerasBatches, folder: str | os.PathLike[str], *, every_n_batches: int = 100
    ) -> None:
        super().__init__()
        self._batches = batches
        self._folder = Path(folder)
        self._every_n_batches = check_integer("every_n_batches", every_n_batches, at_least=1)
        self._random_states = None
        self._continues_inside = False
        self._epoch = 0
        self._n_trained = 0
        # On a GPU, Keras takes the next batch before it has trained with this one.
        batches.states = {}

    def restore(self, model: Any, epochs: int) -> list[tuple[int, int]]:
        """Restore the last backup, if there is one.

        Args:
            model: the model, built and compiled as for the interrupted training.
            epochs: the number of epochs of the whole training.

        Returns:
            The arguments ``initial_epoch`` and ``epochs`` of each ``fit`` that is left: the rest of
            an interrupted epoch, and all epochs after it. None is left after the last epoch.

        Raises:
            ConfigError: the model was not built, or not compiled.
            LoaderStateError: the backup is damaged, or belongs to other samples or another order.
        """
        n_epochs = check_integer("epochs", epochs, at_least=0)
        backup = self._read()
        if backup is None:
            return [(0, n_epochs)] if n_epochs > 0 else []

        is_ready = bool(model.built) and model.optimizer is not None
        if not is_ready:
            raise ConfigError(
                "a backup can only be restored to a model that was built and compiled: begin it "
                "with keras.Input(…), or call it once, and call compile(…) before"
            )
        # The loader first: it refuses a backup of another dataset, before the model is changed.
        self._batches.loader.load_state_dict(backup["loader"])
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        try:
            model.load_weights(self._folder / backup["weights"])
        except (OSError, ValueError) as error:
            raise LoaderStateError(
                f"the weights of the backup {str(self._folder)!r} do not fit this model, or are "
                f"damaged ({error!s:.200}); use the model of the backup, or remove the folder"
            ) from error
        self._random_states = backup["random"]

        epoch: int = backup["epoch"]
        runs = []
        self._continues_inside = self._batches.loader.is_inside
        if self._continues_inside and epoch < n_epochs:
            runs.append((epoch, epoch + 1))
            epoch += 1
        if epoch < n_epochs:
            runs.append((epoch, n_epochs))
        return runs

    # ------------------------------------------------------------------ called by Keras

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Check that Keras will take all batches of the epoch; restore what it draws from.

        Raises:
            ConfigError: it will not.
        """
        if not self._continues_inside:
            self._restore_random_states()
        self._epoch = epoch
        self._n_trained = 0
        n_steps = self.params["steps"]
        n_batches = len(self._batches)
        if n_steps != n_batches:
            raise ConfigError(
                f"fit() makes {n_steps} steps in epoch {epoch}, but the loader has {n_batches} "
                "batches in it: leave out steps_per_epoch, and call fit() for each pair of epochs "
                "that restore() returns"
            )

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Restore the random states of a backup inside an epoch.

        The backend torch draws a number at the start of each epoch, which an interrupted epoch has
        drawn before.
        """
        self._restore_random_states()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save a backup after each ``every_n_batches`` batches of an epoch."""
        n_before = self._n_trained
        n_batches = self.params["steps"]
        # With steps_per_execution, the number of the last batch may be too large.
        self._n_trained = min(batch + 1, n_batches)
        state = self._state_after(self._n_trained)
        is_due = self._n_trained // self._every_n_batches > n_before // self._every_n_batches
        if is_due and self._n_trained < n_batches:
            self._save(self._epoch, state)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save a backup, unless the epoch was interrupted."""
        if self._n_trained == self.params["steps"]:
            self._batches.end_epoch()
            self._save(epoch + 1, self._batches.loader.state_dict())

    # ------------------------------------------------------------------ files

    def _restore_random_states(self) -> None:
        """Restore the random states of the last backup, once."""
        if self._random_states is not None:
            _restore_random_states(self.model, self._random_states)
            self._random_states = None

    def _state_after(self, n_trained: int) -> dict[str, Any]:
        """Return the state of the loader after a number of batches, and forget those before."""
        states = self._batches.states or {}
        for number in list(states):
            if number < n_trained:
                del states[number]
        return states[n_trained]

    def _save(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Save a backup that replaces the one before.

        Args:
            epoch: the epoch in which the training continues.
            state: the state of the loader.
        """
        rank, _ = self._batches.loader.shard
        if rank != 0:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        new_weights = self._folder / f"new{_WEIGHTS_SUFFIX}"
        # The property `model` brings the weights of JAX's training step into the model.
        self.model.save_weights(new_weights, overwrite=True)
        # A name of its own: until the new backup is complete, the one before needs its weights. The
        # rest of an interrupted epoch counts its batches from 0 again.
        name = f"{epoch}-{self._n_trained}-{secrets.token_hex(4)}{_WEIGHTS_SUFFIX}"
        weights = self._folder / name
        _rename_durably(new_weights, weights)

        backup = {
            "epoch": epoch,
            "weights": weights.name,
            "random": _read_random_states(self.model),
            "loader": state,
        }
        new_backup = self._folder / f"new-{_BACKUP_FILE}"
        new_backup.write_text(json.dumps(backup), encoding="utf-8")
        _rename_durably(new_backup, self._folder / _BACKUP_FILE)

        for path in self._folder.glob(f"*{_WEIGHTS_SUFFIX}"):
            if path != weights:
                path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        """Return the last backup; None if there is none.

        Raises:
            LoaderStateError: it is damaged.
        """
        path = self._folder / _BACKUP_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise LoaderStateError(_damage(path, error)) from error
        try:
            backup = json.loads(text)
            epoch = int(backup["epoch"])
            weights = Path(backup["weights"]).name
            random_states = backup["random"]
            state = backup["loader"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise LoaderStateError(_damage(path, error)) from error
        if not (self._folder / weights).is_file():
            raise LoaderStateError(_damage(path, f"its file {weights!r:.80} is missing"))
        return {"epoch": epoch, "weights": weights, "random": random_states, "loader": state}


def _rename_durably(source: Path, target: Path) -> None:
    """Rename a file that was written, such that a power cut loses neither its bytes nor its name.

    Args:
        source: the file.
        target: its new name, in the same folder. What has that name is replaced.
    """
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# ---------------------------------------------------------------------- random states


def _seed_states(model: Any) -> list[Any]:
    """Return the variables of a model that its layers draw from, which are no weights of it."""
    return [variable for variable in model.variables if variable.name == _SEED_STATE]


def _read_random_states(model: Any) -> dict[str, Any]:
    """Return what a model draws from, as JSON data."""
    states: dict[str, Any] = {
        "seeds": [keras.ops.convert_to_numpy(state).tolist() for state in _seed_states(model)]
    }
    # With this backend, layers draw from torch's own generators.
    if keras.backend.backend() == "torch":
        import torch

        generators = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
        states["torch"] = [bytes(generator.tolist()).hex() for generator in generators]
    return states


def _restore_random_states(model: Any, states: Mapping[str, Any]) -> None:
    """Let a model draw as when its random states were read.

    The generators of GPUs are only restored on as many GPUs.
    """
    for variable, value in zip(_seed_states(model), states["seeds"], strict=True):
        variable.assign(value)
    if keras.backend.backend() == "torch" and "torch" in states:
        import torch

        generators = [
            torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8) for text in states["torch"]
        ]
        torch.set_rng_state(generators[0])
        if len(generators) == torch.cuda.device_count() + 1:
            torch.cuda.set_rng_state_all(generators[1:])


# ---------------------------------------------------------------------- messages


def _damage(path: Path, reason: object) -> str:
    return (
        f"the backup {str(path)!r} is damaged ({reason!s:.120}); remove its folder to begin the "
        "training again"
    )
