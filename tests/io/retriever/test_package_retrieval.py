"""Resources from files inside of installed packages."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from data_stack.exception import RetrievalError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors import FileStorageConnector

BODY = b"one,two\n1,2\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package ``lent_data`` that must not be imported."""
    folder = tmp_path / "site" / "lent_data"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "inner" / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "inner" / "table.csv").write_bytes(BODY)
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_a_file_of_a_package_arrives_without_importing_it(store: FileStorageConnector, package: Path) -> None:
    source = "package:lent_data/inner/table.csv"

    (resource,) = retrieve([ResourceDefinition("raw/t", source, sha256=hashlib.sha256(BODY).hexdigest())], store, offline=True)

    assert resource.source == source
    assert store.get_resource("raw/t").read() == BODY
    assert "lent_data" not in sys.modules


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("package:no_such_package_here/x.csv", "no package 'no_such_package_here' is installed"),
        ("package:lent_data/missing.csv", "has no file missing.csv"),
        ("package:lent_data/inner", "is a folder"),
        ("package:lent_data", "not of the form"),
        ("package:lent_data/../../secret", "not of the form"),
        ("package:lent_data//etc/passwd", "not of the form"),
        ("package:lent_data.inner/table.csv", "not of the form"),
        ("package:", "not of the form"),
        ("package:sys/x", "has no file x"),
        ("package:__main__/x", ""),
        ("package:lent_data/a\0b", "has no file"),
    ],
)
def test_what_no_package_has_is_an_error_that_says_so(store: FileStorageConnector, package: Path, source: str, said: str) -> None:
    with pytest.raises(RetrievalError) as caught:
        retrieve([ResourceDefinition("raw/t", source)], store)

    assert said in str(caught.value)
    assert "lent_data" not in sys.modules
