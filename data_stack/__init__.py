"""Any dataset, from any store, behind one lazy random-access interface.

::

    import data_stack

    data_stack.datasets()     # names of the datasets that installed plugins bring
    # It is prepared at the first use, and kept in the user's cache folder.
    train = data_stack.load("digits", split="train")
    sample, target, tag = train[0]

``__init__.pyi`` lists the names. Each is imported when it is first asked for, with what it needs
and no more: ``import data_stack`` alone imports nothing else, and so do the functions below.
"""

from typing import Any

#: Modules that register what plugins bring; data_stack.util.providers imports them when it is
#: needed.
_PROVIDERS = ("data_stack.plugins.manager",)

#: Names that need an optional package, so that ``from data_stack import *`` leaves them out.
_OPTIONAL = (
    "FsspecStorageConnector",
    "MongoDBStorageConnector",
    "from_arrow",
    "from_csv",
    "from_huggingface",
    "from_jsonl",
    "from_pandas",
    "from_polars",
    "to_arrow",
    "to_huggingface",
    "to_pandas",
    "to_polars",
)


def __getattr__(name: str) -> Any:
    """Import a name of the stub, or a part of the package, when it is asked for (PEP 562)."""
    value = _find_value(name)
    # So that the next access does not come here.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    _import_name, list_names, _public_names = _attach_stub()
    return sorted({*list_names(), "__version__"})


def _find_value(name: str) -> Any:
    """Return what the package has under a name.

    Raises:
        AttributeError: it has nothing under the name.
    """
    if name == "__version__":
        return _find_version()
    import_name, _list_names, public_names = _attach_stub()
    if name == "__all__":
        return sorted([*public_names, "__version__"])
    return import_name(name)


def _attach_stub() -> Any:
    """Return what imports a name, what lists all names, and the names of a star import."""
    from data_stack.util.lazy import attach_stub

    return attach_stub(__name__, __file__, optional=_OPTIONAL, explain=_explain)


def _explain(name: str) -> str:
    """Return which name of ours does what another library's function ``name`` does.

    The text ends the error about an unknown name; it is empty if no library has the function.
    """
    from data_stack.dataset.iterator.names_of_others import FUNCTIONS, explain

    return explain(name, FUNCTIONS)


def _find_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lazy-data-stack")
    except PackageNotFoundError:  # run from its source without being installed
        return "0+unknown"
