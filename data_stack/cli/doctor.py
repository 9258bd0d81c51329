"""The command that checks the installation: doctor."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_stack.cli.group import cli
from data_stack.cli.output import print_result, whole_table
from data_stack.cli.settings import Settings
from data_stack.exception import (
    DataStackError,
    ReadOnlyStorageError,
    UnsupportedStorageOperationError,
)
from data_stack.show.markup import Facts
from data_stack.util.distributions import distributions_of

if TYPE_CHECKING:
    from data_stack.io.storage_connectors import StorageConnector

#: Errors of a store that the user may read, and not write to.
_NO_RIGHT_TO_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)

#: The distribution of the original DataStack on PyPI, whose modules have the names of ours.
_ORIGINAL_DISTRIBUTION = "datastack"


@cli.command()
def doctor(settings: Settings) -> int:
    """Check the environment, the store and all plugins.

    Imports every plugin. Exits with 1 if a plugin is broken or shadowed by another one, if the
    store cannot be used, or if the original DataStack is installed too.
    """
    findings = run_checks(settings)

    cells = []
    errors = []
    for plugin in findings["plugins"]:
        distribution = f"{plugin['distribution']} {plugin['version']}"
        cells.append((plugin["name"], plugin["group"], distribution, plugin["state"]))
        if plugin["error"]:
            errors.append(
                f"{plugin['state']}: {plugin['distribution']}:{plugin['name']}\n  {plugin['error']}"
            )
    originals = [f"in the way: {problem}" for problem in findings["originals"]]
    verdict = "no problems found" if findings["healthy"] else "problems found, see above"
    print_result(
        settings,
        findings,
        _as_facts(findings["environment"]),
        *originals,
        _as_facts(findings["store"]),
        whole_table(("plugin", "group", "from", "state"), cells),
        *errors,
        verdict,
    )
    return int(not findings["healthy"])


def _as_facts(values: dict[str, Any]) -> Facts:
    """Return values as a table of names and texts."""
    return Facts([(name, str(value)) for name, value in values.items()])


def run_checks(settings: Settings) -> dict[str, Any]:
    """Check the environment, store and plugins; imports all plugins.

    Returns:
        Plain JSON data.
    """
    from data_stack.plugins.manager import default_manager

    store = _check_store(settings)
    plugins = [asdict(record) for record in default_manager().doctor()]
    originals = _find_originals()
    are_plugins_healthy = all(plugin["state"] not in ("broken", "shadowed") for plugin in plugins)
    return {
        "healthy": store["usable"] and not originals and are_plugins_healthy,
        "environment": _describe_environment(),
        "originals": originals,
        "store": store,
        "plugins": plugins,
    }


def _describe_environment() -> dict[str, str]:
    """Return the versions of data_stack and Python, the platform, and our variables."""
    from data_stack.repository.default_storage import HOME

    # The URL of DATA_STACK_HOME may hold a password.
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("DATA_STACK_") and name != HOME
    }
    return {
        "data_stack": ", ".join(distributions_of("data_stack")),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        **variables,
    }


def _find_originals() -> list[str]:
    """Return a sentence for each copy of the original DataStack that is installed beside ours."""
    our_folder = Path(__file__).parents[2]
    problems = []
    for original in importlib.metadata.distributions(name=_ORIGINAL_DISTRIBUTION):
        problems.append(
            f"datastack {original.version} of the original DataStack, or of an early clone, is in "
            f"{original.locate_file('')}, this one in {our_folder}; both define the same modules, "
            f"so Python may import either. Run `{sys.executable} -m pip uninstall datastack` "
            "until it finds no package, then reinstall lazy-data-stack"
        )
    return problems


# ---------------------------------------------------------------------- the store


def _check_store(settings: Settings) -> dict[str, Any]:
    """Check that the store answers and can store a few bytes; a missing folder is not created.

    A store without the right to write is usable, for reading.
    """
    from data_stack.io.storage_connectors.file import FileStorageConnector
    from data_stack.repository.default_storage import check_there

    findings: dict[str, Any] = {"store": "none", "usable": False, "writable": False}
    probe = f"doctor-probe-{os.getpid()}"
    try:
        connector = settings.connector()
        findings["store"] = repr(connector)
        check_there(connector, may_be_new=True)
        connector.has_resource(probe)
    except (DataStackError, OSError) as error:
        findings["problem"] = str(error)
        return findings

    findings["usable"] = True
    if isinstance(connector, FileStorageConnector) and not os.path.isdir(connector.root_path):
        findings["not_writable"] = "the folder does not exist yet; the first prepare creates it"
        return findings
    return findings | _check_writing(connector, probe)


def _check_writing(connector: StorageConnector, probe: str) -> dict[str, Any]:
    """Store a few bytes as the resource ``probe``, and delete them.

    Returns:
        ``writable`` if that worked; otherwise ``not_writable`` or ``problem``, which say why not.
    """
    findings: dict[str, Any] = {}
    try:
        connector.set_resource(probe, [b"data_stack"])
        findings["writable"] = True
        with contextlib.suppress(UnsupportedStorageOperationError):
            connector.delete_resource(probe)
    except ReadOnlyStorageError:
        findings["not_writable"] = "the URL asks for reading only"
    except (DataStackError, OSError) as error:
        if getattr(error, "errno", None) in _NO_RIGHT_TO_WRITE:
            # Prepared datasets can be loaded.
            findings["not_writable"] = str(error)
        else:
            findings["usable"] = False
            findings["problem"] = str(error)
    return findings
