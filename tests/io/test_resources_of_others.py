"""Resources of a third party's connector that wrap a buffer of its own: they reopen by connector and identifier elsewhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from plain_connector import FilesConnector, PlainConnector
from process_harness import in_fork

from data_stack.exception import ResourceChangedError
from data_stack.factories.manifest import ResourceRecord
from data_stack.factories.prepared import Resources

CONTENT = bytes(range(256)) * 1000


@pytest.fixture(params=[PlainConnector, FilesConnector])
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> PlainConnector:
    made: PlainConnector = request.param(tmp_path / "store")
    made.set_resource("words/x", [CONTENT])
    return made


def test_a_copy_stands_at_its_start_and_reads_by_itself(connector: PlainConnector) -> None:
    with connector.get_resource("words/x") as resource:
        resource.seek(1000)

        with pickle.loads(pickle.dumps(resource)) as copied:
            assert (copied.identifier, copied.read(3), resource.tell()) == ("words/x", CONTENT[:3], 1000)
            assert copied.read_at(5, 4) == CONTENT[5:9]
            with pickle.loads(pickle.dumps(copied)) as copied_again:
                assert copied_again.read() == CONTENT


def test_bytes_that_were_replaced_meanwhile_are_refused_where_a_digest_is_known(tmp_path: Path) -> None:
    connector = PlainConnector(tmp_path)
    connector.set_resource("words/x", [b"old"])
    record = ResourceRecord("x", 3, "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4")
    with connector.get_resource("words/x") as direct, Resources(connector, "words", [record])["x"] as pinned:
        pickled = [pickle.dumps(direct), pickle.dumps(pinned)]

    connector.set_resource("words/x", [b"new"])

    for each in pickled:
        with pickle.loads(each) as reopened, pytest.raises(ResourceChangedError, match="'words/x' was replaced"):
            reopened.read()
    with Resources(connector, "words", [record])["x"] as changed, pytest.raises(ResourceChangedError):
        changed.read_at(0, 1)


def test_a_forked_child_has_a_position_of_its_own(connector: PlainConnector) -> None:
    with connector.get_resource("words/x") as resource:
        resource.seek(10)

        assert in_fork(lambda: (resource.read(100), resource.read_at(7, 2)) == (CONTENT[10:110], CONTENT[7:9])) == 0
        assert (resource.tell(), resource.read(5)) == (10, CONTENT[10:15])
