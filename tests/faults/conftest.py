"""How much is tried, and the processes that it is tried in."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import fault_dataset
import pytest
from fault_stores import CachedStores, FileStores, MongoDBStores, S3Stores, StoreKind
from process_harness import Harness
from s3_server import ACCESS_KEY, SECRET_KEY
from sizes import FULL

Figures: TypeAlias = "Counter[str]"
HERE = Path(__file__).parent
LOGIN = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test of these may hang, whatever it does to a process or server: it fails with the stacks of all threads."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1_200 if FULL else 150))


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="data_stack-faults-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def processes(open_folder: Path) -> Iterator[Harness]:
    with Harness(open_folder, "fault_warm", **LOGIN, AWS_EC2_METADATA_DISABLED="true") as processes:
        yield processes


@pytest.fixture(scope="session")
def sources(open_folder: Path) -> str:
    folder = open_folder / "sources"
    folder.mkdir()
    return str(fault_dataset.write_sources(folder))


@pytest.fixture
def s3_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of the S3 server in the environment."""
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["file", "mongodb", *(pytest.param(each, marks=pytest.mark.full) for each in ("cached", "s3"))])
def stores(request: pytest.FixtureRequest, tmp_path: Path, s3_login: None) -> StoreKind:
    """Every kind of store in turn."""
    if request.param == "file":
        return FileStores(tmp_path)
    if request.param == "cached":
        return CachedStores(tmp_path)
    if request.param == "s3":
        return S3Stores(request.getfixturevalue("s3_server"))
    return MongoDBStores(request.getfixturevalue("mongodb_server").uri())


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Counts of a scenario, a line at the end of ``make test-full``."""
    counts: Figures = Counter()
    yield counts
    if counts:
        text = ", ".join(f"{number} {what}" for what, number in counts.items())
        request.node.user_properties.append(("figures", f"{request.node.name}: {text}"))
