"""Any dataset, from any store, behind one lazy random-access interface.

::

    import data_stack

    data_stack.datasets()                                # names of the datasets that installed plugins bring
    train = data_stack.load("digits", split="train")     # prepared at the first use, kept in the user's cache folder
    sample, target, tag = train[0]

Each name below is imported when it is first asked for, with what it needs and no more: ``import data_stack`` alone imports
nothing else.
"""

from typing import Any

_OPTIONAL = ("FsspecStorageConnector", "MongoDBStorageConnector")


def __getattr__(name: str) -> Any:
    """Import a name of the stub, or a part of the package, when it is asked for (PEP 562)."""
    found = _find_version() if name == "__version__" else _stub()[0](name) if name != "__all__" else _stub()[2]
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*_stub()[1](), "__version__"})


def _stub() -> Any:
    from data_stack.util.lazy import attach_stub

    import_name, list_names, names = attach_stub(__name__, __file__, optional=_OPTIONAL)
    return import_name, list_names, sorted([*names, "__version__"])


def _find_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("datastack")
    except PackageNotFoundError:  # run from its source without being installed
        return "0+unknown"
