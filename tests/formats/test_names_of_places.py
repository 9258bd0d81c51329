"""Errors about a file in a store name the whole place, and no secret."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server

import data_stack
from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

GOOD_LINES = b'{"a": 1}\n' * 3


def damaged_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}), file)
    return file.getvalue()[:-9]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("bad.jsonl", GOOD_LINES + b'{"a": \n'),
        ("bad.csv", b"a,b\n1,2\n3,4,5\n"),
        ("bad.parquet", damaged_parquet()),
    ],
)
def test_errors_name_bucket_and_folder_of_a_file(
    s3_server: S3Server, name: str, data: bytes
) -> None:
    bucket = s3_server.new_bucket()
    s3_server.client.put_object(Bucket=bucket, Key=f"sets/deep/{name}", Body=data)
    store = FsspecStorageConnector(f"s3://{bucket}/sets", **s3_server.options())
    place: Any = (store, f"deep/{name}")

    with pytest.raises(DataStackError) as info:
        data_stack.load(place)[0]

    message = str(info.value)
    assert f"s3://{bucket}/sets" in message
    assert f"deep/{name}" in message
    assert ACCESS_KEY not in message
    assert SECRET_KEY not in message
