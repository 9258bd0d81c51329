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

from data_stack.util.lazy import attach_stub

_import_name, __dir__, __all__ = attach_stub(__name__, __file__, optional=("FsspecStorageConnector", "MongoDBStorageConnector"))
__all__ = sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        globals()[name] = version = _find_version()
        return version
    return _import_name(name)


def _find_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("datastack")
    except PackageNotFoundError:  # run from its source without being installed
        return "0+unknown"
