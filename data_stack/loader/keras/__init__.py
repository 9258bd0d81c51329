"""The batches of a loader for ``fit`` of Keras 3, and backups from which a training continues."""

from data_stack.exception import MissingDependencyError

try:
    import keras  # noqa: F401  # the modules of this package need it
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.keras", "keras", "keras") from error

from data_stack.loader.keras.backup import LoaderBackup
from data_stack.loader.keras.batches import KerasBatches

__all__ = ["KerasBatches", "LoaderBackup"]
