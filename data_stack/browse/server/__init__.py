"""Serves the pages of a browser on this machine."""

from data_stack.exception import MissingDependencyError

try:  # Checked once for all modules of the package.
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    package, _, _ = str(error.name).partition(".")
    raise MissingDependencyError("data-stack browse", package, "browse") from error

from data_stack.browse.server.server import Server, serve

__all__ = ["Server", "serve"]
