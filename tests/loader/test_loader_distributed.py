"""Loaders of processes that train together by gloo: as many steps on all ranks, every sample once, one process's weights."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import Loader
from data_stack.loader.torch import shard_of_process

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")

N_SAMPLES = 97


def dataset(n_samples: int = N_SAMPLES) -> SequenceDatasetIterator:
    numbers = np.random.default_rng(0).random((n_samples, 5))
    return SequenceDatasetIterator([numbers, numbers @ np.arange(5.0), np.arange(n_samples)])


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three processes found. They meet as those of ``torchrun`` do, but in a file."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder)], env={**environment, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 3, "\n".join(errors)
    return [pickle.loads((folder / f"found-{rank}").read_bytes()) for rank in range(3)]


# ------------------------------------------------------------------ what the processes do


def dealing() -> Any:
    """The samples of every step, by each way to deal the uneven rest; and a state in the middle."""
    found: dict[str, Any] = {}
    for uneven in ("pad", "drop"):
        loader = Loader(
            dataset(), 6, shuffle=True, seed=1, shard=shard_of_process(), uneven=uneven, workers=2, worker_kind="threads"
        )
        found[uneven] = []
        for batch in loader.torch():
            # a rank that had a step more would wait here for the others for ever
            n_together = torch.tensor(len(batch[2]))
            torch.distributed.all_reduce(n_together)
            found[uneven].append((batch[2].tolist(), int(n_together)))
            if uneven == "pad" and len(found[uneven]) == 2:
                found["state"] = json.dumps(loader.state_dict())
        found[f"{uneven} len"] = len(loader)
    return found


def rest(state: str) -> Any:
    """What each rank has after a state of rank 0's, which was taken in another world."""
    shared = [state]
    torch.distributed.broadcast_object_list(shared, src=0)
    loader = Loader(dataset(), 4, shuffle=True, shard=shard_of_process(), worker_kind="inline")
    loader.load_state_dict(json.loads(shared[0]))
    return [batch[2].tolist() for batch in loader.torch()]


