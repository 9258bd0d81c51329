"""Ten thousand hostile identifiers: none leaves a store, is taken for another, is lost, or raises what is not ours."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_dataset import close, connector_for
from fault_size import Figures
from fault_stores import S3Stores
from s3_server import ACCESS_KEY, SECRET_KEY
from sizes import FULL, sized

from data_stack.exception import DataStackError
from data_stack.testing.storage import HOSTILE_IDENTIFIERS

TOKEN = b"CANARY-8b2f"
DEVICES = ("CON", "PRN", "AUX", "NUL", "COM1", "LPT1", "CONIN$", "COM¹", "CLOCK$")
SEPARATORS = ("/", "\\", "//", "/./", "%2f", "%252f", "\u2215", "\u2044", "\uff0f", "\x00/", "/\x00", "\u200b/", "\udc2f", "¥")
UPWARDS = ("..", ".", "...", "%2e%2e", "．．", "․․", "..\x00", " ..", ".. ", "..;", ".%00.", "..\u200d")
ENDS = (
    "canary", "store_evil/canary", "etc/passwd", "x", "link_out/canary", "link_file", "link_loop/x", "manifest.json", ".lock",
    "x.tmp-1", ".data_stack/digests/x~", "uploads", "~", ".~x",
)  # fmt: skip


class LyingStr(str):
    """A str whose methods lie."""

    __slots__ = ()

    def startswith(self, *arguments: Any) -> bool:
        return False

    def __contains__(self, part: object) -> bool:
        return False

    def split(self, *arguments: Any) -> list[str]:
        return ["fine"]

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


def hostile_identifiers(n: int) -> Iterator[Any]:
    """``n`` of them, the same every time: those that are known first, then random combinations."""
    chance = random.Random(1)
    known = [*HOSTILE_IDENTIFIERS, *DEVICES, pathlib.PurePosixPath("/etc/passwd"), LyingStr("../canary"), object(), "a", "A", "ß"]
    yield from known
    for number in range(n - len(known)):
        text = chance.choice(["", "", "", "/", "\\", "C:\\", "//", "a/", "\x00"])
        for _ in range(chance.randint(1, 7)):
            text += chance.choice(UPWARDS) if chance.random() < 0.6 else chance.choice([*ENDS, *DEVICES, "a", "B", "ü", "x" * 60])
            text += chance.choice(SEPARATORS if chance.random() < 0.4 else ["/"])
        text += chance.choice([*ENDS, "", f"new{number}"])
        if chance.random() < 0.1:
            text = f"new/{number}"
        yield unicodedata.normalize(chance.choice(["NFC", "NFD", "NFKC", "NFKD"]), text) if chance.random() < 0.1 else text


def outside(base: Path) -> dict[str, tuple[int, int, int]]:
    """All around a store at ``base/in/store``."""
    found = {}
    for folder, folders, files in os.walk(base):
        folders[:] = [each for each in folders if os.path.join(folder, each) not in (f"{base}/in/store", f"{base}/in/local")]
        for name in [*files, *folders]:
            status = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (status.st_mtime_ns, status.st_size, status.st_mode)
    return found


@pytest.fixture(params=["file", "mongodb", *(["memory", "cached", "s3"] if FULL else [])])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with canaries around it, and links in it that lead there."""
    for name in ("canary", "in/canary", "in/store_evil/canary", "in/store2/canary"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(TOKEN)
    store = tmp_path / "in/store"
    store.mkdir()
    for name, target in {"link_out": "../../", "link_file": "../canary", "link_loop": "link_loop"}.items():
        (store / name).symlink_to(target)
    (tmp_path / "in/local").mkdir()
    if request.param == "mongodb":
        return str(request.getfixturevalue("quick_mongodb").uri("hostile"))
    if request.param == "s3":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        return str(S3Stores(request.getfixturevalue("s3_server")).new()["url"])
    cache = f"?cache={tmp_path}/in/local" if request.param == "cached" else ""
    return "memory://" if request.param == "memory" else f"file://{store}{cache}"


def test_hostile_identifiers_are_refused_or_kept_apart(url: str, tmp_path: Path, figures: Figures) -> None:
    connector, before = connector_for({"url": url}), outside(tmp_path)
    kept: dict[str, bytes] = {}

    def content(identifier: Any) -> bytes | None:
        with contextlib.suppress(DataStackError), connector.get_resource(identifier) as resource:
            return bytes(resource.read())
        return None

    for number, identifier in enumerate(hostile_identifiers(sized(300, 10_000))):
        known = type(identifier) is str and identifier in kept
        assert known or content(identifier) is None, f"{identifier!r} reads what is another's"
        try:
            connector.set_resource(identifier, b"payload %d" % number)
            kept[identifier] = b"payload %d" % number
            figures.counts["kept"] += 1
        except DataStackError:
            figures.counts["refused"] += 1

    assert {identifier: content(identifier) for identifier in kept} == kept
    assert outside(tmp_path) == before
    assert figures.counts["refused"] > sized(150, 6_000)
    assert figures.counts["kept"] > 10
    close(connector)
