"""Identifiers that want to leave a store, be taken for another, or reach a device or an operator of a database; what they did."""

from __future__ import annotations

import collections
import os
import pathlib
import random
import signal
import time
import unicodedata
from collections.abc import Callable
from typing import Any

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors import StorageConnector

DEVICES = ("CON", "PRN", "AUX", "NUL", "COM1", "COM9", "LPT1", "CONIN$", "CONOUT$", "COM¹", "LPT²", "CLOCK$")
SEPARATORS = (
    "/", "\\", "//", "/./", "\\\\", "%2f", "%5c", "%252f", "\u2215", "\u2044", "\uff0f", "\uff3c", "\u29f8", "\x00/", "/\x00",
    "\u200b/", "\udc2f", "¥", "₩",
)  # fmt: skip
UPWARDS = (
    "..", ".", "...", "....", "%2e%2e", "．．", "․․", "..\x00", " ..", ".. ", "..;", ".%00.", "..\u200d", "․.", ".\u2024",
)  # fmt: skip
ENDS = (
    "canary", "store_evil/canary", "store2/x", "etc/passwd", "x", "link_out/canary", "link_file", "link_loop/x", ".git/config",
    "manifest.json", ".lock", "x.tmp-1", ".data_stack/digests/x~", "uploads", "~", ".~x",
)  # fmt: skip
SLOW_SECONDS = 1.0
HANG_SECONDS = 5


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


class ChangingPath(os.PathLike[str]):
    """Harmless when looked at, hostile when used."""

    def __init__(self) -> None:
        self.n_looks = 0

    def __fspath__(self) -> str:
        self.n_looks += 1
        return "fine" if self.n_looks < 2 else "../canary"


def _known() -> list[Any]:
    found: list[Any] = [
        "", ".", "..", "/", "//", "\\", "~", "~root/x", "$HOME/x", "%USERPROFILE%\\x", "-rf", "--", "*", "?", "a|b", "`id`",
        "$(id)", ";id", "a\nb", "a\rb", "a\tb", "\x00", "a\x00", "\x00a", "a\x00b", "\x7f", "\x1b[2J", "a" * 255, "a" * 256,
        "é" * 128, "a" * 5000, "a/" * 1000+"b", "/" * 5000, "../" * 3000+"canary", "C:", "C:x", "C:\\x", "c:/x", "\\\\?\\C:\\x",
        "\\\\host\\share\\x", "//host/share/x", "a:b", "a::$DATA", "file:///etc/passwd", "http://127.0.0.1/", "/dev/stdin",
        "/dev/zero", "/proc/self/environ", "/proc/self/fd/0", "/proc/self/cwd/../etc/passwd", "../store_evil/canary",
        "../store_evil/new", "../canary", "../../canary", "x/../../canary", "link_out/canary", "link_out/new", "link_file",
        "link_loop/x", "{0.__class__}", "%s%n%x", "{}", "${jndi:ldap://x}", "'; DROP TABLE x;--", "$where", "$ne", "a.b.c",
        "fs.files", "fs.chunks", "_id", "__proto__", "a\u202etxt.exe", "\ufeffx", "x\u200b", "\ud800", "\udcff",
        "\udc2e\udc2e\udc2fcanary", "\U0010ffff", "\ufffe", "trailing.", "trailing ", " leading", "a/ /b", "a/./b", "a//b",
        "a/b/", "ℂase", "ſ", "İ", "ı", "ß", "SS", "ss", "ﬁ", "fi", "\u212b", "\u00c5", "A\u030a", "\u00e9", "e\u0301", "Case",
        "case", "CASE", "a/B", "A/b", "ａ", "a",
    ]  # fmt: skip
    for device in DEVICES:
        found += [device, device.lower(), f"{device}.txt", f"a/{device}", f"{device} ", f"{device}."]
    found += [
        None,
        0,
        1.5,
        True,
        b"x",
        b"../canary",
        ["a"],
        ("a",),
        {"$ne": None},
        {"$gt": ""},
        {"$where": "sleep(2000)"},
        object(),
    ]
    return [*found, pathlib.Path("../canary"), pathlib.PurePosixPath("/etc/passwd"), LyingStr("../canary"), ChangingPath()]


