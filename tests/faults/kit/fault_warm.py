"""Imports all that is imported late, so that processes have it: they may be a user who cannot read
this interpreter's files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import fault_dataset
import fault_records  # noqa: F401
import s3fs  # noqa: F401

from data_stack.codecs.registry import registered_types
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector  # noqa: F401
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector  # noqa: F401
from data_stack.reproduce.recipe_layers import import_layers

import_layers()
registered_types()
with tempfile.TemporaryDirectory() as folder:
    sources = str(fault_dataset.write_sources(Path(folder)))
    store = {"url": f"file://{folder}/store?cache={folder}/cache"}
    fault_dataset.heal(store, sources)
    fault_dataset.use(store, sources)
