"""Factory classes of datasets: what can be registered as one, and how an instance is made for a store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from data_stack.exception import ConfigError, DataStackError, PluginError, describe_error
from data_stack.io.storage_connectors.connector import StorageConnector

if TYPE_CHECKING:
    from data_stack.dataset.factory import BaseDatasetFactory

__all__ = ["check_dataset_class", "make_factory"]

_STORE = "storage_connector"


def check_dataset_class(value: object) -> type[BaseDatasetFactory]:
    """Return ``value`` if a dataset can be made of it: a class with ``get_dataset_iterator``.

    Raises:
        ConfigError: it cannot; the message says why.
    """
    if not isinstance(value, type):
        raise ConfigError(f"a dataset is a factory class, not the {type(value).__name__} {value!r:.80}")
    if not callable(getattr(value, "get_dataset_iterator", None)):
        raise ConfigError(
            f"{value.__qualname__} is no dataset factory: it has no get_dataset_iterator(config); derive it from DatasetFactory"
        )
    return value


def make_factory(
    dataset_class: type[BaseDatasetFactory], storage_connector: Callable[[], StorageConnector]
) -> BaseDatasetFactory:
    """An instance that keeps its bytes in the store that ``storage_connector()`` gives; not asked if it keeps none.

    Raises:
        PluginError: the constructor failed.
    """
    parameters = _parameters(dataset_class)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments: dict[str, Any] = {_STORE: storage_connector()} if _STORE in parameters or takes_any else {}
    try:
        return dataset_class(**arguments)
    except DataStackError:
        raise
    except Exception as error:
        raise PluginError(f"the constructor of {dataset_class.__qualname__} failed: {describe_error(error)[:500]}") from error


def _parameters(dataset_class: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(dataset_class).parameters)
    except (TypeError, ValueError):  # a class in C without a signature
        return {}