def hostile_identifiers(n: int) -> list[Any]:
    """``n`` of them, the same every time: those that are known first, then random combinations."""
    chance, found = random.Random(1), _known()
    while len(found) < n:
        text = chance.choice(["", "", "", "/", "\\", "C:\\", "//", "a/", "\x00"])
        for _ in range(chance.randint(1, 7)):
            text += chance.choice(UPWARDS) if chance.random() < 0.6 else chance.choice([*ENDS, *DEVICES, "a", "B", "ü", "x" * 60])
            text += chance.choice(SEPARATORS if chance.random() < 0.4 else ["/"])
        text += chance.choice([*ENDS, "", f"new{len(found)}", chance.choice(DEVICES)])
        if chance.random() < 0.2:
            odd = [0, 1, 10, 46, 47, 92, 0xFF0E, 0xD800, 0x300, 0x202E, chance.randrange(0x10FFFF)]
            text = "".join(chr(chance.choice(odd)) if chance.random() < 0.15 else character for character in text)
        if chance.random() < 0.1:
            text = unicodedata.normalize(chance.choice(["NFC", "NFD", "NFKC", "NFKD"]), text)
        found.append(text)
    return found[:n]


class _HangError(BaseException):
    """No answer."""


class Attempt:
    """Tries identifiers at a store, and counts what should not be.

    Args:
        connector: the store.
        base: a folder around the store, if it is one; nothing outside of ``base/in/store`` may be read or changed.
        token: what files outside hold; it must not be read through the store.
    """

    def __init__(self, connector: StorageConnector, base: str, token: bytes) -> None:
        self.connector, self.base, self.token = connector, base, token
        self.counts: collections.Counter[str] = collections.Counter()
        self.bad: list[str] = []

    def run(self, identifiers: list[Any]) -> None:
        """Look for, read, store and read back each; then all that were accepted once more."""
        kept: list[tuple[str, bytes]] = []
        signal.signal(signal.SIGALRM, self._ring)
        outside = self._outside()
        for number, identifier in enumerate(identifiers):
            accepted, had = self._call(self.connector.has_resource, identifier)
            found, data = self._call(self._content, identifier)
            if found and self.token in data:
                self._note("escapes", identifier, "read a file outside")
            payload = b"payload-%d-" % number * 3
            if accepted and had:
                if not any(identifier is other or identifier == other for other, _ in kept):
                    self._note("aliases", identifier, "another identifier's data came back")
                continue
            stored, _ = self._call(self.connector.set_resource, identifier, payload)
            self.counts["accepted" if stored else "refused"] += 1
            if stored:
                kept.append((identifier, payload))
                if self._call(self._content, identifier) != (True, payload):
                    self._note("losses", identifier, "stored, and not there")
            if number % 500 == 499 or number < 300:
                now = self._outside()
                if now != outside:
                    self._note("escapes", identifier, "changed something outside")
                    outside = now
        for identifier, payload in kept:
            if self._call(self._content, identifier) != (True, payload):
                self._note("losses", identifier, "overwritten or gone")

    def _content(self, identifier: str) -> bytes:
        with self.connector.get_resource(identifier) as resource:
            return resource.read()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        try:
            return True, function(*arguments)
        except DataStackError as error:
            return False, error
        except (Exception, _HangError) as error:
            self._note("foreign errors", arguments[0], f"{function.__name__}: {type(error).__name__}: {error}")
            return False, error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if time.monotonic() - started > SLOW_SECONDS:
                self.counts["slow"] += 1

    def _note(self, what: str, identifier: object, why: str) -> None:
        self.counts[what] += 1
        self.bad.append(f"{what}: {identifier!r:.90}: {why:.200}")

    def _outside(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for folder, folders, files in os.walk(self.base):
            if folder == os.path.join(self.base, "in"):
                folders[:] = [each for each in folders if each not in ("store", "local")]
            for name in [*files, *folders]:
                status = os.lstat(os.path.join(folder, name))
                found[os.path.join(folder, name)] = (status.st_mtime_ns, status.st_size, status.st_mode)
        return found

    @staticmethod
    def _ring(number: int, frame: object) -> None:
        raise _HangError(f"no answer in {HANG_SECONDS} s")


def lay_out_canaries(base: pathlib.Path, token: bytes) -> None:
    """Files around a store at ``base/in/store`` that must not be reached, and links in it that lead there."""
    for name in ("canary", "in/canary", "in/store_evil/canary", "in/store2/canary", "cwd/canary"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(token)
    store = base / "in/store"
    store.mkdir()
    (store / "link_out").symlink_to("../../")
    (store / "link_file").symlink_to("../canary")
    (store / "link_loop").symlink_to("link_loop")
