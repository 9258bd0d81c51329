"""What the tools of ``data-stack mcp`` do: each method of the class is one tool."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from data_stack.agents.album import Album
from data_stack.agents.datasets import DatasetFinder
from data_stack.agents.descriptions import NOTE, find_tool
from data_stack.agents.facts import (
    count_values,
    facts_of_column,
    find_columns,
    find_examples,
    list_left_out,
    list_sources,
)
from data_stack.agents.limits import Deadline, Limits
from data_stack.agents.listing import list_contents, list_installed_datasets
from data_stack.agents.permissions import Permissions
from data_stack.agents.plain_values import PlainValues
from data_stack.agents.references import check_store
from data_stack.agents.stores import NamedStore, hide_secrets
from data_stack.dataset.meta import column_names
from data_stack.exception import (
    ConfigError,
    DatasetOutOfBoundsError,
    DataStackError,
    describe_error,
)
from data_stack.io.identifiers import check_key_prefix, is_identifier
from data_stack.io.redaction import hide_credentials
from data_stack.io.storage_connectors.connector import StorageConnector, info_of
from data_stack.repository.places import Place
from data_stack.reproduce.difference import diff as compare
from data_stack.reproduce.planning import plan as plan_loading
from data_stack.show.column_report import fields_of
from data_stack.show.column_statistics import with_statistics
from data_stack.show.sample_parts import hints_of
from data_stack.stores.inventory import Inventory, take_inventory

#: Samples that ``sample`` returns by default.
_N_SAMPLES: Final = 3

#: Entries of a page by default.
_PAGE: Final = 50

#: The maximum number of characters of an error.
_MAX_ERROR_CHARACTERS: Final = 2_000


@dataclass
class Answer:
    """The answer of a tool.

    Attributes:
        facts: the values, of any types.
        pictures: PNG files; a value refers to them by numbers from 1 on.
    """

    facts: Mapping[str, Any]
    pictures: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call of a tool returns to an agent.

    Attributes:
        text: JSON, or the message of an error.
        pictures: PNG files.
        is_error: whether the call failed.
    """

    text: str
    pictures: tuple[bytes, ...] = ()
    is_error: bool = False


