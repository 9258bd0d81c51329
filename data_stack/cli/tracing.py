"""The command that names the samples of a training step: trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from data_stack.cli.completion import complete_places
from data_stack.cli.dataset_options import dataset_options
from data_stack.cli.group import cli
from data_stack.cli.names import load_first_split
from data_stack.cli.output import print_result
from data_stack.cli.settings import Settings
from data_stack.exception import ConfigError, LoaderStateError, RecipeError

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF
    from data_stack.loader.budgets.budget import Budget

#: The key of a loader's state by which it is found in a checkpoint.
_KEY_OF_STATES = "data_stack_loader"

#: The key of a recipe, and where it stands in its file.
_KEY_OF_RECIPES = b'"data_stack_recipe"'
_N_BYTES_OF_HEAD = 1 << 12


@cli.command()
@click.argument("source", metavar="RECIPE | LOCK | NAME", shell_complete=complete_places)
@click.argument(
    "state_path", metavar="STATE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--step",
    type=int,
    default=0,
    show_default=True,
    help="The step, counted from the state: 0 follows it, -1 is the one before.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help="Samples in a batch of each rank.  [default: that of the state, if it has one]",
)
@click.option(
    "--world",
    type=click.IntRange(min=1),
    help="The number of ranks.  [default: that of the state, if it has one]",
)
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.  [default: all]")
@click.option(
    "--uneven",
    type=click.Choice(["pad", "drop", "keep"]),
    help="As for the loader.  [default: keep if the state says so, else pad]",
)
@click.option("--drop-last", is_flag=True, help="As for the loader.")
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip", "replace"]),
    help="As for the loader; needed if the state names damaged samples.",
)
@click.option("--cost", metavar="COLUMN", help="The column of costs of a loader with a budget.")
@click.option(
    "--stack", metavar="NAME", help="The stack of the lock file.  [default: the only one]"
)
@click.option("--split", metavar="SPLIT", help="The split of the dataset.  [default: the first]")
@dataset_options
def trace(
    settings: Settings,
    source: str,
    state_path: Path,
    step: int,
    batch_size: int | None,
    world: int | None,
    rank: int | None,
    uneven: Literal["pad", "drop", "keep"] | None,
    drop_last: bool,
    on_error: Literal["raise", "skip", "replace"] | None,
    cost: str | None,
    stack: str | None,
    split: str | None,
    options: dict[str, Any],
) -> None:
    """Print which samples a training step read, with their files and rows.

    For example: data-stack trace train.json state.json --step 100 --batch-size 64 --world 8

    RECIPE is a JSON file of iterator.recipe(), LOCK a lock file with stacks, NAME a dataset, file
    or folder that was trained without layers on it. STATE is a JSON file of loader.state_dict(), or
    of a checkpoint that has one in it. No sample is read.
    """
    from data_stack.loader import Loader
    from data_stack.loader.orders.stated_order import make_order
    from data_stack.loader.state import LoaderState

    # What the state knows of the loader, and what the options add.
    state = _read_state(state_path)
    loaded = LoaderState.from_dict(state)
    order = dict(loaded.order)
    ranks = loaded.ranks or {}
    if loaded.damaged and on_error is None:
        raise click.UsageError(
            "the state names damaged samples: pass --on-error skip or replace, as for the loader"
        )
    if uneven is None:
        uneven = "pad" if loaded.ranks is None else "keep"
    known_world = world or ranks.get("world")
    if known_world is None:
        raise click.UsageError("the state does not have the number of ranks: pass --world N")
    redraws = order.pop("redraw", True)
    budget = _find_budget(order, cost)
    known_batch_size = None
    if budget is not None:
        order = order["of"]
    else:
        known_batch_size = batch_size or ranks.get("batch_size")
        if known_batch_size is None:
            raise click.UsageError("the state does not have the batch size: pass --batch-size N")

    loader = Loader(
        _open_stack(settings, source, stack, split, options),
        known_batch_size,
        shuffle=make_order(order),
        seed=loaded.seed,
        shard=(0, known_world),
        drop_last=drop_last,
        uneven=uneven,
        redraw=redraws,
        on_error=on_error or "raise",
        budget=budget,
    )
    samples = loader.samples_of(step, state=state, rank="all" if rank is None else rank)
    print_result(settings, samples.to_dict(), *samples.document())


# ---------------------------------------------------------------------- the state


def _read_state(path: Path) -> Mapping[str, Any]:
    """Read the state of a loader from a JSON file, in which it may lie anywhere.

    Raises:
        LoaderStateError: it is not a JSON file, or does not have exactly one state.
    """
    from data_stack.util.untrusted_text import MAX_BYTES, parse_json

    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        document = parse_json(data)
    except ValueError as error:
        raise LoaderStateError(
            f"{str(path)!r} is not a JSON file with the state of a loader ({error!s:.200}). Write "
            f"one from a checkpoint in a program: json.dump(loader_state, open('state.json', 'w'))"
        ) from error
    states = list(_find_states(document))
    if len(states) != 1:
        raise LoaderStateError(
            f"{str(path)!r} has {len(states)} states of loaders, where one is needed: write what "
            f"loader.state_dict() returned into a file of its own"
        )
    return states[0]


def _find_states(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the states in a JSON document."""
    to_visit = [document]
    while to_visit:
        value = to_visit.pop()
        if isinstance(value, list):
            to_visit.extend(value)
        elif isinstance(value, dict) and _KEY_OF_STATES in value:
            yield value
        elif isinstance(value, dict):
            to_visit.extend(value.values())


