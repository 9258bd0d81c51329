"""The checks of ``data-stack doctor``."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_stack.cli.settings import Settings
from data_stack.exception import DataStackError, ReadOnlyStorageError, UnsupportedStorageOperationError
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.plugins.manager import default_manager
from data_stack.repository.default_storage import HOME

_PACKAGES = {
    "numpy": "samples",
    "h5py": "HDF5",
    "torch": "tensors: '.[torch]'",
    "Pillow": "pictures: '.[images]'",
    "scikit-learn": "stratified splits, and the files of digits and iris: '.[sklearn]'",
    "zstandard": "zstd archives: '.[zstd]'",
    "PyYAML": "reports as YAML: '.[yaml]'",
    "pymongo": "mongodb:// stores: '.[mongodb]'",
    "fsspec": "s3://, gs://, az://, sftp://, hdfs:// stores: '.[cloud]'",
    "s3fs": "s3:// stores: '.[s3]'",
    "starlette": "data-stack browse: '.[browse]'",
    "uvicorn": "data-stack browse: '.[browse]'",
}
_PROBE = "doctor-probe"


def run_checks(settings: Settings) -> dict[str, Any]:
    """Check the environment, store, optional packages and plugins; returns plain JSON data. Imports all plugins."""
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
        "packages": [{"package": name, "version": _version(name), "for": purpose} for name, purpose in _PACKAGES.items()],
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
    found: dict[str, Any] = {"store": "none", "usable": False, "answers": False, "writable": False}
    try:
        connector = settings.connector()
        found["store"] = repr(connector)
        if isinstance(connector, FileStorageConnector):
            path = connector.root_path
            while not os.path.lexists(path):
                path = os.path.dirname(path)
            found |= {"exists": path == connector.root_path, "free": shutil.disk_usage(path).free}
            if not os.path.isdir(path) or (not found["exists"] and not os.access(path, os.W_OK | os.X_OK)):
                raise NotADirectoryError(f"the folder {connector.root_path!r} does not exist and cannot be created")
        connector.has_resource(_PROBE)
        found |= {"usable": True, "answers": True}
        if found.get("exists", True):
            identifier = f"{_PROBE}-{os.getpid()}"
            connector.set_resource(identifier, [b"data_stack"])
            with contextlib.suppress(UnsupportedStorageOperationError):
                connector.delete_resource(identifier)
        found["writable"] = True
    except ReadOnlyStorageError:  # the URL requests it
        pass
    except (DataStackError, OSError) as error:
        found |= {"usable": False, "problem": str(error)}
    return found
