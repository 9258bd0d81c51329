"""Preparations in several processes, which must have the same code."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from process_harness import Process, run_python, until
from sharded_dataset import N_SHARDS, Random, Sharded
from sizes import sized

from data_stack.exception import PreparationError
from data_stack.factories.code_digest import code_digest, find_changed_module, module_digests
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.processes.fork_server import ForkedProcess


def started(store: Path, what: str) -> Process:
    """A process that prepares the dataset, and says so."""
    answer, output = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    return Process(
        ForkedProcess("sharded_dataset:main", [str(store), what], output=output), answer, output
    )


def test_processes_that_start_at_once_do_the_work_once(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_processes = sized(3, 8)
    monkeypatch.setenv("SHARDED_PAUSE", "0.1")
    running = [started(tmp_path / "store", "none") for _ in range(n_processes)]

    outputs = [process.wait().output for process in running]

    assert sorted(outputs) == ["prepared\n"] + ["ready\n"] * (n_processes - 1)
    assert len(log.read_text().splitlines()) == N_SHARDS
    assert Sharded(FileStorageConnector(tmp_path / "store")).verify() == []
    assert not [
        path
        for path in tmp_path.rglob("*")
        if path.name.startswith(".~") or path.name == "journal.json"
    ]


def test_processes_without_leases_and_with_different_results_never_mix_them(tmp_path: Path) -> None:
    factory = Random(FileStorageConnector(tmp_path / "store"))

    def is_right() -> bool:
        return all(first == second for ((first, second),) in factory.get_dataset_iterator()[0])

    running = [started(tmp_path / "store", "unleased") for _ in range(sized(3, 8))]
    while any(process.is_running() for process in running):
        assert not factory.is_ready() or is_right()
        time.sleep(0.005)
    ends = [process.wait() for process in running]

    assert [end.status for end in ends] == [0] * len(ends), ends
    assert factory.is_ready()
    assert is_right()


def test_a_waiting_process_takes_over_from_a_killed_lease_holder(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDED_PAUSE", "600")
    holder = started(tmp_path / "store", "none")
    assert until(lambda: log.read_text() != "")
    monkeypatch.delenv("SHARDED_PAUSE")
    waiting = started(tmp_path / "store", "none")
    time.sleep(0.5)
    assert waiting.is_running()
    assert len(log.read_text().splitlines()) == 1

    holder.kill()

    assert waiting.wait().output == "prepared\n"
    assert holder.wait().was_killed
    assert Sharded(FileStorageConnector(tmp_path / "store")).verify() == []


FACTORY = """
    from data_stack import DatasetCard, DatasetFactory
    {imports}

    class Factory(DatasetFactory):
        card = DatasetCard(name="labels", version="1")
        splits = ("train", "test")
        factor = 1

        def preprocess(self, raw, prepared):
            {body}
"""

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules as if they had been there before this process."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
            os.utime(path, (0, 0))
        _forget_modules(known)

    yield write
    _forget_modules(known)


def _forget_modules(known: set[str]) -> None:
    for name in set(sys.modules) - known:
        if name.startswith("made"):
            del sys.modules[name]
    importlib.invalidate_caches()


LABELS = """
    from data_stack import DatasetCard, DatasetFactory
    from data_stack.dataset.iterator import SequenceDatasetIterator

    class Factory(DatasetFactory):
        card = DatasetCard(name="labels", version="1")
        splits = ("train", "test")

        def preprocess(self, raw, prepared):
            for split in prepared.steps(self.splits):
                if split == "test": {test}
                with prepared.create(split) as file:
                    file.write(b"{label}")

        def open(self, split, prepared):
            return SequenceDatasetIterator([[prepared[split].read()]])
