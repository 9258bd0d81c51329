"""The grammar of identifiers: what is refused, and that refusal depends on the identifier alone."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import MalformedIdentifierError
from data_stack.io.identifiers import check_identifier, check_prefix
from data_stack.testing.storage_connector import HOSTILE_IDENTIFIERS


class LyingStr(str):
    """A str whose methods say what one wants to hear."""

    __slots__ = ()

    def split(self, *_: object, **__: object) -> list[str]:
        return ["fine"]


ORDINARY = [
    "mnist/raw/samples_train.gz",
    "20-newsgroups/Raw.Data/train_1.pt",
    "_private/x",
    "label=3/part-0.parquet",
]


@pytest.mark.parametrize(
    "identifier", [*ORDINARY, "a" * 200, "/".join("a" * 16), "v1.0+cpu@x,y", "console/comma"]
)
def test_ordinary_names_are_identifiers(identifier: str) -> None:
    assert check_identifier(identifier) == identifier


@pytest.mark.parametrize(
    "identifier",
    [
        *HOSTILE_IDENTIFIERS, "a/.git", "a~", "é", "e\u0301", "ａ", "\u2024\u2024/x", "Lpt9.gz", "clock$", "$where",
        ("a",), object(), pathlib.PurePosixPath("a"), LyingStr("../x"),
    ],
)  # fmt: skip
def test_everything_else_is_refused(identifier: object) -> None:
    with pytest.raises(MalformedIdentifierError):
        check_identifier(identifier)


@given(st.text(min_size=1, max_size=40))
def test_whatever_is_accepted_stays_below_its_root_on_any_system(identifier: str) -> None:
    try:
        check_identifier(identifier)
    except MalformedIdentifierError:
        return
    for path in (pathlib.PurePosixPath(identifier), pathlib.PureWindowsPath(identifier)):
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert path.as_posix() == identifier


def test_a_prefix_is_any_beginning_of_an_identifier() -> None:
    assert [check_prefix(prefix) for prefix in ("", "mnist/", "mnist/raw/sam")] == [
        "",
        "mnist/",
        "mnist/raw/sam",
    ]
    with pytest.raises(MalformedIdentifierError):
        check_prefix("a b")
    with pytest.raises(MalformedIdentifierError):
        check_prefix(b"a")
