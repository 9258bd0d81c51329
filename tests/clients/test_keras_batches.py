"""Batches of a loader for Keras, and backups of its trainings, with the backend of KERAS_BACKEND."""

from __future__ import annotations

import json
import re
import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader import Budget, Loader

keras = pytest.importorskip("keras", reason="make clients")

from data_stack.loader.keras import KerasBatches, LoaderBackup  # noqa: E402  # imports keras

# Raised by Keras itself, whose variables numpy 2 converts.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

N_STEPS = 5


def loader_of(n_samples: int = N_STEPS * 4, **options: Any) -> Loader:
    inputs = np.arange(n_samples, dtype=np.float32)[:, None]
    samples = SequenceDatasetIterator([inputs, inputs * 2])
    return Loader(samples, 4, **{"shuffle": True, "seed": 3, **options})


def expected_firsts(n_epochs: int, **options: Any) -> list[int]:
    loader = loader_of(**options)
    return [int(inputs[0, 0]) for _ in range(n_epochs) for inputs, _ in loader]


class Noting(KerasBatches):
    """Notes the first input of each batch that Keras takes, and forgets those it takes again."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self.epochs: list[list[int]] = []

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            self.epochs.append([])
        batch = super().__getitem__(index)
        column = batch[0] if isinstance(batch, tuple) else batch["x"]
        self.epochs[-1].append(int(column.ravel()[0]))
        return batch


def model_of(**options: Any) -> Any:
    keras.utils.set_random_seed(7)
    layers = [keras.Input((1,)), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **options)
    return model


def fit(model: Any, batches: KerasBatches, epochs: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return model.fit(batches, epochs=epochs, shuffle=False, verbose=0, **options)


# With the backend torch, Keras makes one step at a time.
@pytest.mark.parametrize(
    "steps_per_execution", [1] if keras.backend.backend() == "torch" else [1, 2]
)
def test_fit_trains_the_epochs_of_the_loader(steps_per_execution: int) -> None:
    batches = Noting(loader_of())

    fit(model_of(steps_per_execution=steps_per_execution), batches, epochs=3)

    looked_at, *epochs = batches.epochs
    assert list(chain(*epochs)) == expected_firsts(3)
    assert looked_at == epochs[0][: len(looked_at)]
    assert batches.loader.epoch == 3


def test_an_epoch_of_one_batch_is_an_epoch(tmp_path: Path) -> None:
    batches = Noting(loader_of(n_samples=3))
    model = model_of()
    backup = LoaderBackup(batches, tmp_path)

    fit(model, batches, epochs=2, callbacks=[backup])
    fit(model, batches, epochs=1, callbacks=[backup])

    _, *epochs = batches.epochs
    assert list(chain(*epochs)) == expected_firsts(3, n_samples=3)
    assert batches.loader.epoch == 3


def test_validation_and_evaluation_take_all_batches() -> None:
    model = model_of()
    validation = KerasBatches(loader_of(shuffle=False))

    history = fit(model, KerasBatches(loader_of()), epochs=2, validation_data=validation)
    evaluated = model.evaluate(validation, return_dict=True, verbose=0)
    predicted = model.predict(validation, verbose=0)

    assert history.history["val_loss"][-1] == pytest.approx(evaluated["loss"], rel=1e-5)
    assert predicted.shape == (N_STEPS * 4, 1)


def test_a_loader_inside_an_epoch_continues_there() -> None:
    loader = loader_of()
    for _ in zip(range(3), loader):  # noqa: B905  # it is left inside the epoch
        pass
    resumed = loader_of()
    resumed.load_state_dict(loader.state_dict())
    batches = Noting(resumed)

    n_batches = len(batches)
    fit(model_of(), batches, epochs=1)

    assert n_batches == 2
    assert batches.epochs[-1] == expected_firsts(1)[3:]
    assert len(batches) == N_STEPS


def test_an_interrupted_epoch_begins_again() -> None:
    class Stop(keras.callbacks.Callback):  # type: ignore[misc, name-defined]  # no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 2

    batches = Noting(loader_of())
    model = model_of()

    fit(model, batches, epochs=1, callbacks=[Stop()])
    fit(model, batches, epochs=1)

    assert batches.epochs[-1] == expected_firsts(1)


def test_keras_must_not_shuffle_the_batches() -> None:
    with pytest.raises(ConfigError, match=r"shuffle=False to fit\(\)"):
        model_of().fit(KerasBatches(loader_of(n_samples=400)), epochs=1, verbose=0)


def test_an_endless_or_empty_loader_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"endless: pass .* Loader\(…, epochs=1\)"):
        KerasBatches(loader_of(epochs=None))
    with pytest.raises(ConfigError, match="has no batches: it needs more samples"):
        len(KerasBatches(loader_of(n_samples=3, drop_last=True)))


def test_epochs_of_other_lengths_are_refused() -> None:
    samples = SequenceDatasetIterator([np.arange(40), np.arange(40)])
    drawn = samples.shuffle(seed=3).take(20).filter(lambda sample: sample[0] < 20)
    batches = KerasBatches(Loader(drawn, 1, worker_kind="inline"))

    with pytest.raises(ConfigError, match=r"this epoch has \d+ batches, but Keras counts"):
        for _ in range(5):
            for step in range(len(batches)):
                batches[step]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([np.zeros(4)] * 4, "a batch has 4 columns"),
        ([np.zeros(4), np.array(list("abcd"))], "column 1 is an array of <U1"),
        ([np.zeros(4), np.array([None, 1, 2, 3])], "column 1 is an array of object"),
        ([np.zeros(4), np.zeros(4), np.arange(4)], "column 2 for the weights .* int64"),
    ],
)
def test_batches_that_keras_would_misunderstand_are_refused(
    columns: list[Any], message: str
) -> None:
    batches = KerasBatches(Loader(SequenceDatasetIterator(columns), 4))

    with pytest.raises(ConfigError, match=message):
        batches[0]


def test_dicts_are_inputs_and_floats_are_weights() -> None:
    columns = [np.zeros((4, 1)), np.zeros(4), np.ones(4)]
    samples = SequenceDatasetIterator(columns)

    of_dicts = KerasBatches(Loader(samples.as_dict("x", "y", "z"), 4))
    of_three = KerasBatches(Loader(samples, 4))

    assert {*of_dicts[0]} == {"x", "y", "z"}
    assert len(of_three[0]) == 3


# ---------------------------------------------------------------------- backups


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc, name-defined]  # no types
    def __init__(self, n_steps: int) -> None:
        super().__init__()
        self._n_steps = n_steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._n_steps -= 1
        if self._n_steps == 0:
            raise KeyboardInterrupt


def train(
    folder: Path, n_epochs: int, every_n_batches: int, interrupt_after: int = -1, **options: Any
) -> tuple[list[tuple[int, int]], Any]:
    """Continue a training in a folder; the runs of ``fit``, and the weights at its end."""
    model = model_of(**options)
    batches = KerasBatches(loader_of())
    backup = LoaderBackup(batches, folder, every_n_batches=every_n_batches)
    runs = backup.restore(model, epochs=n_epochs)
    callbacks = [backup, Interrupt(interrupt_after)]
    for initial_epoch, epochs in runs:
        fit(model, batches, epochs, initial_epoch=initial_epoch, callbacks=callbacks)
    return runs, model.get_weights()


@pytest.mark.parametrize(
    ("interrupt_after", "runs"),
    [(2, [(0, 1), (1, 3)]), (6, [(1, 3)]), (8, [(1, 2), (2, 3)]), (14, [(2, 3)])],
)
def test_a_training_ends_with_the_same_weights(
    interrupt_after: int, runs: list[tuple[int, int]], tmp_path: Path
) -> None:
    whole_runs, whole = train(tmp_path / "whole", 3, every_n_batches=2)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "again", 3, every_n_batches=2, interrupt_after=interrupt_after)

    again_runs, again = train(tmp_path / "again", 3, every_n_batches=2)

    assert whole_runs == [(0, 3)]
    assert again_runs == runs
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_finished_training_has_no_epochs_left(tmp_path: Path) -> None:
    _, trained = train(tmp_path, 2, every_n_batches=100)

    runs, restored = train(tmp_path, 2, every_n_batches=100)
    longer_runs, _ = train(tmp_path, 3, every_n_batches=100)

    assert runs == []
    assert longer_runs == [(2, 3)]
    np.testing.assert_array_equal(trained[0], restored[0])


def test_one_backup_is_kept(tmp_path: Path) -> None:
    train(tmp_path / "backup", 2, every_n_batches=1)

    weights, backup = sorted(path.name for path in (tmp_path / "backup").iterdir())

    assert re.fullmatch(r"2-5-[0-9a-f]{8}\.weights\.h5", weights)
    assert backup == "backup.json"


def test_a_backup_that_fails_leaves_the_one_before_whole(tmp_path: Path) -> None:
    _, whole = train(tmp_path / "whole", 2, every_n_batches=2)
    folder = tmp_path / "again"
    with pytest.raises(KeyboardInterrupt):
        train(folder, 2, every_n_batches=2, interrupt_after=3)
    # The rest of the epoch saves its first backup after two batches, too. Its last file fails.
    (folder / "new-backup.json").mkdir()
    with pytest.raises(IsADirectoryError):
        train(folder, 2, every_n_batches=2)
    (folder / "new-backup.json").rmdir()

    _, again = train(folder, 2, every_n_batches=2)

    for one, other in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_fit_of_several_epochs_after_a_rest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, 3, every_n_batches=2, interrupt_after=3)
    model = model_of()
    batches = KerasBatches(loader_of())
    backup = LoaderBackup(batches, tmp_path)
    backup.restore(model, epochs=3)

    with pytest.raises(ConfigError, match=r"makes 3 steps in epoch 1, but .* 5 batches"):
        fit(model, batches, epochs=3, callbacks=[backup])


def test_other_steps_than_batches_are_refused(tmp_path: Path) -> None:
    batches = KerasBatches(loader_of())

    with pytest.raises(ConfigError, match="leave out steps_per_epoch"):
        fit(
            model_of(),
            batches,
            epochs=1,
            steps_per_epoch=3,
            callbacks=[LoaderBackup(batches, tmp_path)],
        )


def test_a_backup_of_other_samples_changes_no_weights(tmp_path: Path) -> None:
    train(tmp_path, 1, every_n_batches=2)
    model = model_of()
    before = model.get_weights()
    other = LoaderBackup(KerasBatches(loader_of(n_samples=24)), tmp_path)

    with pytest.raises(LoaderStateError, match="another dataset"):
        other.restore(model, epochs=2)

    np.testing.assert_array_equal(model.get_weights()[0], before[0])


@pytest.mark.parametrize("damage", ["", "[]", "{}", "\xff", '{"epoch": "x"}', "weights", "cut"])
def test_a_damaged_backup_is_named(damage: str, tmp_path: Path) -> None:
    train(tmp_path, 1, every_n_batches=2)
    (weights,) = tmp_path.glob("*.h5")
    if damage == "weights":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:100])
    else:
        (tmp_path / "backup.json").write_text(damage, encoding="latin-1")

    with pytest.raises(LoaderStateError, match="remove"):
        train(tmp_path, 2, every_n_batches=2)


def test_a_backup_opens_no_file_elsewhere(tmp_path: Path) -> None:
    train(tmp_path / "backup", 1, every_n_batches=2)
    path = tmp_path / "backup" / "backup.json"
    backup = json.loads(path.read_text())
    (weights,) = (tmp_path / "backup").glob("*.h5")
    weights.rename(tmp_path / weights.name)
    path.write_text(json.dumps({**backup, "weights": f"../{weights.name}"}))

    with pytest.raises(LoaderStateError, match="is missing"):
        train(tmp_path / "backup", 2, every_n_batches=2)


def test_an_unbuilt_model_is_refused(tmp_path: Path) -> None:
    train(tmp_path, 1, every_n_batches=2)
    unbuilt = keras.Sequential([keras.layers.Dense(1)])

    with pytest.raises(ConfigError, match=r"keras.Input\(…\)"):
        LoaderBackup(KerasBatches(loader_of()), tmp_path).restore(unbuilt, epochs=2)


def test_epochs_of_a_budget_must_be_equally_long_for_keras() -> None:
    inputs = np.arange(300, dtype=np.float32)[:, None]
    samples = SequenceDatasetIterator([inputs, inputs * 2])
    costs = np.random.default_rng(0).integers(1, 40, 300)
    options: dict[str, Any] = {"shuffle": True, "seed": 6}
    several_windows = Loader(samples, budget=Budget(100, costs, window=50), **options)
    one_window = Loader(samples, budget=Budget(100, costs), **options)

    with pytest.raises(ConfigError, match=r"Keras counts 83 in each.*window have all samples"):
        fit(model_of(), KerasBatches(several_windows), 2)

    fit(model_of(), KerasBatches(one_window), 2)
