"""Preparations in several processes, which must have the same code."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import runpy
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sizes import sized

from data_stack.factories.code_digest import code_digest, find_changed_module, module_digests

PROGRAM = Path(__file__).parent / "programs" / "demo_dataset.py"
NOT_READY, READY = 0, 3
#: Each process of the demo is a fork of one that has imported data_stack.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["data_stack.factories.declarative", "data_stack.io.work"])


def run_program(arguments: list[str], environment: dict[str, str], output: Path) -> None:
    """The body of a process of the demo."""
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


class Demo:
    """The demo dataset in one store, worked on by processes of their own."""

    def __init__(self, store: Path, sources: Path) -> None:
        self.store, self.sources, self.n_started = store, sources, 0

    def start(self, action: str, **environment: str) -> tuple[Any, Path]:
        self.n_started += 1
        output = self.store.with_name(f"{self.store.name}-{self.n_started}.out")
        arguments = [str(PROGRAM), action, str(self.store), str(self.sources)]
        process = FORKS.Process(target=run_program, args=(arguments, environment, output))
        process.start()
        return process, output

    def run(self, action: str, **environment: str) -> tuple[int, str]:
        return self.finish(*self.start(action, **environment))

    @staticmethod
    def finish(process: Any, output: Path) -> tuple[int, str]:
        process.join(120)
        return process.exitcode, output.read_text()

    def is_right_or_not_ready(self) -> bool:
        return self.run("check")[0] in (NOT_READY, READY)

    def is_right(self) -> bool:
        return self.run("check")[0] == READY


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for first, split in ((0, "train"), (10_000, "test")):
        folder.joinpath(f"{split}.txt").write_text("".join(f"{first + i}\n" for i in range(2_000)))
    return folder


@pytest.fixture
def demo(tmp_path: Path, sources: Path) -> Demo:
    return Demo(tmp_path / "store", sources)


def wait_for(path: Path, process: Any) -> None:
    while not path.exists():
        assert process.is_alive()
        time.sleep(0.01)


def test_steps_done_before_a_crash_are_not_repeated(demo: Demo, tmp_path: Path) -> None:
    log, journal = tmp_path / "steps.log", demo.store / "demo/1.0.0/journal.json"
    process, _ = demo.start("prepare", DEMO_LOG=str(log), DEMO_PAUSE="1")
    wait_for(journal, process)
    while "preprocessed/train" not in journal.read_text():
        time.sleep(0.01)
    process.kill()  # in the pause of the second step
    process.join()

    assert demo.run("prepare", DEMO_LOG=str(log))[0] == 0

    assert [line.split()[1] for line in log.read_text().splitlines()] == ["train", "test"]
    assert demo.is_right()


def test_processes_that_start_at_once_do_the_work_once(demo: Demo, tmp_path: Path) -> None:
    log, n_processes = tmp_path / "steps.log", sized(3, 8)

    started = [demo.start("prepare", DEMO_LOG=str(log), DEMO_PAUSE="0.2") for _ in range(n_processes)]
    outputs = [demo.finish(*each)[1].strip() for each in started]

    assert sorted(outputs) == ["prepared"] + ["ready"] * (n_processes - 1)
    assert [line.split()[1] for line in log.read_text().splitlines()] == ["train", "test"]
    assert demo.is_right()
    assert demo.run("left") == (0, "\n")


def test_processes_without_leases_and_with_different_results_never_mix_them(demo: Demo) -> None:
    environment = {"DEMO_NO_LEASE": "1", "DEMO_RANDOM": "1", "DEMO_PAUSE": "0.05"}

    started = [demo.start("prepare", **environment) for _ in range(sized(3, 8))]
    while any(process.is_alive() for process, _ in started):
        assert demo.is_right_or_not_ready()
    ends = [demo.finish(*each) for each in started]

    assert all(code == 0 for code, _ in ends), ends
    assert demo.is_right()


def test_a_waiting_process_takes_over_when_the_holder_of_the_lease_is_killed(demo: Demo) -> None:
    holder, _ = demo.start("prepare", DEMO_PAUSE="30")
    wait_for(demo.store / "demo/1.0.0/journal.json", holder)
    waiting, output = demo.start("prepare")
    time.sleep(0.5)
    assert waiting.is_alive()

    holder.kill()

    assert demo.finish(waiting, output) == (0, "prepared\n")
    assert demo.is_right()


FACTORY = """
    from data_stack.factories.declarative import DatasetCard, DatasetFactory
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


def digest_of(module: str, *, set_on_class: dict[str, Any] | None = None, **set_on_object: Any) -> str:
    kind = importlib.import_module(module).Factory
    for name, value in (set_on_class or {}).items():
        setattr(kind, name, value)
    factory = kind(None)
    for name, value in set_on_object.items():
        setattr(factory, name, value)
    return code_digest(factory)


def test_all_of_its_own_package_counts_and_other_packages_do_not(write: Write) -> None:
    package = {
        "made_pkg____init__": "",
        "made_pkg__sub____init__": "",
        "made_pkg__plugin": FACTORY.format(imports="from .sub import labels\n    import made_other", body="pass"),
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


def test_what_cannot_be_compared_is_like_nothing_else_and_so_is_what_was_edited_since(
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


def test_a_class_of_a_notebook_is_told_by_its_code_and_by_the_values_it_uses() -> None:
    cell = textwrap.dedent(FACTORY).format(imports="LABELS = {labels}\ndef label(i): return LABELS[i] {more}", body="label(1)")
    program = (
        "import sys\nfrom data_stack.factories.code_digest import code_digest\n"
        "for cell in sys.argv[1:]:\n    exec(cell, globals())\n    print(code_digest(Factory()))"
    )
    variants = [("{1: 'a'}", ""), ("{1: 'b'}", ""), ("{1: 'a'}", "+ 'x'")]
    cells = [cell.replace("{labels}", labels).replace("{more}", more) for labels, more in variants]

    def digests(*cells: str) -> list[str]:
        done = subprocess.run([sys.executable, "-c", program, *cells], check=True, capture_output=True, text=True)
        return done.stdout.split()

    first = digests(*cells)

    assert digests(cells[0]) == first[:1]
    assert len(set(first)) == 3


def test_a_module_that_another_process_has_in_another_version_is_named(write: Write, tmp_path: Path) -> None:
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
