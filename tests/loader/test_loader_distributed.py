"""Loaders of processes that train together by gloo: as many steps on all ranks, and every sample
once.
"""

from __future__ import annotations

import logging.handlers
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_or_stand_in import torch

from data_stack.dataset.iterator import DatasetIteratorView, SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.loader import Loader
from data_stack.loader.torch import shard_of_process

pytestmark = [
    pytest.mark.skipif(
        not torch.distributed.is_available(), reason="this torch has no torch.distributed"
    ),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

N_SAMPLES, WORLD = 97, 2


def loader_of(**options: Any) -> Loader:
    return Loader(
        SequenceDatasetIterator([np.arange(N_SAMPLES)]), 6, shuffle=True, seed=1, **options
    )


ORDER = [int(i) for batch in loader_of(worker_kind="inline") for i in batch[0]]


def run_rank(rank: int, folder: Path) -> None:
    """What one of the processes does; it writes down what it found."""
    earlier = loader_of(worker_kind="threads", workers=1)
    found: dict[str, Any] = {"len before the group": len(earlier)}
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=WORLD
    )
    messages = logging.handlers.BufferingHandler(1000)
    logging.getLogger("data_stack").addHandler(messages)
    logging.getLogger("data_stack").setLevel(logging.INFO)
    found["shard of the process"] = shard_of_process()
    for uneven in ("pad", "drop"):
        loader = (
            earlier
            if uneven == "pad"
            else loader_of(uneven=uneven, shard=shard_of_process(), worker_kind="inline")
        )
        found[f"{uneven} len"], found[uneven] = len(loader), []
        for batch in loader.torch():
            # a rank with more steps than the others would wait here
            n_together = torch.tensor(len(batch[0]))
            torch.distributed.all_reduce(n_together)
            found[uneven].append((batch[0].tolist(), int(n_together)))
    found["messages"] = [f"{record.levelname}: {record.getMessage()}" for record in messages.buffer]
    found["in processes"] = [
        batch[0].tolist() for batch in loader_of(workers=1, worker_kind="processes")
    ]
    found["copied"] = pickle.loads(pickle.dumps(loader_of()))  # its receiver may have no group
    found["all samples"] = [
        int(i) for batch in loader_of(shard=(0, 1), worker_kind="inline") for i in batch[0]
    ]
    (folder / f"found-{rank}").write_bytes(pickle.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_disagreeing_rank(rank: int, folder: Path) -> None:
    """What one of two processes notices of the other one, which differs in one thing after the
    other.
    """
    advanced = loader_of(shard=(0, WORLD), epochs=None, worker_kind="inline")
    list(zip(range(rank), advanced, strict=False))
    early = Loader(SequenceDatasetIterator([np.arange(N_SAMPLES)]), 6, shuffle=True, seed=rank)
    next(iter(early))
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=WORLD
    )
    other_samples = SequenceDatasetIterator([np.arange(N_SAMPLES) + rank])
    other_state = loader_of(shard=(rank, WORLD), worker_kind="inline")
    other_state.load_state_dict(advanced.state_dict())
    order = np.arange(N_SAMPLES)
    order[[1, 2]] = order[[1 + rank, 2 - rank]]  # the ends are the same
    loaders = {
        "same": loader_of(worker_kind="inline"),
        "epochs": loader_of(epochs=1 + rank),
        "digest of the layers": Loader(
            DatasetIteratorView(SequenceDatasetIterator([np.arange(N_SAMPLES)]), order), 6
        ),
        "seed": Loader(SequenceDatasetIterator([np.arange(N_SAMPLES)]), 6, shuffle=True, seed=rank),
        "seed (before the group)": early,
        "n_samples": Loader(SequenceDatasetIterator([np.arange(N_SAMPLES + rank)]), 6),
        "digest of the first and last sample": Loader(
            other_samples, 6, shard=(rank, WORLD)
        ).torch(),
        "order": Loader(other_samples, 6, shuffle=bool(rank)),
        "position": other_state,
        "order (costs)": Loader(
            SequenceDatasetIterator([np.arange(N_SAMPLES)]), budget=9, cost=order % 4, shuffle=True
        ),
        "": Loader(other_samples, 6, shard=(0, 1)),
    }
    found = {}
    for name, loader in loaders.items():
        try:
            found[name] = str(len(next(iter(loader))))
        except ConfigError as error:
            found[name] = str(error)
        torch.distributed.barrier()
    (folder / f"found-{rank}").write_bytes(pickle.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_all(function: Any, folder: Path) -> list[dict[str, Any]]:
    """What the processes of a function wrote down."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function, args=(rank, folder)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
        process.kill()
    return [pickle.loads((folder / f"found-{rank}").read_bytes()) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found; they meet in a file."""
    return run_all(run_rank, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("uneven", ["pad", "drop"])
def test_all_ranks_have_equal_steps_and_every_sample_once_together(
    ranks: list[dict[str, Any]], uneven: str
) -> None:
    n_samples = N_SAMPLES + 1 if uneven == "pad" else N_SAMPLES - 1

    steps = zip(*[rank[uneven] for rank in ranks], strict=True)

    assert {len(rank[uneven]) for rank in ranks} == {rank[f"{uneven} len"] for rank in ranks}
    assert [sample for step in steps for samples, _ in step for sample in samples] == [
        *ORDER,
        *ORDER,
    ][:n_samples]
    assert all(
        n_together == WORLD * len(samples) for rank in ranks for samples, n_together in rank[uneven]
    )


def test_a_loader_takes_the_shard_of_the_group(
    ranks: list[dict[str, Any]],
) -> None:
    for number, rank in enumerate(ranks):
        (message,) = rank["messages"]
        assert message.startswith(
            f"INFO: a loader without shard= uses ({number}, 2), the rank and world of torch.distributed's"
        )
        assert rank["shard of the process"] == rank["copied"].shard == (number, 2)
        assert rank["in processes"] == [samples for samples, _ in rank["pad"]]
        assert rank["all samples"] == ORDER
        assert rank["len before the group"] == -(-N_SAMPLES // 6)


def test_the_second_rank_notices_that_ranks_disagree(tmp_path: Path) -> None:
    both = run_all(run_disagreeing_rank, tmp_path)

    for name in both[0]:
        told = [found[name] for found in both if found[name] != "1"]
        if name in ("same", ""):
            assert not told
        else:
            assert len(told) == 1, name
            assert f"{name.partition(' (')[0]} " in told[0]
            assert "on all ranks" in told[0]


LAUNCHERS = [
    ("WORLD_SIZE", "RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
]


@pytest.mark.parametrize(("size_name", "rank_name"), LAUNCHERS)
def test_one_of_several_processes_without_a_shard_is_warned_once(
    size_name: str, rank_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(size_name, "2")
    loader = loader_of()

    with pytest.warns(
        UserWarning,
        match=f"{size_name}=2 says that there are 2 processes, but this loader has no shard=",
    ) as warned:
        first = [list(loader.torch()), list(loader)]
    assert [warning.filename for warning in warned] == [__file__]

    monkeypatch.setenv(rank_name, "1")
    assert (shard_of_process(), len(first[0])) == ((1, 2), 17)
    for shard in ("auto", (0, 1)):
        next(iter(loader_of(shard=shard)))  # silent


SRUN = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}
ALL_VARIABLES = ["RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"] + [
    name
    for prefix in ("HOROVOD_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "PMI_")
    for name in (f"{prefix}RANK", f"{prefix}SIZE")
]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "", "WORLD_SIZE": ""}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4", **SRUN}, (3, 4)),  # torchrun in each of two tasks
        (
            {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", **SRUN},
            (0, 2),
        ),  # it numbers nodes as they come
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1)),  # a batch script, or a notebook in it
        ({"MV2_COMM_WORLD_RANK": "2", "MV2_COMM_WORLD_SIZE": "3"}, (2, 3)),
        (
            {"PMI_RANK": "2", "PMI_SIZE": "3", "HOROVOD_RANK": "1", "HOROVOD_SIZE": "3"},
            "HOROVOD_RANK='1'.*contradict PMI_RANK='2'",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2", **SRUN},
            "RANK='0' and WORLD_SIZE='2' contradict SLURM_PROCID='1'",
        ),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK='4' and WORLD_SIZE='4' are not"),
        ({"RANK": "0"}, "RANK='0' and no WORLD_SIZE are not"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "no SLURM_PROCID and SLURM_STEP_NUM_TASKS='2' are not"),
        (
            {"OMPI_COMM_WORLD_RANK": "-1", "OMPI_COMM_WORLD_SIZE": "two"},
            "OMPI_COMM_WORLD_SIZE='two'",
        ),
    ],
)
def test_the_innermost_launcher_gives_the_shard_or_an_error(
    variables: dict[str, str], expected: tuple[int, int] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*ALL_VARIABLES, *SRUN):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    loader = loader_of(shard="auto", worker_kind="inline")

    if isinstance(expected, tuple):
        assert loader.shard == shard_of_process() == expected
    else:
        for find in (shard_of_process, lambda: next(iter(loader))):
            with pytest.raises(ConfigError, match=expected):
                find()


def test_ranks_without_a_store_log_digests_to_compare(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, batch_size, first in ((0, 6, 0), (1, 6, 0), (1, 5, 0), (1, 6, 1)):
        monkeypatch.setenv("RANK", str(rank))
        samples = SequenceDatasetIterator([np.arange(first, first + N_SAMPLES)])
        next(iter(Loader(samples, batch_size, shard="auto")))

    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    digests = [message.rpartition(" ")[2] for message in told]
    assert [message[:11] for message in told] == ["rank 0 of 2", *["rank 1 of 2"] * 3]
    assert (digests[0] == digests[1], len(set(digests))) == (True, 3)


class Batches(torch.utils.data.IterableDataset[Any]):
    """A loader of ours in the workers of torch's."""

    def __iter__(self) -> Any:
        return iter(loader_of(shard="auto", uneven="keep", worker_kind="inline").torch())


def test_workers_of_torchs_loader_divide_the_samples_of_their_rank() -> None:
    batches = torch.utils.data.DataLoader(
        Batches(), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )

    assert sorted(int(i) for batch in batches for i in batch[0]) == list(range(N_SAMPLES))
