"""The checks of ``data-stack doctor``."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_stack.cli.settings import Settings
from data_stack.exception import DataStackError, ReadOnlyStorageError, UnsupportedStorageOperationError
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.plugins.manager import default_manager
from data_stack.repository.default_storage import HOME, check_there

_PROBE = "doctor-probe"


def run_checks(settings: Settings) -> dict[str, Any]:
    """Check the environment, store and plugins; returns plain JSON data. Imports all plugins."""
    store = _store(settings)
    plugins = [asdict(record) for record in default_manager().doctor()]
    originals = _originals()
    return {
        "healthy": bool(store["usable"]) and not originals and not any(plugin["state"] == "broken" for plugin in plugins),
        "environment": {
            "datastack": _version("datastack") or "not installed",
            "python": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
            # the URL of DATA_STACK_HOME may hold a password
            **{name: value for name, value in sorted(os.environ.items()) if name.startswith("DATA_STACK_") and name != HOME},
        },
        "originals": originals,
        "store": store,
        "plugins": plugins,
    }


def _version(distribution: str) -> str | None:
    found = next(iter(importlib.metadata.distributions(name=distribution)), None)
    return None if found is None else found.version


def _originals() -> list[str]:
    """Installations of the original DataStack (PyPI's datastack), whose modules have the names of this package."""
    return [
        f"datastack {distribution.version} of the original DataStack is in {distribution.locate_file('')}, and this one is in "
        f"{Path(__file__).parents[2]}; both define the same modules, so Python may import either. Run "
        f"`{sys.executable} -m pip uninstall datastack` until it finds no package, then reinstall this package from its clone"
        for distribution in importlib.metadata.distributions(name="datastack")
        if not any(entry_point.name == "data-stack" for entry_point in distribution.entry_points)
    ]


def _store(settings: Settings) -> dict[str, Any]:
    """Check that the store answers and can store a few bytes; a missing folder is not created."""
    found: dict[str, Any] = {"store": "none", "usable": False, "writable": False}
    try:
        connector = settings.connector()
        found["store"] = repr(connector)
        check_there(connector, may_be_new=True)
        connector.has_resource(_PROBE)
        found["usable"] = True
        if not isinstance(connector, FileStorageConnector) or os.path.isdir(connector.root_path):
            identifier = f"{_PROBE}-{os.getpid()}"
            connector.set_resource(identifier, [b"data_stack"])
            found["writable"] = True
            with contextlib.suppress(UnsupportedStorageOperationError):
                connector.delete_resource(identifier)
    except ReadOnlyStorageError:  # the URL requests it
        pass
    except (DataStackError, OSError) as error:
        found |= {"usable": False, "problem": str(error)}
    return found
