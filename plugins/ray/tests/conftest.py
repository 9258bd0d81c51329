"""One Ray for most tests of this folder.

It has two processors, no dashboard and no usage reports.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_AUTH_MODE": "disabled",
}


@pytest.fixture(scope="session")
def ray_environment() -> Iterator[str]:
    """The environment of a Ray that starts, and a folder for it.

    The path of the folder is short, as those of sockets must be.
    """
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _SETTINGS.items():
            patch.setenv(name, value)
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # of its workers
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_cluster(ray_environment: str) -> Iterator[None]:
    """A Ray on this machine. Not to be stopped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        import ray.data

        options: Any = {
            "include_dashboard": False,
            "object_store_memory": 256 << 20,
            "logging_level": "ERROR",
        }
        ray.init("local", num_cpus=2, _temp_dir=ray_environment, **options)
        ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture
def ray_nodes(ray_environment: str) -> Iterator[Any]:
    """A Ray on three nodes of this machine, for other processes to connect to.

    Each node has a processor.
    """
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()
