"""Raw resources are decompressed as streams."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

import data_stack.dataset.preprocesor
from data_stack.dataset.preprocessor import PreprocessingHelpers
from data_stack.io.resources import ResourceFactory


@pytest.mark.parametrize(
    "helpers", [PreprocessingHelpers, PreprocessingHelpers(), data_stack.dataset.preprocesor.PreprocessingHelpers]
)
def test_a_gzip_resource_is_decompressed_under_its_name(helpers: Any) -> None:
    resource = ResourceFactory.get_resource("mnist/raw/labels.gz", io.BytesIO(gzip.compress(b"labels")))

    with helpers.get_gzip_stream(resource=resource) as decompressed:
        assert decompressed.identifier == "mnist/raw/labels.gz"
        assert decompressed.read() == b"labels"
    assert not resource.closed


def test_nothing_is_read_before_it_is_asked_for() -> None:
    compressed = io.BytesIO(gzip.compress(bytes(1 << 24)))
    resource = ResourceFactory.get_resource("zeros.gz", compressed)

    decompressed = PreprocessingHelpers.get_gzip_stream(resource)
    assert compressed.tell() == 0

    assert decompressed.read(10) == bytes(10)
    assert compressed.tell() > 0