class DatasetTools:
    """The tools, for the stores and permissions of one server. Threads may share them.

    Args:
        stores: the stores by name; datasets that are named without a store are kept in the first.
        permissions: what the user allows.
        limits: the limits of each call.
    """

    #: The stores by name.
    _stores: Mapping[str, NamedStore]

    #: What the user allows.
    _permissions: Permissions

    #: The limits of each call.
    _limits: Limits

    #: Finds datasets by name.
    _finder: DatasetFinder

    def __init__(
        self, stores: Mapping[str, NamedStore], permissions: Permissions, limits: Limits
    ) -> None:
        self._stores = stores
        self._permissions = permissions
        self._limits = limits
        self._finder = DatasetFinder(stores, permissions)

    def call(self, name: str, arguments: Mapping[str, Any], deadline: Deadline) -> ToolResult:
        """Call a tool. Never raises; the message of an error says what to do.

        Args:
            name: the name of the tool.
            arguments: as the agent wrote them; they are checked.
            deadline: when the call must have ended.
        """
        try:
            tool = find_tool(name)
            checked = tool.check(arguments)
            answer: Answer = getattr(self, tool.name)(deadline, **checked)
            return self._finish(answer)
        except Exception as error:  # noqa: BLE001  # code of plugins may raise anything
            return ToolResult(self.describe_error(error), is_error=True)

    def describe_error(self, error: BaseException) -> str:
        """Return the message of an error for an agent, without credentials and traceback."""
        if isinstance(error, DataStackError):
            message = str(error)
        else:
            message = describe_error(error)
        cause = error.__cause__
        if isinstance(cause, DataStackError) and str(cause) not in message:
            message += f" ({cause})"
        return self._hide_secrets(message)[:_MAX_ERROR_CHARACTERS]

    def _hide_secrets(self, text: str) -> str:
        return hide_secrets(text, list(self._stores.values()))

    def _finish(self, answer: Answer) -> ToolResult:
        """Return an answer as JSON of limited size."""
        plain_values = PlainValues(self._limits)
        plain = {"note": NOTE, "answer": plain_values.convert(answer.facts)}
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        if len(text.encode()) > self._limits.max_answer_bytes:
            raise ConfigError(
                f"the answer has more than {self._limits.max_answer_bytes:,} bytes; ask for less"
            )
        return ToolResult(text, tuple(answer.pictures))

    # ------------------------------------------------------------------ list_datasets

    def list_datasets(
        self,
        deadline: Deadline,
        *,
        store: str | None = None,
        text: str = "",
        offset: int = 0,
        limit: int = _PAGE,
    ) -> Answer:
        """List installed datasets, and what lies in the stores."""
        chosen_stores = list(self._stores.values())
        if store is not None:
            chosen_stores = [self._stores[check_store(store, self._stores)]]

        inventories: dict[str, Inventory] = {}
        problems = []
        for chosen_store in chosen_stores:
            deadline.check()
            try:
                inventories[chosen_store.name] = take_inventory(chosen_store.reader)
            except DataStackError as error:
                problems.append(f"{chosen_store.name}: {self.describe_error(error)}")

        # What can be read comes first.
        rows: list[dict[str, Any]] = []
        rows_of_unprepared_datasets = []
        installed_names = self._finder.installed_names()
        if store is None:
            for row in list_installed_datasets(installed_names, inventories, self._hide_secrets):
                if row["prepared_in"]:
                    rows.append(row)
                else:
                    rows_of_unprepared_datasets.append(row)
        for name, inventory in inventories.items():
            rows += list_contents(
                name, inventory, installed_names, shows_installed=store is not None
            )
        rows += rows_of_unprepared_datasets
        folded_text = text.casefold()
        rows = [row for row in rows if folded_text in row["dataset"].casefold()]

        facts: dict[str, Any] = {
            "stores": {name: str(named_store) for name, named_store in self._stores.items()}
        }
        if problems:
            facts["problems"] = problems
        facts.update(self._page("datasets", rows, offset, limit))
        return Answer(facts)

    def _page(self, name: str, rows: Sequence[Any], offset: int, limit: int) -> dict[str, Any]:
        """Return one page of a list, and where the next one begins."""
        n_shown = min(limit, self._limits.max_items)
        page: dict[str, Any] = {f"n_{name}": len(rows)}
        stop = offset + n_shown
        if stop < len(rows):
            page["next_offset"] = stop
        page[name] = list(rows[offset:stop])
        return page

    # ------------------------------------------------------------------ describe

    def describe(
        self,
        deadline: Deadline,
        *,
        dataset: str,
        split: str | None = None,
        column_offset: int = 0,
    ) -> Answer:
        """Describe a dataset, and its columns if it can be read without preparing it."""
        found = self._finder.find(dataset)
        description = found.dataset.describe()
        facts: dict[str, Any] = {"dataset": found.reference.text, "store": str(found.store)}
        known = {name: fact for name, fact in asdict(description).items() if fact}
        known.pop("name")
        facts.update(known)
        if description.homepage is not None:
            facts["homepage"] = hide_credentials(description.homepage)
        if not isinstance(found.dataset, Place):
            facts["is_prepared"] = found.is_ready
            facts["sources"] = list_sources(found)
        if not found.is_ready:
            facts["reason"] = found.reason or "nothing of it is stored"
            facts["advice"] = found.advice()
            return Answer(facts)

        splits = found.load(None, deadline)
        facts["splits"] = {name: {"n_samples": len(samples)} for name, samples in splits.items()}
        if split is not None:
            _, samples = found.load_one(split, deadline)
        else:
            split, samples = next(iter(splits.items()))
        facts["columns_of"] = split
        columns = [facts_of_column(column) for column in find_columns(samples)]
        facts["n_columns"] = len(columns)
        stop = column_offset + self._limits.max_items
        if stop < len(columns):
            facts["next_column_offset"] = stop
        facts["columns"] = columns[column_offset:stop]
        return Answer(facts)

    # ------------------------------------------------------------------ plan

    def plan(self, deadline: Deadline, *, dataset: str) -> Answer:
        """Say what loading a dataset would download, run and need."""
        found = self._finder.find(dataset)
        facts: dict[str, Any] = {"dataset": found.reference.text, "store": str(found.store)}
        if isinstance(found.dataset, Place):
            facts["is_ready"] = True
            facts["steps"] = ["open"]
            return Answer(facts)
        deadline.check()
        # None reads the environment.
        offline = None
        if not self._permissions.download:
            offline = True
        planned = plan_loading(found.reference.name, found.store.connector, offline=offline)
        facts.update(
            {
                "version": planned.version,
                "is_ready": planned.is_ready,
                "reason": planned.reason,
                "steps": planned.steps,
                "bytes_to_fetch": planned.bytes_to_fetch,
                "bytes_free": planned.bytes_free,
                "license": planned.license,
                "package_whose_code_runs": planned.code,
                "problems": planned.problems,
                "sources": [asdict(source) for source in planned.sources],
            }
        )
        if not planned.is_ready:
            facts["advice"] = found.advice()
            if not self._permissions.download:
                facts["sources_were_asked"] = "no: the server runs without --allow-download"
        return Answer(facts)

    # ------------------------------------------------------------------ sample

    def sample(
        self,
        deadline: Deadline,
        *,
        dataset: str,
        split: str | None = None,
        positions: Sequence[int] | None = None,
        n_samples: int = _N_SAMPLES,
        seed: int | None = None,
        columns: Sequence[int | str] | None = None,
        pictures: bool = True,
    ) -> Answer:
        """Show some samples of a split."""
        found = self._finder.find(dataset)
        split_name, samples = found.load_one(split, deadline)
        chosen_positions = self._choose_positions(len(samples), positions, n_samples, seed)
        if columns is not None and len(samples) > 0:
            samples = samples.select(*columns)
        names = column_names(samples)
        hints = hints_of(samples)

        shown = []
        album = Album(self._limits, is_open=pictures)
        for position in chosen_positions:
            row: dict[str, Any] = {"position": position}
            try:
                fields = fields_of(samples[position])
            except Exception as error:  # noqa: BLE001  # code of plugins; damaged files
                deadline.check()
                row["error"] = self.describe_error(error)
                shown.append(row)
                continue
            values: dict[Any, Any] = {}
            for key, value in fields.items():
                name = _name_of_column(key, names)
                values[name] = album.add(value, hints.get(key))
            row["values"] = values
            shown.append(row)
        facts = {
            "dataset": found.reference.text,
            "split": split_name,
            "n_samples": len(samples),
            "samples": shown,
        }
        left_out = list_left_out(found)
        if left_out:
            facts["left_out"] = left_out
        if album.pictures:
            facts["pictures"] = "the values {'picture': 1, …} are the images below, in this order"
        if album.problem is not None:
            facts["pictures_left_out"] = album.problem
        return Answer(facts, album.pictures)

    def _choose_positions(
        self, n_all: int, positions: Sequence[int] | None, n_samples: int, seed: int | None
    ) -> list[int]:
        """Return the positions of the samples to show.

        Raises:
            ConfigError: positions are given with a seed, or too many are asked for.
            DatasetOutOfBoundsError: there is no sample at a position.
        """
        max_samples = self._limits.max_samples
        n_wanted = n_samples if positions is None else len(positions)
        if n_wanted > max_samples:
            raise ConfigError(
                f"{n_wanted:,} samples are more than this server returns in one call; ask for at "
                f"most {max_samples}. The user can start it with a larger --max-samples"
            )
        if positions is None:
            n_shown = min(n_samples, n_all)
            if seed is None:
                return list(range(n_shown))
            generator = random.Random(seed)  # noqa: S311  # no secret
            return generator.sample(range(n_all), n_shown)
        if seed is not None:
            raise ConfigError("name positions or a seed, not both")
        chosen = []
        for position in positions:
            if not -n_all <= position < n_all:
                raise DatasetOutOfBoundsError(
                    f"there is no sample {position:,}: the split has {n_all:,} samples, "
                    f"from 0 to {n_all - 1:,}"
                )
            chosen.append(position % n_all)
        return chosen

    # ------------------------------------------------------------------ statistics

    def statistics(
        self,
        deadline: Deadline,
        *,
        dataset: str,
        split: str | None = None,
        columns: Sequence[int | str] | None = None,
        count: int | str | None = None,
    ) -> Answer:
        """Compute statistics of the columns of a split, and count the values of one."""
        found = self._finder.find(dataset)
        split_name, samples = found.load_one(split, deadline)
        n_all = len(samples)
        n_read = min(n_all, self._limits.max_samples_read)
        facts: dict[str, Any] = {
            "dataset": found.reference.text,
            "split": split_name,
            "n_samples": n_all,
            "n_samples_read": n_read,
        }
        left_out = list_left_out(found)
        if left_out:
            facts["left_out"] = left_out
        if n_all == 0:
            return Answer(facts)
        if n_read < n_all:
            facts["which_samples"] = "spread evenly over the split"
            spread = np.linspace(0, n_all - 1, n_read).round().astype(np.int64)
            samples = samples[spread]
        facts["counts"] = count_values(samples, count)
        if columns is not None:
            samples = samples.select(*columns)
        reports = with_statistics(samples, find_columns(samples))
        facts["n_columns"] = len(reports)
        shown = []
        for report in reports:
            column = facts_of_column(report)
            if report.statistics is not None:
                column.update(asdict(report.statistics))
            shown.append(column)
        facts["columns"] = shown
        return Answer(facts)

    # ------------------------------------------------------------------ diff

    def diff(
        self,
        deadline: Deadline,
        *,
        first: str,
        second: str,
        split: str | None = None,
        key: int | str | None = None,
    ) -> Answer:
        """Compare two datasets sample by sample."""
        found_first = self._finder.find(first)
        found_second = self._finder.find(second)
        first_splits = found_first.load(split, deadline)
        second_splits = found_second.load(split, deadline)
        n_samples = 0
        for samples in [*first_splits.values(), *second_splits.values()]:
            n_samples += len(samples)
        if n_samples > self._limits.max_samples_read:
            raise ConfigError(
                f"both have {n_samples:,} samples together, and this server compares up to "
                f"{self._limits.max_samples_read:,}; compare parts: split='train[:1000]'. The user "
                f"can start it with a larger --max-samples-read"
            )
        difference = compare(first_splits, second_splits, key=key)
        facts: dict[str, Any] = {"first": first, "second": second, **difference.to_dict()}
        facts["examples"] = find_examples(difference)
        left_out = [*list_left_out(found_first), *list_left_out(found_second)]
        if left_out:
            facts["left_out"] = left_out
        return Answer(facts)

    # ------------------------------------------------------------------ list_store

    def list_store(
        self,
        deadline: Deadline,
        *,
        store: str | None = None,
        prefix: str = "",
        offset: int = 0,
        limit: int = _PAGE,
    ) -> Answer:
        """List the files of a store."""
        if store is None:
            named_store = next(iter(self._stores.values()))
        else:
            named_store = self._stores[check_store(store, self._stores)]
        reader = named_store.reader
        check_key_prefix(prefix)
        keys = reader.list_keys(prefix)
        page = self._page("files", keys, offset, limit)
        files = []
        for key in page["files"]:
            deadline.check()
            files.append({"name": key, "n_bytes": _size_of(reader, key)})
        page["files"] = files
        return Answer({"store": named_store.name, **page})


def _name_of_column(key: Any, names: Sequence[str]) -> Any:
    """Return the name of a column in tuple samples if it has one, else its key."""
    if key is None:
        return "value"
    if isinstance(key, int) and key < len(names):
        return names[key]
    return key


def _size_of(reader: StorageConnector, key: str) -> int | None:
    """Return the size of a file in bytes; None if it cannot be told."""
    try:
        if is_identifier(key):
            info = info_of(reader, key)
            if info is None:
                return None
            return info.size
        with reader.open_key(key) as resource:
            return resource.size
    except DataStackError:
        return None
