"""The entries of a list of datasets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from data_stack.agents.references import WHOLE_STORE
from data_stack.plugins.manager import default_manager
from data_stack.plugins.record import DATASETS_GROUP
from data_stack.stores.inventory import Inventory


def list_installed_datasets(
    installed_names: Sequence[str],
    inventories: Mapping[str, Inventory],
    hide: Callable[[str], str],
) -> list[dict[str, Any]]:
    """Return an entry for each installed dataset; imports no plugin.

    Args:
        installed_names: the names of the datasets.
        inventories: what lies in the stores, by their names.
        hide: removes credentials from a text.
    """
    records = {}
    for installed in default_manager().records():
        if installed.group == DATASETS_GROUP:
            records[installed.name] = installed
            records[installed.qualified_name] = installed
    rows = []
    for name in installed_names:
        row: dict[str, Any] = {"dataset": name, "kind": "installed dataset"}
        plain_name = name
        record = records.get(name)
        if record is not None:
            plain_name = record.name
            row["package"] = f"{record.distribution} {record.version}"
            if record.error is not None:
                row["problem"] = hide(record.error)
        prepared_in = {}
        for store_name, inventory in inventories.items():
            versions = inventory.prepared_versions.get(plain_name)
            if versions:
                prepared_in[store_name] = versions
        row["prepared_in"] = prepared_in
        rows.append(row)
    return rows


def list_contents(
    store_name: str,
    inventory: Inventory,
    installed_names: Collection[str],
    *,
    shows_installed: bool,
) -> list[dict[str, Any]]:
    """Return an entry for each prepared dataset, folder and file of a store.

    Args:
        store_name: the name of the store.
        inventory: what lies in the store.
        installed_names: the names of installed datasets.
        shows_installed: whether datasets of installed packages are among them.
    """
    rows: list[dict[str, Any]] = []
    for name, versions in inventory.prepared_versions.items():
        kind = "prepared dataset, whose package is not installed"
        if name in installed_names:
            if not shows_installed:
                continue
            kind = "prepared dataset"
        rows.append({"dataset": f"{store_name}:{name}", "kind": kind, "versions": versions})
    names_of_files: dict[str, str] = {}
    has_files_at_top = False
    for key in [*inventory.loose, *inventory.others]:
        top, slash, _ = key.partition("/")
        names_of_files[top] = "folder" if slash else "file"
        has_files_at_top = has_files_at_top or not slash
    for name in sorted(names_of_files):
        rows.append({"dataset": f"{store_name}:{name}", "kind": names_of_files[name]})
    if has_files_at_top:
        rows.append(
            {
                "dataset": f"{store_name}:{WHOLE_STORE}",
                "kind": "all files of the store as one dataset",
            }
        )
    return rows
