"""The table of what data_stack's own packages provide agrees with these packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_stack.plugins.first_party import Kind, extras_of, is_extra
from data_stack.plugins.manager import default_manager
from data_stack.util.untrusted_text import parse_toml

PLUGINS = Path(__file__).parents[2] / "plugins"


def test_the_datasets_of_our_packages_are_known() -> None:
    extras: dict[str, str] = {}
    for path in PLUGINS.glob("*/pyproject.toml"):
        entry_points = parse_toml(path.read_bytes())["project"].get("entry-points", {})
        for name in entry_points.get("data_stack.datasets", ()):
            extras[name] = path.parent.name

    assert extras_of("datasets") == extras


@pytest.mark.parametrize("kind", ["catalogues", "engines", "documents"])
def test_what_our_packages_provide_by_hooks_is_known(kind: Kind) -> None:
    extras: dict[str, str] = {}
    for name, value in default_manager().provided(kind).items():
        module = getattr(value, "__module__", type(value).__module__)
        extras[name] = module.partition(".")[0].removeprefix("data_stack_")

    assert extras_of(kind) == extras


def test_only_our_packages_are_extras() -> None:
    assert is_extra("digits")
    assert is_extra("huggingface")
    assert not is_extra("hf")
    assert not is_extra("evil-package")
