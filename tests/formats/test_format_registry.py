"""A format is one class: ``convert`` and ``load`` find it by its suffix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import data_stack
from data_stack.codecs.codec import Column
from data_stack.exception import ConfigError
from data_stack.formats.conversion import convert
from data_stack.formats.conversion.format import FORMATS, Batches, ConvertibleFormat, Source, register_format
from data_stack.io.location import Location


class LinesFormat(ConvertibleFormat):
    """A number per line."""

    name = "lines"
    suffixes: ClassVar[dict[str, str]] = {".lines": "text/plain"}

    def is_folder(self, location: Location) -> bool:
        return False

    def open(self, location: Location) -> Source:
        with location.open() as resource:
            numbers = np.array([int(line) for line in resource.read().splitlines()])
        values = data_stack.from_numpy({"n": numbers})
        return Source(location.full_name, values, {"n": Column("i64", np.int64, ())}, {"n": "n"})

    def write(self, source: Source, place: Location, name: str, shardlen: int | None, batches: Batches) -> None:
        with place.folder.create(place.name) as file:
            for columns in batches:
                file.write(b"".join(b"%d\n" % number for number in columns["n"].tolist()))


@pytest.fixture(autouse=True)
def lines() -> Iterator[None]:
    register_format(LinesFormat)
    yield
    del FORMATS["lines"]


def test_a_registered_format_is_written_read_and_loaded(tmp_path: Path) -> None:
    convert(data_stack.from_numpy({"n": np.arange(5)}), tmp_path / "n.lines")
    convert(tmp_path / "n.lines", tmp_path / "n.npz")

    assert (tmp_path / "n.lines").read_bytes() == b"0\n1\n2\n3\n4\n"
    for name in ("n.lines", "n.npz"):
        loaded: Any = data_stack.load(str(tmp_path / name))
        assert [sample["n"] for sample in loaded] == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="lines has no shards"):
        convert(tmp_path / "n.npz", tmp_path / "shards", target_format="lines", shardlen=2)
