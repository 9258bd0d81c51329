"""Engines by their names, those of plugins included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from data_stack.engines.engine import PreparationEngine
from data_stack.engines.process_engine import ProcessEngine
from data_stack.exception import ConfigError, install_command
from data_stack.plugins.first_party import extras_of
from data_stack.plugins.manager import default_manager
from data_stack.util.suggestions import did_you_mean

#: How often an engine that is made by its name attempts a task.
_N_ATTEMPTS = 3


def make_engine(name: str, address: str | None = None) -> PreparationEngine:
    """Make an engine by its name; imports the plugins unless it is ``"processes"``.

    Args:
        name: ``"processes"``, or the name that a plugin gives it, such as ``"ray"``.
        address: the address of the cluster of a plugin's engine; None: the engine looks for one.

    Raises:
        ConfigError: there is no such engine; the message lists those that are installed, and says
            how to install ours.
    """
    if name == "processes":
        return ProcessEngine(attempts=_N_ATTEMPTS)
    engines: Mapping[str, Callable[..., PreparationEngine]] = default_manager().provided("engines")
    if name in engines:
        return engines[name](address, attempts=_N_ATTEMPTS)
    raise ConfigError(_describe_unknown(name, engines))


def _describe_unknown(name: str, plugin_engines: Iterable[str]) -> str:
    """Return what an error says of a name that no engine has."""
    installed = ["processes", *sorted(plugin_engines)]
    message = f"unknown engine {name!r:.60}"

    # Those of our own packages that are not installed may be what the user means.
    extras = extras_of("engines")
    missing = sorted(extras.keys() - installed)
    message += did_you_mean(name, [*installed, *missing])
    message += f"; known engines: {', '.join(installed)}"
    for missing_name in missing:
        message += f"; {missing_name} needs {install_command(extras[missing_name])}"
    return message
