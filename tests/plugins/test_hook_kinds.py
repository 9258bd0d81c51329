"""What is accepted of the values that plugins bring through hooks."""

from __future__ import annotations

from typing import Any

import pytest

from data_stack.codecs.npy import NpyCodec
from data_stack.exception import PluginError
from data_stack.plugins import hookspecs
from data_stack.plugins.hook_kinds import HOOK_KINDS


def test_each_hook_has_its_kind() -> None:
    hooks = {name for name in vars(hookspecs) if name.startswith("data_stack_")}

    assert {kind.hook for kind in HOOK_KINDS.values()} == hooks


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("storage_connectors", "s4", print),
        ("retrievers", "ipfs", print),
        ("engines", "slurm", print),
        ("codecs", "dicom", NpyCodec()),
        ("documents", "CITATION.bib", print),
    ],
)
def test_what_a_hook_documents_is_accepted(kind: str, name: str, value: Any) -> None:
    HOOK_KINDS[kind].check(name, value, taken=())


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("storage_connectors", "s4", 1),
        ("storage_connectors", "S4://", print),
        ("storage_connectors", 4, print),
        ("codecs", "dicom", NpyCodec),
        ("encoders", "tfidf", dict),
        ("catalogues", "calc", object()),
        ("documents", "../CITATION.bib", print),
        ("documents", "CITATION.bib", b"@misc{}"),
    ],
)
def test_what_a_hook_excludes_is_named(kind: str, name: Any, value: Any) -> None:
    with pytest.raises(PluginError, match=f"data_stack_{kind} returned {name!r}"):
        HOOK_KINDS[kind].check(name, value, taken=())


@pytest.mark.parametrize(
    ("kind", "name", "taken"),
    [
        ("engines", "processes", ()),
        ("retrievers", "https", ()),
        ("engines", "ray", ("ray",)),
        ("documents", "data_stack.json", ()),
    ],
)
def test_a_taken_name_is_refused(kind: str, name: str, taken: tuple[str, ...]) -> None:
    with pytest.raises(PluginError, match="is taken"):
        HOOK_KINDS[kind].check(name, print, taken)
