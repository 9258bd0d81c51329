from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from data_stack import codecs

STUB = """
from lazy_example import parts as parts
from lazy_example.parts import heavy as heavy
from lazy_example.parts import light as renamed
from lazy_example.optional import needs_more as needs_more
"""
INIT = """
from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__, optional=("needs_more",))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "__init__.pyi").write_text(STUB)
    (folder / "parts.py").write_text("heavy = [1]\nlight = 2\n")
    (folder / "optional.py").write_text("raise ImportError('install it')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_example")
    for name in [name for name in sys.modules if name.startswith("lazy_example")]:
        del sys.modules[name]


def test_a_name_is_imported_when_it_is_asked_for(package: ModuleType) -> None:
    assert "lazy_example.parts" not in sys.modules

    assert package.heavy == [1]
    assert package.renamed == 2
    assert package.heavy is package.heavy
    assert vars(package)["heavy"] == [1]


def test_star_imports_leave_out_modules_and_optional_names(package: ModuleType) -> None:
    names: dict[str, object] = {}

    exec("from lazy_example import *", names)

    assert package.__all__ == ["heavy", "renamed"]
    assert names["heavy"] == [1]
    assert {"heavy", "needs_more", "parts", "renamed"} <= set(dir(package))
    assert package.parts.light == 2


def test_unknown_names_and_names_that_cannot_be_imported_are_errors(
    package: ModuleType,
) -> None:
    with pytest.raises(AttributeError, match="module 'lazy_example' has no attribute 'other'"):
        getattr(package, "other")  # noqa: B009
    with pytest.raises(ImportError, match="install it"):
        getattr(package, "needs_more")  # noqa: B009


def test_an_earlier_name_is_the_new_one() -> None:
    assert codecs.Column is codecs.ColumnType  # type: ignore[attr-defined]
    assert "Column" not in codecs.__all__
