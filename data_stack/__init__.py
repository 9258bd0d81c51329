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

#: Modules that register what plugins bring; data_stack.util.providers imports them when it is needed.
_PROVIDERS = ("data_stack.plugins.manager",)

_OPTIONAL = (
    *("FsspecStorageConnector", "MongoDBStorageConnector"),
    *(
        "from_arrow",
        "from_csv",
        "from_huggingface",
        "from_jsonl",
        "from_pandas",
        "from_polars",
    ),
    *("to_arrow", "to_huggingface", "to_pandas", "to_polars"),
)


def __getattr__(name: str) -> Any:
    """Import a name of the stub, or a part of the package, when it is asked for (PEP 562)."""
    if name == "__version__":
        found = _find_version()
    else:
        import_name, _, public = _stub()
        found = sorted([*public, "__version__"]) if name == "__all__" else import_name(name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    _, list_names, _ = _stub()
    return sorted({*list_names(), "__version__"})


def _stub() -> Any:
    from data_stack.util.lazy import (
        attach_stub,
    )  # not above, for importing data_stack imports nothing else

    return attach_stub(__name__, __file__, optional=_OPTIONAL, explain=_explain)


def _explain(name: str) -> str:
    from data_stack.dataset.iterator.names_of_others import FUNCTIONS, explain

    return explain(name, FUNCTIONS)


def _find_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lazy-data-stack")
    except PackageNotFoundError:  # run from its source without being installed
        return "0+unknown"
