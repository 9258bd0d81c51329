"""Trainers that have loops of their own: Lightning, accelerate, the Trainer of Hugging Face."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_batches import numbers_given, numbers_to
from torch.utils.data import DataLoader

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.loader import Budget, Loader
from data_stack.loader.loader import TorchLoader

N_STEPS = 5


@pytest.fixture
def lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Lightning, which writes into a folder of its own, and whose warnings are not ours."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lightning

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        yield lightning


def values_to(n: int) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(n, dtype=np.float32)])


def training_loader(**options: Any) -> TorchLoader:
    return Loader(values_to(N_STEPS * 4), 4, **{"shuffle": True, "seed": 3, **options}).torch()


def model_of(lightning: Any, make_loader: Any = None, validation: Any = None) -> Any:
    """A model that notes the first value of each of its batches."""

    class Model(lightning.LightningModule):  # type: ignore[misc]  # the package may be absent
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.firsts: list[int] = []

        if make_loader is not None:

            def train_dataloader(self) -> Any:
                return make_loader()

        if validation is not None:

            def val_dataloader(self) -> Any:
                return validation

            def validation_step(self, batch: Any, index: int) -> None:
                pass

        def training_step(self, batch: Any, index: int) -> Any:
            self.firsts.append(int(batch[0][0]))
            return self.layer(batch[0][:, None]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    return Model()


def trainer_of(lightning: Any, **options: Any) -> Any:
    chosen = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(**{**chosen, **quiet, **options})


def expected_firsts(n_epochs: int) -> list[int]:
    loader = training_loader()
    return [int(batch[0][0]) for _ in range(n_epochs) for batch in loader]


def test_lightning_trains_the_epochs_of_the_loader(lightning: Any) -> None:
    model = model_of(lightning, validation=training_loader(shuffle=False))

    trainer_of(lightning, max_epochs=3).fit(model, training_loader())

    assert model.firsts == expected_firsts(3)


@pytest.mark.parametrize("limits", [{"max_epochs": 1}, {"max_steps": N_STEPS}])
def test_lightning_goes_on_behind_a_checkpoint(lightning: Any, limits: dict[str, int]) -> None:
    first = model_of(lightning)
    trainer = trainer_of(lightning, **limits)
    trainer.fit(first, training_loader())
    trainer.save_checkpoint("last.ckpt")
    again = model_of(lightning)

    trainer_of(lightning, max_epochs=3).fit(
        again, training_loader(), ckpt_path="last.ckpt", weights_only=False
    )

    assert first.firsts + again.firsts == expected_firsts(3)


@pytest.mark.parametrize("every", [None, 3, 4])
def test_lightning_goes_on_behind_its_own_checkpoints(lightning: Any, every: int | None) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint

    callbacks = [ModelCheckpoint(".", filename="epoch", every_n_train_steps=every)]
    n_steps = every or N_STEPS
    chosen = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    chosen["enable_model_summary"] = False
    first = model_of(lightning)
    lightning.Trainer(max_epochs=1, callbacks=callbacks, **chosen).fit(first, training_loader())
    again = model_of(lightning)

    trainer_of(lightning, max_epochs=2).fit(
        again, training_loader(), ckpt_path="epoch.ckpt", weights_only=False
    )

    assert first.firsts[:n_steps] + again.firsts == expected_firsts(2)


def test_loaders_that_lightning_makes_anew_have_orders_of_their_own(lightning: Any) -> None:
    model = model_of(lightning, training_loader)

    trainer_of(lightning, max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(model)

    assert model.firsts == expected_firsts(3)


def budget_loader() -> TorchLoader:
    """A loader whose epochs have 83, 82, 84, 84 and 82 batches."""
    costs = np.random.default_rng(0).integers(1, 40, 300)
    budget = Budget(100, costs, window=50)
    return Loader(values_to(300), budget=budget, shuffle=True, seed=6).torch()


def test_lightning_that_counts_once_leaves_batches_with_a_warning(lightning: Any) -> None:
    model = model_of(lightning)

    with pytest.warns(UserWarning, match="epoch 2 was left after 83 of its 84 batches"):
        trainer_of(lightning, max_epochs=4).fit(model, budget_loader())


def test_lightning_trains_all_batches_of_a_budget(lightning: Any) -> None:
    model = model_of(lightning)
    loader = budget_loader()
    expected = [int(batch[0][0]) for _ in range(5) for batch in loader]

    trainer_of(lightning, max_epochs=5, reload_dataloaders_every_n_epochs=1).fit(
        model, budget_loader()
    )

    assert model.firsts == expected


def test_lightning_leaves_endless_loaders_alone(lightning: Any) -> None:
    model = model_of(lightning)

    trainer_of(lightning, max_epochs=2, limit_train_batches=3).fit(
        model, training_loader(epochs=None)
    )

    whole = expected_firsts(2)
    assert model.firsts == whole[:3] + whole[N_STEPS : N_STEPS + 3]


@pytest.mark.parametrize("batch_size", [2, 3, 4])
def test_lightning_goes_on_with_another_batch_size(lightning: Any, batch_size: int) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint

    from data_stack.loader.lightning import ContinueOnOtherRanks

    def fit(batch_size: int, callback: Any, max_epochs: int, **options: Any) -> list[int]:
        # Nothing is shuffled, so that the first values say which samples were trained.
        loader = Loader(values_to(N_STEPS * 4), batch_size).torch()
        model = model_of(lightning)
        trainer = trainer_of(
            lightning,
            max_epochs=max_epochs,
            callbacks=[callback],
            enable_checkpointing=isinstance(callback, ModelCheckpoint),
        )
        trainer.fit(model, loader, **options)
        return model.firsts  # type: ignore[no-any-return]  # lightning may be absent

    saving = ModelCheckpoint(".", filename="three", every_n_train_steps=3)
    fit(4, saving, max_epochs=1)
    again = fit(batch_size, ContinueOnOtherRanks(), 2, ckpt_path="three.ckpt", weights_only=False)

    whole = list(range(0, N_STEPS * 4, batch_size))
    assert again == [*range(12, N_STEPS * 4, batch_size), *whole]


def test_lightning_cannot_go_on_with_loaders_at_several_places(lightning: Any) -> None:
    from data_stack.loader.lightning import ContinueOnOtherRanks

    class Places(lightning.Callback):  # type: ignore[misc]  # the package may be absent
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            for loader, position in zip(trainer.train_dataloader, (4, 8), strict=True):
                loader.seek(0, position, 0)

    class Model(lightning.LightningModule):  # type: ignore[misc]  # the package may be absent
        def training_step(self, batch: Any, index: int) -> None:
            pass

        def configure_optimizers(self) -> None:
            pass

    callbacks = [Places(), ContinueOnOtherRanks()]
    with pytest.raises(ConfigError, match=r"have received \[1, 2\] batches"):
        trainer_of(lightning, max_epochs=1, callbacks=callbacks).fit(
            Model(), [training_loader(), training_loader()]
        )


def test_accelerate_skips_batches() -> None:
    import accelerate

    loader = training_loader()

    loader.set_epoch(1)
    rest = [int(batch[0][0]) for batch in accelerate.skip_first_batches(loader, 2)]
    following = [int(batch[0][0]) for batch in loader]

    whole = expected_firsts(3)
    assert rest == whole[N_STEPS + 2 : 2 * N_STEPS]
    assert following == whole[2 * N_STEPS :]


class Regression(torch.nn.Module):
    """A model for the Trainer of Hugging Face, which notes the first value of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.firsts: list[int] = []

    def forward(self, x: Any = None, **_: Any) -> Any:
        self.firsts.append(int(x[0]))
        predicted = self.layer(x[:, None])
        return {"loss": predicted.mean(), "logits": predicted}