class Told(logging.Handler):
    """What is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.levelname}: {record.getMessage()}")


def untold(earlier: Loader) -> Any:
    """What loaders give that were told no shard, made before the group was there and after, and one that was."""
    told = Told()
    logging.getLogger("data_stack").addHandler(told)
    logging.getLogger("data_stack").setLevel(logging.INFO)
    found: dict[str, Any] = {"len": len(earlier), "shard": earlier.shard, "batches": [b[2].tolist() for b in earlier]}
    found["again"] = [batch[2].tolist() for batch in earlier]
    found["said"] = told.said[:]
    in_processes = Loader(dataset(), 6, shuffle=True, seed=1, workers=1, worker_kind="processes").torch()
    found["from processes"] = [batch[2].tolist() for batch in in_processes]
    found["copied"] = pickle.loads(pickle.dumps(Loader(dataset(), 6)))  # its receiver may have no group
    found["given"] = [int(i) for batch in Loader(dataset(), 6, shard=(0, 1), worker_kind="inline") for i in batch[2]]
    loader = Loader(dataset(), 6, shuffle=True, seed=1, worker_kind="inline")
    next(iter(loader))
    found["state"] = json.dumps(loader.state_dict())
    loader.close()
    return found


def untold_rest(state: str) -> Any:
    """What is left after a state of another world, of a loader that was told no shard."""
    shared = [state]
    torch.distributed.broadcast_object_list(shared, src=0)
    state = shared[0]
    loader = Loader(dataset(), 4, shuffle=True, worker_kind="inline")
    loader.load_state_dict(json.loads(state))
    return [batch[2].tolist() for batch in loader.torch()]


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()


def trained(model: Any, loader: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(2):
        for numbers, targets, _ in loader:
            optimizer.zero_grad()
            ((model(numbers)[:, 0] - targets) ** 2).mean().backward()
            if torch.distributed.is_initialized():  # what DistributedDataParallel does, which takes seconds to import
                for parameter in model.parameters():
                    torch.distributed.all_reduce(parameter.grad)
                    parameter.grad /= torch.distributed.get_world_size()
            optimizer.step()


def training() -> Any:
    """The weights that two epochs come to with gradients of all ranks."""
    model = network()
    loader = Loader(dataset(96), 8, shuffle=True, seed=3, shard=shard_of_process(), worker_kind="threads", workers=1)
    trained(model, loader.torch(device="cpu"))
    return [parameter.detach().numpy() for parameter in model.parameters()]


def main() -> None:
    folder = Path(sys.argv[1])
    rank = int(os.environ["RANK"])
    found: dict[str, Any] = {"alone": shard_of_process()}

    def together(world: int, name: str, task: Any, *arguments: Any) -> None:
        if rank < world:
            torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=world)
            found[f"shard of {name}"] = shard_of_process()
            found[name] = task(*arguments)
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()

    together(2, "dealing 2", dealing)
    together(3, "dealing 3", dealing)
    together(3, "rest 3", rest, found["dealing 2"]["state"] if rank == 0 else "")
    together(2, "rest 2", rest, found["dealing 3"]["state"])
    together(2, "training", training)
    earlier = Loader(dataset(), 6, shuffle=True, seed=1, worker_kind="inline")
    found["len before the group"] = len(earlier)
    together(2, "untold 2", untold, earlier)
    together(3, "untold 3", untold_rest, found["untold 2"]["state"] if rank == 0 else "")
    (folder / f"found-{rank}").write_bytes(pickle.dumps(found))


# ------------------------------------------------------------------ what must hold

ORDER = [int(i) for batch in Loader(dataset(), 1, shuffle=True, seed=1, worker_kind="inline") for i in batch[2]]


@pytest.mark.parametrize("world", [2, 3])
def test_all_ranks_make_as_many_steps_and_have_every_sample_once_together(ranks: list[dict[str, Any]], world: int) -> None:
    dealings = [rank[f"dealing {world}"] for rank in ranks[:world]]

    n_padded, n_kept = -(-N_SAMPLES // world) * world, N_SAMPLES // world * world
    for uneven, dealt in (("pad", [*ORDER, *ORDER][:n_padded]), ("drop", ORDER[:n_kept])):
        assert {len(each[uneven]) for each in dealings} == {each[f"{uneven} len"] for each in dealings}
        steps = zip(*[each[uneven] for each in dealings], strict=True)
        assert [sample for step in steps for samples, _ in step for sample in samples] == dealt
        assert all(n_together == world * len(samples) for each in dealings for samples, n_together in each[uneven])


@pytest.mark.parametrize(("world", "later_world"), [(2, 3), (3, 2)])
def test_the_state_of_one_rank_goes_on_in_another_world(ranks: list[dict[str, Any]], world: int, later_world: int) -> None:
    assert len({rank[f"dealing {world}"]["state"] for rank in ranks[:world]}) == 1

    left = [rank[f"rest {later_world}"] for rank in ranks[:later_world]]

    again = [sample for step in zip(*left, strict=True) for samples in step for sample in samples]
    n_left = N_SAMPLES - 2 * 6 * world
    assert again[:n_left] == ORDER[-n_left:]
    assert again[n_left:] == ORDER[: -n_left % later_world]


def test_two_ranks_train_the_weights_of_one_process_with_twice_the_batch(ranks: list[dict[str, Any]]) -> None:
    alone = network()
    trained(alone, Loader(dataset(96), 16, shuffle=True, seed=3, worker_kind="inline").torch())

    first, second = (rank["training"] for rank in ranks[:2])

    for own, of_first, of_second in zip(alone.parameters(), first, second, strict=True):
        assert np.array_equal(of_first, of_second)
        np.testing.assert_allclose(of_first, own.detach().numpy(), rtol=1e-10)


def test_the_shard_of_a_process_is_that_of_its_group_or_else_of_torchruns_variables(ranks: list[dict[str, Any]]) -> None:
    assert [rank["alone"] for rank in ranks] == [(0, 3), (1, 3), (2, 3)]
    assert [rank["shard of dealing 2"] for rank in ranks[:2]] == [(0, 2), (1, 2)]


def test_a_loader_that_is_told_no_shard_takes_that_of_the_group_even_if_it_was_made_before_the_group(
    ranks: list[dict[str, Any]],
) -> None:
    first, second = (rank["untold 2"] for rank in ranks[:2])

    n_padded = -(-N_SAMPLES // 2) * 2
    assert [each["shard"] for each in (first, second)] == [(0, 2), (1, 2)]
    for batches in ("batches", "from processes"):
        assert first["len"] == second["len"] == len(first[batches]) == len(second[batches])
        steps = zip(first[batches], second[batches], strict=True)
        assert [sample for step in steps for samples in step for sample in samples] == [*ORDER, *ORDER][:n_padded]
    assert ranks[0]["len before the group"] == -(-N_SAMPLES // 6)


def test_it_says_so_once_and_a_shard_that_is_given_stays(ranks: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(ranks[:2]):
        (said,) = rank["untold 2"]["said"]
        assert said.startswith(f"INFO: a loader was given no shard: it takes ({number}, 2)")
        assert rank["untold 2"]["given"] == list(range(N_SAMPLES))


def test_a_copy_that_goes_to_a_process_without_a_group_keeps_the_rank(ranks: list[dict[str, Any]]) -> None:
    assert [rank["untold 2"]["copied"].shard for rank in ranks[:2]] == [(0, 2), (1, 2)]


def test_what_was_told_no_shard_goes_on_in_another_world_with_each_sample_once(ranks: list[dict[str, Any]]) -> None:
    steps = zip(*[rank["untold 3"] for rank in ranks], strict=True)

    again = [int(sample) for step in steps for samples in step for sample in samples]
    assert again[: N_SAMPLES - 12] == ORDER[12:]


if __name__ == "__main__":
    main()
