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
