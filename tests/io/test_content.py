"""How the content of a resource is told: by what its store knows, or by a digest that is taken once."""

from __future__ import annotations

from pathlib import Path

import pytest
from s3_server import S3Server

from data_stack.io import content
from data_stack.io.content import content_of_resource
from data_stack.io.folder import folder_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[str] = []

    def digest(resource: StreamedResource) -> str:
        digests.append(f"digest {len(digests)}")
        return digests[-1]

    monkeypatch.setattr(content, "_RESTLESS_NS", 0)
    monkeypatch.setattr(content, "_digest", digest)
    (tmp_path / "x").write_bytes(b"one")
    with folder_of(tmp_path).open("x") as resource:
        first, again = content_of_resource(resource), content_of_resource(resource)
        (tmp_path / "x").write_bytes(b"other")
        after = content_of_resource(resource)

    assert first == again != after
    assert len(digests) == 2


def test_a_file_that_others_put_into_a_bucket_is_told_by_its_tag_and_not_fetched(s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    connector = FsspecStorageConnector(f"s3://{bucket}", **s3_server.options())

    def found(data: bytes) -> tuple[str, str]:
        tag = s3_server.client.put_object(Bucket=bucket, Key="x", Body=data)["ETag"]
        with connector.get_resource("x") as resource:
            return content_of_resource(resource), tag

    (one, its_tag), (same, _), (other, _) = found(b"content"), found(b"content"), found(b"another")

    assert its_tag.strip('"') in one
    assert one == same != other
