"""How much is tried, and the processes that it is tried in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import fault_dataset
import pytest
from fault_stores import CachedStores, FileStores, MongoDBStores, S3Stores, StoreKind
from s3_server import LOGIN
from sizes import FULL

Figures: TypeAlias = "Counter[str]"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test of these may hang, whatever it does to a process or server: it fails with the stacks
    of all threads.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1_200 if FULL else 300))


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


@pytest.fixture(
    params=[
        "file",
        "mongodb",
        *(pytest.param(each, marks=pytest.mark.full) for each in ("cached", "s3")),
    ]
)
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
