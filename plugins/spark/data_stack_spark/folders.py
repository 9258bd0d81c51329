"""Folders that converters write: made under a unique name, and deleted by their URL."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JError

from data_stack.exception import ConfigError, StorageError
from data_stack_spark.session import spark_session
from data_stack_spark.urls import local_path

_PREFIX: Final = "data-stack-converter-"

#: The names of the folders. No other folder is deleted.
_NAME: Final = re.compile(_PREFIX + "[0-9a-f]{16}")

#: Deletes the folders instead of Spark. There is one for the process, as in Petastorm.
_delete_handler: Callable[[str], Any] | None = None


def register_delete_dir_handler(handler: Callable[[str], Any] | None) -> None:
    """Let ``handler(url)`` delete the folders of converters; None restores the default.

    Raises:
        ConfigError: the handler is not a function.
    """
    global _delete_handler
    if handler is not None and not callable(handler):
        raise ConfigError(
            f"a delete handler must be a function of a URL, or None, got {handler!r:.80}"
        )
    _delete_handler = handler


def new_folder_url(parent: str) -> str:
    """Return the URL of a folder below ``parent`` that does not exist yet."""
    return f"{parent}/{_PREFIX}{secrets.token_hex(8)}"


def delete_folder(url: str) -> None:
    """Delete the folder of a converter.

    Raises:
        ConfigError: no converter wrote that folder.
        StorageError: the folder could not be deleted.
    """
    name = url.rpartition("/")[2]
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{url!r} was not written by a converter and is not deleted")
    if _delete_handler is not None:
        _delete_handler(url)
    else:
        remove_tree(url)


def remove_tree(url: str) -> None:
    """Delete a folder with all that is in it, if it exists.

    Raises:
        StorageError: the folder could not be deleted.
    """
    path = local_path(url)
    try:
        if path is None:
            filesystem, hadoop_path = find_hadoop_path(url)
            filesystem.delete(hadoop_path, True)
        elif os.path.lexists(path):
            shutil.rmtree(path)
    except (OSError, Py4JError) as error:
        raise StorageError(f"could not delete {url}: {error!s:.500}") from error


def find_hadoop_path(url: str) -> tuple[Any, Any]:
    """Return the file system and the path of a URL, as objects of Spark's JVM."""
    context: Any = spark_session().sparkContext
    java_uri = context._jvm.java.net.URI(url)
    path = context._jvm.org.apache.hadoop.fs.Path(java_uri)
    filesystem = path.getFileSystem(context._jsc.hadoopConfiguration())
    return filesystem, path
