"""Loaders of four gloo processes that train one model by data and model parallelism."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_or_stand_in import torch

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.loader import Loader, Shuffled

pytestmark = [
    pytest.mark.skipif(
        not torch.distributed.is_available(), reason="this torch has no torch.distributed"
    ),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

N_SAMPLES = 97
N_PROCESSES = 4


def loader_of(shard: Any, *, seed: int = 1, **options: Any) -> Loader:
    samples = SequenceDatasetIterator([np.arange(N_SAMPLES)])
    options.setdefault("worker_kind", "inline")
    options.setdefault("shuffle", True)
    return Loader(samples, 6, seed=seed, shard=shard, **options)


def samples_of(loader: Loader) -> list[list[int]]:
    """The samples of each batch."""
    return [batch[0].tolist() for batch in loader]


# ---------------------------------------------------------------------- what the processes do


def make_mesh(shape: tuple[int, ...], names: tuple[str, ...]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def make_mesh_of(ranks: Any, names: tuple[str, ...] | None = None) -> Any:
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh("cpu", ranks, mesh_dim_names=names)


def make_groups(members: list[list[int]], process: int) -> Any:
    """The group of this process. Each process takes part in making all groups."""
    groups = [torch.distributed.new_group(ranks) for ranks in members]
    return next(group for group, ranks in zip(groups, members, strict=True) if process in ranks)


class OwnOrder(Shuffled):
    """An order that each rank draws by a seed of its own."""

    shares_seed = False


def list_right_shards(process: int) -> Iterator[tuple[str, Any]]:
    """Yield right shards of this process, each with a name."""
    hybrid = make_mesh((2, 2, 1), ("dp_replicate", "dp_shard", "tp"))
    yield "dp 2, tp 2", make_mesh((2, 2), ("dp", "tp"))["dp"]
    yield "pp 2, dp 2", make_mesh((2, 2), ("pp", "dp"))["dp"]
    yield "dp 4", make_mesh((4,), ("dp",))
    yield "dp 1, tp 4", make_mesh((1, 4), ("dp", "tp"))["dp"]
    yield "hybrid", hybrid["dp_replicate", "dp_shard"]
    yield "hybrid, whole mesh", make_mesh((2, 2), ("dp_replicate", "dp_shard"))
    yield "hybrid, flattened", hybrid["dp_replicate", "dp_shard"]._flatten("dp")
    yield "without names, in another order", make_mesh_of([[2, 0], [3, 1]])
    yield "pair", (process // 2, 2)
    yield "group", make_groups([[0, 2], [1, 3]], process)


def run_right_process(process: int, found: dict[str, Any], meet: Callable[[], None]) -> None:
    for name, shard in list_right_shards(process):
        loader = loader_of(shard)
        found[name] = (loader.shard, samples_of(loader))
        meet()

    # A state of two data-parallel ranks continues on four.
    halves = loader_of(make_mesh((2, 2), ("dp", "tp"))["dp"])
    before = [batch[0].tolist() for _, batch in zip(range(3), halves, strict=False)]
    state = halves.state_dict()
    quarters = loader_of(make_mesh((4,), ("dp",)))
    quarters.load_state_dict(state)
    found["resumed"] = (halves.shard, before, samples_of(quarters))
    meet()

    # Worker processes and copies know the shard without a mesh.
    mesh = make_mesh((2, 2), ("dp", "tp"))["dp"]
    in_workers = loader_of(mesh, worker_kind="processes", workers=1)
    found["in workers"] = samples_of(in_workers)
    found["copy"] = pickle.loads(pickle.dumps(in_workers))
    found["repr"] = repr(in_workers)
    meet()

    # Each rank has an order of its own, which the processes of a model share.
    found["own orders"] = samples_of(loader_of(mesh, seed=process // 2, shuffle=OwnOrder()))
    meet()

    # The first process of each model group reads, and gives the others their samples.
    if process % 2 == 0:
        found["one process a model"] = samples_of(loader_of(mesh))
        found["one process a model, pair"] = samples_of(loader_of((process // 2, 2)))
    meet()

    # Two models train with other seeds.
    pairs = make_groups([[0, 1], [2, 3]], process)
    found["two models"] = samples_of(loader_of(pairs, seed=process // 2))


def list_wrong_loaders(process: int) -> Iterator[tuple[str, Callable[[], Loader]]]:
    """Yield what makes a wrong loader in this process, each with a name."""
    mesh = make_mesh((2, 2), ("dp", "tp"))
    unnamed = make_mesh((2, 2), ("first", "second"))
    group = torch.distributed.new_group([0, 1])
    small_mesh = make_mesh_of([0, 1])
    mixed_up = unnamed["first"] if process > 1 else unnamed["second"]
    yield "other seeds in a model", lambda: loader_of(mesh["dp"], seed=process % 2)
    yield (
        "other seeds in a model, own orders",
        lambda: loader_of(mesh["dp"], seed=process, shuffle=OwnOrder()),
    )
    yield "other batch sizes", lambda: loader_of((process // 2, 2), drop_last=process == 3)
    yield "same pair", lambda: loader_of((0, 2))
    yield "same pair in the world", lambda: loader_of((0, 4))
    yield "dimensions mixed up", lambda: loader_of(mixed_up)
    yield "other worlds", lambda: loader_of(mesh["dp"] if process else (0, 3))
    yield "tensor parallel", lambda: loader_of(mesh["tp"])
    yield "whole mesh", lambda: loader_of(mesh)
    yield (
        "flattened with context",
        lambda: loader_of(
            make_mesh((2, 2), ("dp_shard", "cp"))["dp_shard", "cp"]._flatten("dp_shard_cp")
        ),
    )
    yield "right again", lambda: loader_of(mesh["dp"])
    yield "no member", lambda: loader_of(group)
    yield "outside of the mesh", lambda: loader_of(small_mesh)


def run_wrong_process(process: int, found: dict[str, Any], meet: Callable[[], None]) -> None:
    for name, make_loader in list_wrong_loaders(process):
        try:
            found[name] = samples_of(make_loader())
        except ConfigError as error:
            found[name] = str(error)
        meet()


def run_process(function: Any, process: int, folder: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=process, world_size=N_PROCESSES
    )
    found: dict[str, Any] = {}
    function(process, found, torch.distributed.barrier)
    (folder / f"found-{process}").write_bytes(pickle.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_all(function: Any, folder: Path) -> list[dict[str, Any]]:
    """What each of the processes found."""
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=run_process, args=(function, process, folder))
        for process in range(N_PROCESSES)
    ]
    for started in processes:
        started.start()
    for started in processes:
        started.join(240)
        started.kill()
    return [
        pickle.loads((folder / f"found-{process}").read_bytes()) for process in range(N_PROCESSES)
    ]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_all(run_right_process, tmp_path_factory.mktemp("right"))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_all(run_wrong_process, tmp_path_factory.mktemp("wrong"))


# ---------------------------------------------------------------------- right shards

#: The data-parallel rank of each process, and how many there are.
SHARDS = {
    "dp 2, tp 2": ([0, 0, 1, 1], 2),
    "pp 2, dp 2": ([0, 1, 0, 1], 2),
    "dp 4": ([0, 1, 2, 3], 4),
    "dp 1, tp 4": ([0, 0, 0, 0], 1),
    "hybrid": ([0, 1, 2, 3], 4),
    "hybrid, whole mesh": ([0, 1, 2, 3], 4),
    "hybrid, flattened": ([0, 1, 2, 3], 4),
    "without names, in another order": ([1, 3, 0, 2], 4),
    "pair": ([0, 0, 1, 1], 2),
    "group": ([0, 0, 1, 1], 2),
}


@pytest.mark.parametrize("name", SHARDS)
def test_a_process_reads_the_part_of_its_data_parallel_rank(
    right: list[dict[str, Any]], name: str
) -> None:
    ranks, world = SHARDS[name]

    for process, rank in enumerate(ranks):
        shard, batches = right[process][name]
        assert shard == (rank, world)
        # Here there is no process group, so nothing is compared.
        assert batches == samples_of(loader_of((rank, world)))


def test_a_state_of_two_ranks_continues_on_four(right: list[dict[str, Any]]) -> None:
    order = [sample for batch in samples_of(loader_of((0, 1))) for sample in batch]

    # Processes 0 and 2 are the two data-parallel ranks.
    received = [
        sample for process in (0, 2) for batch in right[process]["resumed"][1] for sample in batch
    ]
    resumed = [sample for found in right for batch in found["resumed"][2] for sample in batch]

    assert sorted(received) == sorted(order[:36])
    assert set(received).isdisjoint(order[36:])
    assert set(resumed) - set(order[36:]) <= set(order[:3])  # padding of the last step
    assert set(resumed) >= set(order[36:])


def test_workers_and_copies_keep_the_shard_of_a_mesh(right: list[dict[str, Any]]) -> None:
    for process, found in enumerate(right):
        assert found["in workers"] == found["dp 2, tp 2"][1]
        assert found["copy"].shard == (process // 2, 2)
        assert f"rank {process // 2} of 2" in found["repr"]


def test_one_process_of_each_model_may_read_alone(right: list[dict[str, Any]]) -> None:
    for process in (0, 2):
        expected = right[process]["dp 2, tp 2"][1]
        assert right[process]["one process a model"] == expected
        assert right[process]["one process a model, pair"] == expected


def test_ranks_may_have_orders_of_their_own(right: list[dict[str, Any]]) -> None:
    for process, found in enumerate(right):
        rank = process // 2
        expected = samples_of(loader_of((rank, 2), seed=rank, shuffle=OwnOrder()))
        assert found["own orders"] == expected


def test_process_groups_of_two_models_are_not_compared(right: list[dict[str, Any]]) -> None:
    for process, found in enumerate(right):
        expected = samples_of(loader_of((process % 2, 2), seed=process // 2))
        assert found["two models"] == expected


# ---------------------------------------------------------------------- wrong shards


def messages_of(wrong: list[dict[str, Any]], name: str) -> list[str]:
    """The errors of the processes."""
    return [found[name] for found in wrong if isinstance(found[name], str)]


@pytest.mark.parametrize(
    ("name", "n_errors", "problem"),
    [
        ("other seeds in a model", 2, "seed"),
        ("other seeds in a model, own orders", 2, "seed"),
        ("other batch sizes", None, "drop_last"),
        ("other worlds", None, "world"),
    ],
)
def test_processes_that_differ_raise_an_error(
    wrong: list[dict[str, Any]], name: str, n_errors: int | None, problem: str
) -> None:
    messages = messages_of(wrong, name)

    assert messages
    assert n_errors in (None, len(messages))
    for message in messages:
        assert f"{problem} " in message
        assert "on all ranks" in message


def test_a_rank_of_too_many_processes_is_an_error(wrong: list[dict[str, Any]]) -> None:
    messages = messages_of(wrong, "same pair")

    assert len(messages) == 2
    for message in messages:
        assert "4 processes read 2 parts of the samples, so 2 of them read each part" in message
        assert "have shard=(0, 2)" in message
        assert "rank 1: none yet" in message
    assert any("rank 0: 0, 1, 2, 3" in message for message in messages)


def test_one_pair_on_all_processes_is_an_error(wrong: list[dict[str, Any]]) -> None:
    messages = messages_of(wrong, "same pair in the world")

    assert len(messages) == 3
    for message in messages:
        assert "4 processes read 4 parts of the samples, so 1 of them read each part" in message


def test_dimensions_that_are_mixed_up_are_an_error(wrong: list[dict[str, Any]]) -> None:
    (message,) = messages_of(wrong, "dimensions mixed up")

    assert "3 have shard=(1, 2)" in message


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tensor parallel", "the dimension 'tp'.*read the same batches"),
        ("whole mesh", "the dimension 'tp', one of .'dp', 'tp'."),
        ("flattened with context", "the dimension 'dp_shard_cp'"),
    ],
)
def test_a_mesh_of_model_parallelism_is_an_error(
    wrong: list[dict[str, Any]], name: str, problem: str
) -> None:
    for found in wrong:
        with pytest.raises(ConfigError, match=problem):
            raise ConfigError(found[name])


@pytest.mark.parametrize("name", ["no member", "outside of the mesh"])
def test_a_process_outside_of_a_mesh_or_group_is_told(
    wrong: list[dict[str, Any]], name: str
) -> None:
    for process, found in enumerate(wrong):
        if process < 2:
            assert found[name] == samples_of(loader_of((process, 2)))
        else:
            assert "of which this process is no" in found[name]


def test_after_errors_right_loaders_agree(wrong: list[dict[str, Any]]) -> None:
    for process, found in enumerate(wrong):
        assert found["right again"] == samples_of(loader_of((process // 2, 2)))


# ---------------------------------------------------------------------- without processes


@pytest.mark.parametrize("shard", [object(), 3, "dp", {"dp": 1, "tp": 2, "pp": 3}])
def test_other_shards_are_refused(shard: Any) -> None:
    with pytest.raises(ConfigError, match="or a device mesh or process group of torch"):
        loader_of(shard)