def _find_budget(order: Mapping[str, Any], cost: str | None) -> Budget | None:
    """Return the budget that a state names; None for batches of one size."""
    from data_stack.cli.reproducing import parse_key
    from data_stack.loader.budgets.budget import Budget

    if order.get("order") != "budget":
        return None
    column = parse_key(cost)
    if column is None:
        raise click.UsageError(
            "the loader of the state had a budget: pass its column of costs, --cost COLUMN"
        )
    try:
        return Budget(
            order["max_cost"],
            column,
            padded=order["padded"],
            max_samples=order["max_samples"],
            window=order["window"],
            group=order["group"],
            too_long=order["too_long"],
        )
    except (KeyError, TypeError) as error:
        raise LoaderStateError(f"the state has a damaged budget: {dict(order)!r:.200}") from error


# ---------------------------------------------------------------------- the stack


def _open_stack(
    settings: Settings, source: str, stack: str | None, split: str | None, options: dict[str, Any]
) -> DatasetIteratorIF:
    """Return the stack of a recipe, of a lock file, or of a dataset."""
    from data_stack.reproduce.recipes import from_recipe

    recipe = _read_recipe(source, stack)
    if recipe is None:
        if stack is not None:
            raise click.UsageError(f"--stack requires a lock file, and {source!r} is none")
        return load_first_split(settings, source, split, options)
    if split is not None or options:
        raise click.UsageError(
            f"--split and -O require a dataset, but {source!r} is a recipe or lock file"
        )
    try:
        return from_recipe(recipe, storage=settings.connector())
    except RecipeError as error:
        raise ConfigError(
            f"{error}. If only the program can make the stack, ask its loader: "
            f"loader.samples_of(step, state=state)"
        ) from error


def _read_recipe(source: str, stack: str | None) -> str | bytes | None:
    """Return the recipe in a file, or that of a stack in a lock file; None for other sources."""
    from data_stack.util.untrusted_text import MAX_BYTES

    if not os.path.isfile(source):
        return None
    if source.endswith((".lock", ".toml")):
        return _read_locked_recipe(source, stack)
    with open(source, "rb") as file:
        head = file.read(_N_BYTES_OF_HEAD)
        if _KEY_OF_RECIPES not in head:
            return None
        return head + file.read(MAX_BYTES)


def _read_locked_recipe(path: str, stack: str | None) -> str:
    """Return the recipe of a stack in a lock file.

    Raises:
        LockError: the lock file cannot be read.
        UsageError: it has no such stack, or several where none was named.
    """
    from data_stack.reproduce.lock_file import LockFile

    stacks = LockFile.read(path).stacks
    names = ", ".join(sorted(stacks)) or "none"
    if stack is None and len(stacks) == 1:
        (stack,) = stacks
    if stack is None:
        raise click.UsageError(f"pass --stack NAME; {path!r} has the stacks: {names}")
    if stack not in stacks:
        raise click.UsageError(f"{path!r} has no stack {stack!r}; it has: {names}")
    recipe: str = stacks[stack]["recipe"]
    return recipe
