"""Damaged samples of ranks that train together by gloo: as many steps on all of them."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaged_numbers import DamagedNumbers
from torch_or_stand_in import torch

from data_stack.exception import ConfigError
from data_stack.loader import Loader

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)

WORLD = 2
N = 50
DAMAGED = frozenset([1, 2, 3, 4, 5, 30, 49])


def loader_of(**options: Any) -> Loader:
    return Loader(DamagedNumbers(N, DAMAGED), 4, seed=3, worker_kind="inline", **options)


def run_rank(rank: int, folder: Path) -> None:
    """Train with each way to treat damage, and write down the batches of each step."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=WORLD
    )
    outcome: dict[str, Any] = {}
    for on_error in ("skip", "replace"):
        batches = []
        for (numbers,) in loader_of(on_error=on_error, epochs=2).torch():
            # A rank with more steps than the others would wait here.
            n_together = torch.tensor(len(numbers))
            torch.distributed.all_reduce(n_together)
            batches.append((numbers.tolist(), int(n_together)))
        outcome[on_error] = batches
    try:
        next(iter(Loader(DamagedNumbers(N, []), 4, on_error="skip" if rank else "raise")))
    except ConfigError as error:
        outcome["disagreement"] = str(error)
    (folder / f"outcome-{rank}").write_bytes(pickle.dumps(outcome))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_all(function: Callable[[int, Path], None], folder: Path) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=function, args=(rank, folder)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * WORLD
    return [pickle.loads((folder / f"outcome-{rank}").read_bytes()) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_all(run_rank, tmp_path_factory.mktemp("ranks"))


def test_all_ranks_run_the_same_steps(ranks: list[dict[str, Any]]) -> None:
    for on_error in ("skip", "replace"):
        first, second = (rank[on_error] for rank in ranks)
        assert len(first) == len(second) == 14
        for (numbers, n_together), (other_numbers, _) in zip(first, second, strict=True):
            assert n_together == len(numbers) + len(other_numbers)


def test_skipping_ranks_read_all_other_samples(ranks: list[dict[str, Any]]) -> None:
    numbers = set()
    for rank in ranks:
        for batch, _ in rank["skip"]:
            numbers |= set(batch)

    assert numbers == set(range(N)) - DAMAGED


def test_replacing_ranks_have_full_batches(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        sizes = [len(batch) for batch, _ in rank["replace"]]
        assert sizes == [4, 4, 4, 4, 4, 4, 1] * 2
        assert not DAMAGED & {number for batch, _ in rank["replace"] for number in batch}


def test_ranks_that_treat_damage_differently_disagree(ranks: list[dict[str, Any]]) -> None:
    messages = [rank["disagreement"] for rank in ranks if "disagreement" in rank]

    assert any("on_error" in message for message in messages)
