"""The Trainer of Hugging Face: with loaders, and with datasets in its own DataLoader."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.loader import Loader
from data_stack.loader.torch import TorchDataset, collate

transformers = pytest.importorskip("transformers", reason="make clients")

from data_stack.loader.accelerate import prepare_loader  # noqa: E402  # transformers brings it

N_STEPS = 5
N_SAMPLES = N_STEPS * 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Warnings of the Trainer are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Model(torch.nn.Module):
    """Notes the values of each batch that it is trained with."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def forward(self, x: Any, labels: Any) -> Any:
        if self.training:
            self.seen.append([int(value) for value in x])
        predicted = self.layer(x[:, None])
        return {"loss": (predicted[:, 0] - labels).abs().mean(), "logits": predicted}


class CountedReads:
    """Notes which samples are read."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, value: Any) -> Any:
        self.numbers.append(int(value))
        return np.float32(value)


def samples_of(reads: Any = None) -> DatasetIteratorIF:
    values = np.arange(N_SAMPLES, dtype=np.float32)
    samples = SequenceDatasetIterator([values, values * 2, values]).as_dict("x", "labels", "unused")
    return samples if reads is None else samples.map(reads, column="x")


def arguments(folder: Path, **options: Any) -> Any:
    chosen = {"num_train_epochs": 2, "save_steps": 3, "learning_rate": 0.01, **options}
    return transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        **chosen,
    )


def train_with_loader(folder: Path, reads: Any = None, checkpoint: str = "", **options: Any) -> Any:
    class LoaderTrainer(transformers.Trainer):  # type: ignore[misc, name-defined]  # no types
        def get_train_dataloader(self) -> Any:
            loader = Loader(
                self.train_dataset, 4, shuffle=True, seed=3, worker_kind="inline", prefetch=1
            )
            return prepare_loader(loader, self.accelerator)

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return prepare_loader(Loader(self.eval_dataset, 4), self.accelerator)

    dataset = samples_of(reads).select("x", "labels")
    trainer = LoaderTrainer(
        Model(),
        arguments(folder, **options),
        train_dataset=dataset,
        eval_dataset=samples_of().select("x", "labels"),
    )
    trainer.train(resume_from_checkpoint=str(folder / checkpoint) if checkpoint else None)
    return trainer


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2, "save_steps": 2}])
def test_a_training_goes_on_without_reading_what_it_skips(
    options: dict[str, Any], tmp_path: Path
) -> None:
    whole = train_with_loader(tmp_path, **options)
    checkpoint = "checkpoint-2" if options else "checkpoint-3"
    n_batches_before = 4 if options else 3
    reads = CountedReads()

    again = train_with_loader(tmp_path, reads, checkpoint, **options)

    assert again.model.seen == whole.model.seen[n_batches_before:]
    n_trained = len(list(chain(*again.model.seen)))
    assert n_trained <= len(reads.numbers) < n_trained + 4  # the map looks at its first sample
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_metrics_count_each_sample_once(tmp_path: Path) -> None:
    trainer = train_with_loader(tmp_path)

    predictions = trainer.predict(samples_of().select("x", "labels"))
    metrics = trainer.evaluate()

    assert predictions.predictions.shape == (N_SAMPLES, 1)
    differences = np.abs(predictions.predictions[:, 0] - np.arange(N_SAMPLES) * 2)
    assert metrics["eval_loss"] == pytest.approx(float(differences.mean()), rel=1e-4)


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("collator", [collate, None])
def test_the_dataloader_of_the_trainer_reads_a_dataset(
    n_workers: int, collator: Any, tmp_path: Path
) -> None:
    def train(**options: Any) -> Any:
        chosen = arguments(tmp_path, dataloader_num_workers=n_workers)
        trainer = transformers.Trainer(
            Model(), chosen, train_dataset=TorchDataset(samples_of()), data_collator=collator
        )
        trainer.train(**options)
        return trainer.model.seen

    whole = train()
    again = train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))

    assert sorted(chain(*whole[:N_STEPS])) == list(range(N_SAMPLES))
    assert again == whole[3:]
