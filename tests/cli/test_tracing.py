"""trace: the samples of a training step, from a recipe and a state."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runs import Run

import data_stack
from data_stack.exception import ConfigError
from data_stack.loader import BlockShuffled, InOrder, Lanes, Loader, Order, Shuffled
from data_stack.loader.orders.stated_order import make_order
from data_stack.loader.state import LoaderState

N_DOCUMENTS = 60


@pytest.fixture
def documents(tmp_path: Path) -> Any:
    """Documents of tokens in two Parquet files."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(2):
        first = number * N_DOCUMENTS // 2
        tokens = [[document] * (document % 5 + 1) for document in range(first, first + 30)]
        lengths = [len(values) for values in tokens]
        table = pa.table({"tokens": pa.array(tokens, pa.list_(pa.int64())), "length": lengths})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=7)
    return data_stack.load(str(folder))


def write(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def run_some_steps(loader: Loader, n_steps: int) -> dict[str, Any]:
    """The state after some steps."""
    batches = iter(loader)
    for _ in range(n_steps):
        next(batches)
    return loader.state_dict()


def rows_of(sample: Mapping[str, Any]) -> list[int]:
    return [origin["position"] for origin in sample["origins"]]


# ---------------------------------------------------------------------- steps


@pytest.mark.parametrize(
    "shuffle",
    [
        False,
        True,
        BlockShuffled(window=2, block_lengths=3),
        Lanes(BlockShuffled(window=2, block_lengths=4, blocks=False), lanes=2, batch_size=2),
    ],
)
def test_a_step_after_a_state_is_that_of_the_training(
    command: Run, tmp_path: Path, documents: Any, shuffle: Any
) -> None:
    stack = documents.shuffle(1).pack(8, "tokens", strategy="best_fit", seed=2)
    options: dict[str, Any] = {"shuffle": shuffle, "seed": 7, "worker_kind": "inline"}
    loader = Loader(stack, 2, shard=(1, 2), **options)
    state = run_some_steps(loader, 2)
    continued = Loader(stack, 2, shard=(1, 2), **options)
    continued.load_state_dict(state)
    batches = [batch["tokens"] for batch in continued]
    recipe = write(tmp_path / "recipe.json", stack.recipe())
    state_path = write(tmp_path / "state.json", {"epoch": 3, "loaders": [state]})

    outcome = command(
        "trace", recipe, state_path, "--step", "1", "--batch-size", "2", "--world", "2",
        "--rank", "1", "--json",
    )  # fmt: skip

    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    for sample, tokens in zip(found["samples"], batches[1], strict=True):
        # Each token of a document is the number of the document; in its file it is a row.
        named: list[int] = []
        for origin in sample["origins"]:
            start, stop = map(int, origin["part"].removeprefix("tokens ").split(":"))
            named += [origin["position"]] * (stop - start)
            assert re.fullmatch(r"row \d of row group \d of .*\.parquet", origin["location"])
        assert tokens[: len(named)].tolist() == named
        assert not tokens[len(named) :].any()


def test_the_table_has_a_line_for_each_document(
    command: Run, tmp_path: Path, documents: Any
) -> None:
    state = run_some_steps(Loader(documents, 4, worker_kind="inline"), 3)
    recipe = write(tmp_path / "recipe.json", documents.recipe())
    state_path = write(tmp_path / "state.json", state)

    outcome = command("trace", recipe, state_path, "--batch-size", "2", "--world", "2")

    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["rank", "epoch", "sample", "in", "source", "location"]
    assert [line.split()[:3] for line in lines[2:]] == [
        ["0", "0", "12"],
        ["0", "0", "13"],
        ["1", "0", "14"],
        ["1", "0", "15"],
    ]
    assert "row 5 of row group 1 of" in lines[2]


def test_a_dataset_is_named_as_in_other_commands(
    command: Run, tmp_path: Path, documents: Any
) -> None:
    state = run_some_steps(Loader(documents, 4, worker_kind="inline"), 3)
    state_path = write(tmp_path / "state.json", state)
    options = ["--batch-size", "4", "--world", "1", "--step", "-1", "--json"]

    outcome = command("trace", str(tmp_path / "documents"), state_path, *options)

    assert outcome.code == 0, outcome.err
    samples = json.loads(outcome.out)["samples"]
    assert [sample["index"] for sample in samples] == [8, 9, 10, 11]


def test_a_lock_file_has_stacks(command: Run, tmp_path: Path, documents: Any) -> None:
    train = documents.shuffle(3)
    lock_path = tmp_path / "data_stack.lock"
    data_stack.lock(path=lock_path, train=train, other=documents)
    state = run_some_steps(Loader(train, 4, worker_kind="inline"), 1)
    state_path = write(tmp_path / "state.json", state)
    options = ["--batch-size", "4", "--world", "1", "--json"]

    outcome = command("trace", str(lock_path), state_path, "--stack", "train", *options)
    without_name = command("trace", str(lock_path), state_path, *options)
    wrong_name = command("trace", str(lock_path), state_path, "--stack", "test", *options)

    assert outcome.code == 0, outcome.err
    samples = json.loads(outcome.out)["samples"]
    expected = [int(train[number]["tokens"][0]) for number in range(4, 8)]
    rows = [rows_of(sample) for sample in samples]
    assert rows == [[number] for number in expected]
    assert without_name.code == wrong_name.code == 2
    assert "pass --stack NAME" in without_name.err
    assert "has no stack 'test'; it has: other, train" in wrong_name.err


def test_a_budget_needs_its_column_of_costs(command: Run, tmp_path: Path, documents: Any) -> None:
    options: dict[str, Any] = {"budget": 12, "cost": "length", "shuffle": True, "collate": list}
    loader = Loader(documents, worker_kind="inline", **options)
    state = run_some_steps(loader, 3)
    expected = loader.samples_of(2, state=state).indices.tolist()
    recipe = write(tmp_path / "recipe.json", documents.recipe())
    state_path = write(tmp_path / "state.json", state)
    arguments = ["trace", recipe, state_path, "--world", "1", "--step", "2", "--json"]

    outcome = command(*arguments, "--cost", "length")
    without_cost = command(*arguments)

    assert outcome.code == 0, outcome.err
    assert [sample["index"] for sample in json.loads(outcome.out)["samples"]] == expected
    assert without_cost.code == 2
    assert "--cost COLUMN" in without_cost.err


def test_ranks_of_uneven_size_are_in_the_state(
    command: Run, tmp_path: Path, documents: Any
) -> None:
    loader = Loader(documents, 7, shard=(0, 2), uneven="keep", epochs=2, worker_kind="inline")
    state = run_some_steps(loader, 5)
    expected = loader.samples_of(0, state=state, rank="all").to_dict()
    recipe = write(tmp_path / "recipe.json", documents.recipe())

    outcome = command("trace", recipe, write(tmp_path / "state.json", state), "--json")

    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert [sample["index"] for sample in found["samples"]] == [
        sample["index"] for sample in expected["samples"]
    ]


# ---------------------------------------------------------------------- what is refused


def test_what_the_state_does_not_have_is_asked_for(
    command: Run, tmp_path: Path, documents: Any
) -> None:
    state = run_some_steps(Loader(documents, 4, worker_kind="inline"), 3)
    recipe = write(tmp_path / "recipe.json", documents.recipe())
    state_path = write(tmp_path / "state.json", state)

    without_world = command("trace", recipe, state_path, "--batch-size", "4")
    without_size = command("trace", recipe, state_path, "--world", "4")

    assert (without_world.code, without_size.code) == (2, 2)
    assert "pass --world N" in without_world.err
    assert "pass --batch-size N" in without_size.err


def test_damaged_samples_need_the_policy(command: Run, tmp_path: Path, documents: Any) -> None:
    state = run_some_steps(Loader(documents, 4, worker_kind="inline"), 1)
    damaged = replace(LoaderState.from_dict(state), damaged={"DamagedBlockError": [5]}).to_dict()
    recipe = write(tmp_path / "recipe.json", documents.recipe())
    state_path = write(tmp_path / "state.json", damaged)
    arguments = ["trace", recipe, state_path, "--world", "1", "--batch-size", "4", "--json"]

    refused = command(*arguments)
    outcome = command(*arguments, "--on-error", "skip")

    assert refused.code == 2
    assert "--on-error skip or replace" in refused.err
    samples = json.loads(outcome.out)["samples"]
    assert [sample["index"] for sample in samples] == [4, 6, 7]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not a JSON file"),
        ("PK\3\4", "not a JSON file"),
        ("[]", "0 states of loaders"),
        ('{"data_stack_loader": 2}', "state_dict"),
        ('[{"data_stack_loader": 2}, {"data_stack_loader": 2}]', "2 states of loaders"),
    ],
)
def test_a_file_without_a_state_is_refused(
    command: Run, tmp_path: Path, documents: Any, content: str, problem: str
) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    recipe = write(tmp_path / "recipe.json", documents.recipe())

    outcome = command("trace", recipe, str(path), "--world", "1", "--batch-size", "4")

    assert outcome.code == 2
    assert problem in outcome.err


