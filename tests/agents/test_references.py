"""The names by which agents name datasets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.agents.references import check_store, parse_reference
from data_stack.exception import ConfigError

STORES = ("default", "runs")


@pytest.mark.parametrize(
    ("text", "store", "name"),
    [
        ("digits", None, "digits"),
        ("digits@1.0.0", None, "digits@1.0.0"),
        ("package:digits", None, "package:digits"),
        ("hf:owner/name@main#part", None, "hf:owner/name@main#part"),
        ("runs:digits", "runs", "digits"),
        ("runs:sets/train (1).csv", "runs", "sets/train (1).csv"),
        ("default:.", "default", "."),
        ("default:a:b", "default", "a:b"),
    ],
)
def test_a_name_is_one_of_a_store_or_not(text: str, store: str | None, name: str) -> None:
    reference = parse_reference(text, STORES)

    assert (reference.store, reference.name) == (store, name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "./digits",
        "../digits",
        "/etc/passwd",
        "~",
        "~/data",
        "digits/",
        "a/../b",
        "a//b",
        "a/./b",
        "a\\b",
        "..\\a",
        "file:///etc/passwd",
        "https://example.org/digits",
        "mongodb://user:secret@host/db",
        "runs:..",
        "runs:../a",
        "runs:/etc/passwd",
        "runs:~/a",
        "runs:a/../../b",
        "runs:",
        "runs:./a",
        "runs:file:///etc/passwd",
        " digits",
        "digits\n",
        "digits\x00",
        "di\x1b[31mgits",
        "x" * 501,
        None,
        7,
        ["digits"],
    ],
)
def test_a_path_or_url_is_refused(text: object) -> None:
    with pytest.raises(ConfigError) as error:
        parse_reference(text, STORES)

    assert str(error.value).isprintable()


@given(st.text(alphabet=st.sampled_from("ab.:/\\~@ \x00\x1b\u202edefaultruns"), max_size=30))
def test_an_accepted_name_never_leaves_its_store(text: str) -> None:
    try:
        reference = parse_reference(text, STORES)
    except ConfigError:
        return

    segments = reference.name.split("/")
    assert ".." not in segments
    assert "" not in segments
    assert not reference.name.startswith(("/", "~"))
    assert "://" not in reference.name
    assert reference.is_whole_store or "." not in segments


def test_an_unknown_store_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'rnus' \(did you mean 'runs'\?\); .*'default', 'runs'"):
        check_store("rnus", STORES)
