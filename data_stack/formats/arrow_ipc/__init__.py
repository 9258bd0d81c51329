"""Files in the IPC formats of Arrow as dict samples."""

from data_stack.exception import MissingDependencyError
from data_stack.util.lazy import attach_stub

try:  # Checked once for all modules of the package.
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("reading Arrow files", "pyarrow", "parquet") from error

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