"""


def first_label(
    write: Write, store: FileStorageConnector, label: str, test: str, **options: Any
) -> Any:
    """What a program that begins now prepares for ``train``, with the code of today."""
    write(made_labels=LABELS.format(label=label, test=test))
    factory = importlib.import_module("made_labels").Factory(store)
    factory.prepare(**options)
    return factory.get_dataset_iterator()[0][0][0]


def test_a_step_whose_code_has_changed_is_done_again(
    write: Write, store: FileStorageConnector, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyboardInterrupt):
        first_label(write, store, "wrong", "raise KeyboardInterrupt")

    assert first_label(write, store, "right", "pass") == b"right"
    assert (
        "is prepared again: its preparation has not finished; its steps were done by other code"
        in caplog.text
    )
    assert "mixes" not in caplog.text


def test_a_step_of_other_code_is_kept_on_request(
    write: Write, store: FileStorageConnector, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PreparationError, match="all finished steps and shards are kept"):
        first_label(write, store, "old", "raise RuntimeError", keep_steps=True)
    assert caplog.text == ""

    assert first_label(write, store, "new", "pass", keep_steps=True) == b"old"
    assert "is prepared again" not in caplog.text
    assert (
        "dataset 'labels' mixes results of different code: keep_steps kept 'train'." in caplog.text
    )
    assert "data-stack prepare labels --again" in caplog.text


def digest_of(
    module: str, *, set_on_class: dict[str, Any] | None = None, **set_on_object: Any
) -> str:
    kind = importlib.import_module(module).Factory
    for name, value in (set_on_class or {}).items():
        setattr(kind, name, value)
    factory = kind(None)
    for name, value in set_on_object.items():
        setattr(factory, name, value)
    return code_digest(factory)


def test_the_whole_package_of_a_factory_counts_but_no_other(write: Write) -> None:
    package = {
        "made_pkg____init__": "",
        "made_pkg__sub____init__": "",
        "made_pkg__plugin": FACTORY.format(
            imports="from .sub import labels\n    import made_other", body="pass"
        ),
        "made_pkg__sub__labels": "CODES = {1: 'a'}",
        "made_other____init__": "A = 1",
    }
    write(**package)
    first = digest_of("made_pkg.plugin")

    write(**{**package, "made_other____init__": "A = 2"})
    same = digest_of("made_pkg.plugin")
    write(**{**package, "made_pkg__sub__labels": "CODES = {1: 'b'}"})
    other = digest_of("made_pkg.plugin")

    assert first == same != other


@pytest.mark.parametrize(
    "changed",
    [
        {"set_on_class": {"factor": 2}},
        {"seeds": [1, {"a": 2}]},
        {"set_on_class": {"splits": ("test", "train")}},
    ],
)
def test_attributes_of_class_and_object_count(write: Write, changed: Any) -> None:
    write(made_one=FACTORY.format(imports="", body="pass"))
    first = digest_of("made_one")

    write()

    assert digest_of("made_one", **changed) == digest_of("made_one", **changed) != first


def test_incomparable_or_edited_code_has_a_new_digest_each_time(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(made_one=FACTORY.format(imports="", body="pass"))
    unknown = {digest_of("made_one", lock=threading.Lock()) for _ in range(2)}
    digest_of("made_one")
    os.utime(tmp_path / "made_one.py")
    with caplog.at_level(logging.INFO, "data_stack"):
        edited = {digest_of("made_one") for _ in range(2)}

    assert (len(unknown), len(edited)) == (2, 2)
    assert "made_one.py was edited while this process runs" in caplog.text


def test_a_notebook_class_is_digested_by_code_and_values_used() -> None:
    cell = textwrap.dedent(FACTORY).format(
        imports="LABELS = {labels}\ndef label(i): return LABELS[i] {more}", body="label(1)"
    )
    program = (
        "import sys\nfrom data_stack.factories.code_digest import code_digest\n"
        "for cell in sys.argv[1:]:\n    exec(cell, globals())\n    print(code_digest(Factory()))"
    )
    variants = [("{1: 'a'}", ""), ("{1: 'b'}", ""), ("{1: 'a'}", "+ 'x'")]
    cells = [cell.replace("{labels}", labels).replace("{more}", more) for labels, more in variants]

    def digests(*cells: str) -> list[str]:
        return run_python("-c", program, *cells)[0].split()

    first = digests(*cells)

    assert digests(cells[0]) == first[:1]
    assert len(set(first)) == 3


EVERYTHING = {"made_one", "made_two", "__init__", "inner", "other"}
#: Prints which of the files beside it count for the class of the cell in its argument.
NOTEBOOK = """
import os, sys
from pathlib import Path
sys.path.insert(0, os.getcwd())
from data_stack.factories.code_digest import code_digest
exec(sys.argv[1], globals())

def changed_to(path, text):
    path.write_text(text)
    os.utime(path, (0, 0))  # as edited before this process began
    return code_digest(Factory())

first = code_digest(Factory())
assert code_digest(Factory()) == first
for path in sorted(Path().rglob("*.py")):
    text = path.read_text()
    if changed_to(path, text + "\\nE = 5") != first:
        print(path.stem)
    assert changed_to(path, text) == first
"""


@pytest.mark.parametrize(
    ("imports", "body", "counts"),
    [
        ("import made_one", "made_one.A", {"made_one", "made_two"}),
        ("from made_one import label", "label()", {"made_one", "made_two"}),
        ("import made_one\ndef used(): return made_one.A", "used()", {"made_one", "made_two"}),
        ("import made_one", "pass", set()),
        ("", "import made_one", {"made_one", "made_two"}),
        ("", "from made_three import inner", {"__init__", "inner"}),
        (
            "import importlib",
            "importlib.import_module('made_one')",
            EVERYTHING,
        ),
    ],
    ids=["module", "function", "in a function", "unused", "late", "package", "by name"],
)
def test_files_beside_a_notebook_count_if_it_imports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str, body: str, counts: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "made_one": "import made_two\nA = 1\ndef label(): return made_two.B",
        "made_two": "B = 2",
        "made_three/__init__": "",
        "made_three/inner": "C = 3",
        "other": "D = 4",
    }
    for name, text in files.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (0, 0))
    cell = textwrap.dedent(FACTORY).format(imports=imports, body=body)

    counted, _ = run_python("-c", NOTEBOOK, cell)

    assert set(counted.split()) == counts


def test_a_module_of_another_version_in_another_process_is_named(
    write: Write, tmp_path: Path
) -> None:
    write(made_one=FACTORY.format(imports="import made_two", body="pass"), made_two="A = 1")
    digests = module_digests(importlib.import_module("made_one").Factory(None))

    assert set(digests) == {"made_one"}
    assert find_changed_module(digests) is None
    write(made_two="A = 2")
    assert find_changed_module(digests) == "made_one"
    for name in ("made_one", "made_two"):
        (tmp_path / f"{name}.py").unlink()
    _forget_modules(set(sys.modules) - {"made_one", "made_two"})
    assert find_changed_module(digests) is None