@pytest.mark.parametrize("save_steps", [3, N_STEPS, 7])
def test_the_trainer_of_hugging_face_goes_on_behind_a_checkpoint(
    save_steps: int, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    data = values_to(N_STEPS * 4).as_dict("x")

    class Training(transformers.Trainer):  # type: ignore[misc, name-defined]  # it may be absent
        def get_train_dataloader(self) -> Any:
            return Loader(data, 4, shuffle=True, seed=3).torch()

    def arguments() -> Any:
        return transformers.TrainingArguments(
            str(tmp_path),
            use_cpu=True,
            learning_rate=1e-9,
            num_train_epochs=2,
            report_to=[],
            disable_tqdm=True,
            save_steps=save_steps,
            remove_unused_columns=False,
        )

    whole, again = Regression(), Regression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Training(whole, arguments()).train()
        checkpoint = str(tmp_path / f"checkpoint-{save_steps}")
        Training(again, arguments()).train(resume_from_checkpoint=checkpoint)

    assert whole.firsts == expected_firsts(2)
    assert again.firsts == whole.firsts[save_steps:]


# ------------------------------------------------------------------------- what they lean on


@pytest.mark.parametrize("epochs", [1, 2])
def test_batches_by_their_numbers_are_those_of_an_iteration(epochs: int) -> None:
    loader = training_loader(epochs=epochs)
    by_number = DataLoader(
        loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
    )

    firsts = [int(batch[0][0]) for batch in by_number]

    assert firsts == expected_firsts(epochs)
    assert len(by_number) == N_STEPS * epochs
    assert len(loader.dataset) == N_STEPS * 4
    assert loader.tell() == (epochs, 0, epochs)


def test_any_batch_can_be_asked_for_alone_but_not_two() -> None:
    loader = training_loader(epochs=2)
    whole = expected_firsts(2)

    firsts = []
    for step in (7, 1, 2):
        loader.set_epoch(0)
        firsts.append(int(loader.dataset[step][0][0]))

    assert firsts == [whole[7], whole[1], whole[2]]
    with pytest.raises(ConfigError, match=r"each batch of a loader is one step, got .*\[1, 2\]"):
        loader.dataset.__getitems__([1, 2])


def test_an_iteration_that_has_not_begun_moves_to_another_epoch() -> None:
    loader = Loader(numbers_to(20), 4, shuffle=True, seed=3)
    whole = [numbers_given(loader) for _ in range(3)]
    loader.set_epoch(0)

    batches = iter(loader)
    loader.set_epoch(2)
    moved = [batch[0].tolist() for batch in batches]

    assert moved == whole[2]
    assert loader.epoch == 3


def test_setting_the_epoch_ends_an_iteration_that_has_begun() -> None:
    loader = Loader(numbers_to(20), 4)
    batches = iter(loader)
    next(batches)

    loader.set_epoch(2)

    with pytest.raises(RuntimeError, match="has ended"):
        next(batches)


def test_the_epochs_of_a_trainer_are_iterations_of_the_loader() -> None:
    loader = training_loader(epochs=2)
    state = None
    for number, _ in enumerate(loader):
        if number == 6:
            state = loader.state_dict()
            break
    assert state is not None

    loader.sampler.set_epoch(3)
    sought = loader.tell()
    loader.load_state_dict(state)
    loader.sampler.set_epoch(0)  # the iteration that the state is in

    assert sought == (6, 0, 6)
    assert loader.tell() == (1, 8, 0)
