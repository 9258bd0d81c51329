"""What ``data-stack search`` finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from data_stack.repository.search import search_datasets


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("HANDWRITTEN", ["digits", "mnist"]),
        ("handwrit pixels", ["digits", "mnist"]),
        ("vers cc", ["iris"]),
        ("iris whales", []),
        (".*[", []),
    ],
)
def test_every_word_must_be_found_and_names_count_most(store: Any, text: str, names: list[str]) -> None:
    found = [each.name for each in search_datasets(text)]

    assert [name for name in found if name in ("digits", "iris", "mnist")] == names  # other packages have such datasets, too


def test_the_command_says_what_was_found_where(command: Any, install: Callable[..., None]) -> None:
    install("broken-iris", "raise RuntimeError('broken')")

    outcome, facts = command("search", "iris"), command("search", "IRIS", "flowers", "--json").json

    assert [line.split()[0] for line in outcome.out.splitlines()[2:]] == ["broken-iris", "iris"]
    assert [each["name"] for each in facts] == ["iris"]
    assert command("search", "nosuchthing").out == "no installed dataset matches; `data-stack list` shows all\n"
