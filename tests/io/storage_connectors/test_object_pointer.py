"""Pointers of object stores, and the options of their URLs."""

from __future__ import annotations

import pytest

from data_stack.exception import ConfigError
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.storage_connectors.object_store.pointer import (
    MAX_POINTER_BYTES,
    MAX_RESOURCE_BYTES,
    PART_BYTES,
    block_bytes_for,
)
from data_stack.io.storage_connectors.object_store.url_options import parse_options

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size", "block_bytes"),
    [
        (0, BLOCK_BYTES),
        (4 * GIB, BLOCK_BYTES),
        (4 * GIB + 1, 2 * BLOCK_BYTES),
        (8 * GIB, 2 * BLOCK_BYTES),
        (8 * GIB + 1, 4 * BLOCK_BYTES),
        (MAX_RESOURCE_BYTES, PART_BYTES),
    ],
)
def test_blocks_grow_with_the_resource(size: int, block_bytes: int) -> None:
    assert block_bytes_for(size) == block_bytes


@pytest.mark.parametrize("size", [1, 5 * GIB, 100 * GIB, MAX_RESOURCE_BYTES])
def test_digests_of_all_blocks_fit_into_a_pointer(size: int) -> None:
    n_blocks = -(-size // block_bytes_for(size))

    assert n_blocks * 8 < MAX_POINTER_BYTES


def test_options_become_arguments_of_the_file_system() -> None:
    arguments = parse_options("gs", "project=mine&anonymous=true&timeoutSeconds=2&readOnly=false")

    assert arguments == {
        "project": "mine",
        "token": "anon",
        "timeout_seconds": 2.0,
        "read_only": False,
    }


def test_an_account_that_logs_in_has_no_token() -> None:
    assert parse_options("gs", "anonymous=false") == {}


@pytest.mark.parametrize("query", ["regoin=eu", "profile", "timeoutSeconds=soon"])
def test_unknown_and_invalid_options_are_refused(query: str) -> None:
    with pytest.raises(ConfigError):
        parse_options("s3", query)