def test_a_state_of_another_stack_is_refused(command: Run, tmp_path: Path, documents: Any) -> None:
    state = run_some_steps(Loader(documents, 4, worker_kind="inline"), 1)
    recipe = write(tmp_path / "recipe.json", documents.shuffle(1).recipe())
    state_path = write(tmp_path / "state.json", state)

    outcome = command("trace", recipe, state_path, "--world", "1", "--batch-size", "4")

    assert outcome.code == 2
    assert "belongs to another dataset" in outcome.err


def keep(sample: Any) -> Any:
    return sample


def test_a_recipe_with_functions_leads_to_the_program(
    command: Run, tmp_path: Path, documents: Any
) -> None:
    stack = documents.map(keep)
    state = run_some_steps(Loader(stack, 4, worker_kind="inline"), 1)
    recipe = write(tmp_path / "recipe.json", stack.recipe())
    state_path = write(tmp_path / "state.json", state)

    outcome = command("trace", recipe, state_path, "--world", "1", "--batch-size", "4")

    assert outcome.code == 2
    assert "loader.samples_of(step, state=state)" in outcome.err


def test_options_of_datasets_need_a_dataset(command: Run, tmp_path: Path, documents: Any) -> None:
    state = run_some_steps(Loader(documents, 4, worker_kind="inline"), 1)
    recipe = write(tmp_path / "recipe.json", documents.recipe())
    state_path = write(tmp_path / "state.json", state)
    shape = ["--world", "1", "--batch-size", "4"]

    of_recipe = command("trace", recipe, state_path, "--split", "train", *shape)
    of_folder = command("trace", str(tmp_path / "documents"), state_path, "--stack", "a", *shape)

    assert (of_recipe.code, of_folder.code) == (2, 2)
    assert "--split and -O require a dataset" in of_recipe.err
    assert "--stack requires a lock file" in of_folder.err


# ---------------------------------------------------------------------- orders


@pytest.mark.parametrize(
    "order",
    [
        InOrder(),
        Shuffled(),
        BlockShuffled(block_lengths=4, window=3),
        BlockShuffled(block_lengths=4, samples=False),
        BlockShuffled(block_lengths=[4, 5, 11], window=2, blocks=False),
        Lanes(BlockShuffled(block_lengths=4, window=2), lanes=2, batch_size=3),
    ],
)
def test_an_order_is_made_again_from_its_content(order: Order) -> None:
    content = json.loads(json.dumps(order.content()))

    again = make_order(content)

    if isinstance(content.get("block_lengths"), str):  # those of the stack
        assert again.content()["window"] == 2
    else:
        assert again.content() == order.content()
        positions = np.arange(20)
        expected = order.indices(positions, 20, 1, 2)
        np.testing.assert_array_equal(again.indices(positions, 20, 1, 2), expected)


@pytest.mark.parametrize(
    "content", [{}, {"order": "bucketed"}, {"order": "lanes"}, {"order": "lanes", "of": 3}]
)
def test_other_contents_are_refused(content: Any) -> None:
    with pytest.raises(ConfigError, match="content"):
        make_order(content)
