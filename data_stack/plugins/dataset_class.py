"""Factory classes of datasets: checks them, and makes instances for a store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from data_stack.exception import ConfigError, DataStackError, PluginError, describe_error
from data_stack.io.storage_connectors.connector import StorageConnector

if TYPE_CHECKING:
    from data_stack.factories.factory import BaseDatasetFactory

_STORE = "storage_connector"


def check_dataset_class(value: object) -> type[BaseDatasetFactory]:
    """Return ``value`` if it is a class with ``get_dataset_iterator``.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, type):
        raise ConfigError(f"a dataset is a factory class, not the {type(value).__name__} {value!r:.80}")
    if not callable(getattr(value, "get_dataset_iterator", None)):
        raise ConfigError(
            f"{value.__qualname__} is not a dataset factory: get_dataset_iterator is missing; derive it from DatasetFactory"
        )
    return value


def make_factory(
    dataset_class: type[BaseDatasetFactory], storage_connector: Callable[[], StorageConnector]
) -> BaseDatasetFactory:
    """An instance that keeps its bytes in the store of ``storage_connector()``, which is called only if the class takes one.

    Raises:
        PluginError: the constructor failed.
    """
    parameters = inspect.signature(dataset_class).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments: dict[str, Any] = {_STORE: storage_connector()} if _STORE in parameters or takes_any else {}
    try:
        return dataset_class(**arguments)
    except DataStackError:
        raise
    except Exception as error:
        raise PluginError(f"the constructor of {dataset_class.__qualname__} failed: {describe_error(error)[:500]}") from error
