"""Backups of a training with Keras, from which it continues inside an epoch."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import keras

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader.keras.batches import KerasBatches
from data_stack.loader.keras.random_states import read_random_states, restore_random_states

#: The file that makes a backup complete: it names the file of the weights.
_BACKUP_FILE: Final = "backup.json"

_WEIGHTS_SUFFIX: Final = ".weights.h5"


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
        every_n_batches: a backup is saved each time after this number of batches of an epoch, and
            after each epoch.

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

    # ------------------------------------------------------------------ states and files

    def _restore_random_states(self) -> None:
        """Restore the random states of the last backup, once."""
        if self._random_states is not None:
            restore_random_states(self.model, self._random_states)
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
            "random": read_random_states(self.model),
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
            raise LoaderStateError(_describe_damage(path, error)) from error
        try:
            backup = json.loads(text)
            epoch = int(backup["epoch"])
            weights = Path(backup["weights"]).name
            random_states = backup["random"]
            state = backup["loader"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise LoaderStateError(_describe_damage(path, error)) from error
        if not (self._folder / weights).is_file():
            raise LoaderStateError(_describe_damage(path, f"its file {weights!r:.80} is missing"))
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


def _describe_damage(path: Path, reason: object) -> str:
    """Return the message for a backup that cannot be read."""
    return (
        f"the backup {str(path)!r} is damaged ({reason!s:.120}); remove its folder to begin the "
        "training again"
    )
