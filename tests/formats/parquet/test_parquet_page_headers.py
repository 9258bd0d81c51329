from __future__ import annotations

import pyarrow as pa
import pytest

from data_stack.formats.parquet.footer_facts import bytes_claimed_by_pages

# Thrift's compact protocol: field 1 is the kind of page, 2 and 3 are its sizes, unpacked and stored.
_KIND, _SIZE = b"\x15\x00", b"\x15\x08"


def test_what_pages_claim_is_added_up() -> None:
    page = _KIND + _SIZE + _SIZE + b"\x00" + b"data"

    assert bytes_claimed_by_pages(pa.BufferReader(page * 3), 0, 3 * len(page)) == (12, 0)


@pytest.mark.parametrize("other", [b"\x1c\x00", b"\x18\x01a", b"\x11", b"\x19\x15\x02"], ids=["struct", "bytes", "truth", "list"])
@pytest.mark.parametrize("position", [1, 2])
def test_a_size_of_another_type_is_damage(position: int, other: bytes) -> None:
    fields = [_KIND, _SIZE, _SIZE]
    fields[position] = other
    header = b"".join(fields) + b"\x00"

    with pytest.raises(ValueError, match="page at byte 0"):
        bytes_claimed_by_pages(pa.BufferReader(header + b"data"), 0, len(header) + 4)
