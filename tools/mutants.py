"""Mutation testing: changes the code that protects data, one small change at a time, and lists the
changes that no test notices.

make mutants                            each module below; the tool stops after MINUTES (60) and goes on when it is called again
make mutants ONLY=integrity SAMPLE=0    one module whole; SAMPLE is how many mutants of each module are drawn (40)

Each module has a pytest process. It runs the module's test files once and records which test
reaches which line. Then it forks for each mutant: the fork swaps the code of the changed function
and runs the tests that reach the line, up to the first that fails or ten times their usual time.
Outcomes are kept in .mutants.json: a mutant runs again if its function, a test file, a conftest.py
or a helper of tests changes, first with the test that failed before. Programs that a test starts
run the code as it is, so lines that only they reach are "not reached". Strings, messages, logging
and code outside functions are not changed.

Mutants of code that deletes files may delete others than the tests expect: run it where nothing is
lost, in a container.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import fcntl
import gc
import hashlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".mutants.json"
N_AT_ONCE = 2

_IO, _CONNECTORS = "tests/io", "tests/io/storage_connectors"
_RECORDS = "tests/formats/records/test_record"
_FACTORIES = ["tests/factories", "tests/io/test_resources.py", "tests/engines"]
_CONTRACTS = f"{_CONNECTORS}/test_contracts.py"
_FILE = [f"{_CONNECTORS}/test_file.py", f"{_CONTRACTS}::TestStoresThatFreeLeases"]
_OTHERS_OF_WRITER = [
    f"{_IO}/retriever/test_http_retrieval.py",
    f"{_CONTRACTS}::TestStoresOfOneProcess",
]
_OTHERS_OF_WRITER += [f"{_CONTRACTS}::test_creating_works_in_a_store_that_does_not_rewind"]
_OTHERS_OF_WRITER += [
    f"{_CONNECTORS}/test_object_store.py::test_several_parts_are_read_whole_and_in_ranges"
]
_OTHERS_OF_RECORDS = [
    "tests/formats/records/test_sharded_records.py",
    "tests/formats/records/test_granular_records.py",
]
_OTHERS_OF_RECORDS += [
    "tests/formats/test_maps_of_decoded_samples.py",
    "tests/formats/test_windows_of_rows.py",
]
_OTHERS_OF_RECORDS += [
    "tests/loader/test_loader_remote.py",
    "tests/formats/test_request_limit.py::TestRecords",
]
_CONTENTS = "tests/formats/test_source_contents.py::test_"
_OTHERS_OF_RECORDS += [f"{_CONTENTS}arguments_of_a_source_belong_to_its_fingerprint"]
_OTHERS_OF_RECORDS += [f"{_CONTENTS}the_fingerprint_of_a_source_is_that_of_its_content[records]"]
_LOADER = "tests/loader/test_loader"
_OF_ORDERS = [f"{_LOADER}_orders.py", f"{_LOADER}_laws.py", f"{_LOADER}_remote.py"]
_OF_SESSION = [
    f"{_LOADER}_processes.py::test_any_exception_of_a_transform_arrives_and_the_workers_stay"
]
_OF_SESSION += [
    f"{_LOADER}_distributed.py::test_the_innermost_launcher_gives_the_shard_or_an_error"
]
_OTHER_OF_REMOVAL = "tests/plugins/test_plugin_datasets.py::test_names_reach_descriptions_inventories_copies_and_removals"
#: Servers would take longer to start than the mutants of a module to run, and tasks of processes
#: run the code as it is.
_PYTEST = ["-q", "-s", "-p", "no:cacheprovider", "--timeout=30", "--hypothesis-seed=0"]
_SKIPPED = re.compile(
    r"(?i:mongodb|sftp|into_a_bucket|TestProcessEngine|refused_at_any_call)|S3|(?<![a-z])s3"
)  # not "options3"
#: Where tests import helpers from, as in pyproject.toml.
_HELPERS = "tests/support", "tests/faults/kit", "tests/fuzz/kit"
#: Module and its test files, what protects stored data first.
TARGETS: dict[str, list[str]] = {
    "io/integrity": [f"{_IO}/test_integrity.py", f"{_IO}/test_resources.py", _FILE[0]],
    "factories/adoption": _FACTORIES,
    "factories/journal": _FACTORIES,
    "factories/manifest": _FACTORIES,
    "factories/new_manifest": _FACTORIES,
    "factories/opening_checks": _FACTORIES,
    "factories/preparation": _FACTORIES,
    "factories/preprocess_run": _FACTORIES,
    "stores/copies": [f"{_IO}/test_copying.py", "tests/stores/test_removal.py"],
    "stores/removal": ["tests/stores", "tests/cli/test_stores.py", _OTHER_OF_REMOVAL],
    "stores/verification": ["tests/stores", "tests/cli/test_verifying.py"],
    "io/storage_connectors/file/connector": _FILE,
    "io/storage_connectors/file/publishing": _FILE,
    "io/storage_connectors/partial": [*_FILE, *_OTHERS_OF_WRITER],
    "io/storage_connectors/unfinished": _FILE,
    "io/storage_connectors/writer": [*_FILE, *_OTHERS_OF_WRITER],
    "formats/records/writer": [f"{_RECORDS}_writer.py", *_OTHERS_OF_RECORDS[:2]],
    "formats/records/reader": [
        f"{_RECORDS}_reader.py",
        f"{_RECORDS}_reader_damage.py",
        *_OTHERS_OF_RECORDS,
    ],
    "loader/plan": [
        f"{_LOADER}_{part}.py" for part in ("plan", "iteration", "orders", "state", "distributed")
    ],
    "reproduce/lock": ["tests/reproduce/test_lock.py"],
    "reproduce/lock_differences": ["tests/reproduce/test_lock.py"],
    "reproduce/lock_file": ["tests/reproduce/test_lock.py"],
    "loader/orders/block_shuffled": _OF_ORDERS,
    "loader/orders/bucketed": _OF_ORDERS,
    "loader/orders/drawn_blocks": _OF_ORDERS,
    "loader/orders/lanes": _OF_ORDERS,
    "loader/schedule": [*_OF_ORDERS, f"{_LOADER}_iteration.py"],
    "loader/place": [f"{_LOADER}_{part}.py" for part in ("state", "progress", "laws")],
    "loader/saved_states": [f"{_LOADER}_{part}.py" for part in ("state", "progress", "laws")],
    "loader/state": [f"{_LOADER}_{part}.py" for part in ("state", "progress", "laws")],
    "loader/progress": [
        f"{_LOADER}_{part}.py" for part in ("progress", "state", "laws", "iteration")
    ],
    "loader/session": [
        *(f"{_LOADER}_{part}.py" for part in ("state", "inline", "iteration", "threads", "laws")),
        *_OF_SESSION,
    ],
    "browse/server/application": ["tests/browse/test_guard.py", "tests/browse/test_browser_api.py"],
    "browse/server/connection": ["tests/browse/test_guard.py"],
    "browse/server/guard": ["tests/browse/test_guard.py"],
}

# ------------------------------------------------------------------ mutants

#: Operators that take each other's place.
_PAIRS = re.findall(
    r"\w+",
    "Lt LtE Gt GtE Eq NotEq Is IsNot In NotIn Add Sub Mult FloorDiv LShift RShift BitAnd BitOr And Or",
)
_OTHERS = {name: _PAIRS[i ^ 1] for i, name in enumerate(_PAIRS)} | {"Div": "Mult", "Mod": "Add"}


@dataclass(frozen=True)
class Mutant:
    """A changed function: its name and first line as Python counts it, the lines that a test must
    reach, the code, the change.
    """

    function: tuple[str, int]
    lines: range
    code: ast.stmt
    diff: str
    key: str


def _edits(node: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The changes of a node: an object or list, the attribute or position, the new value."""
    kind = type(node)
    if kind is ast.Compare:
        yield from ((node.ops, i, _other(each)) for i, each in enumerate(node.ops))
    if kind in (ast.BinOp, ast.BoolOp, ast.AugAssign) and type(node.op).__name__ in _OTHERS:
        yield node, "op", _other(node.op)
    if kind in (ast.If, ast.While, ast.IfExp):
        yield node, "test", ast.UnaryOp(ast.Not(), node.test)
    if kind is ast.comprehension:
        yield from ((node.ifs, i, ast.Constant(True)) for i in range(len(node.ifs)))
    if kind is ast.Constant and isinstance(node.value, int):
        others = (
            [not node.value] if isinstance(node.value, bool) else [node.value + 1, node.value - 1]
        )
        yield from ((node, "value", each) for each in others)
    if kind is ast.Return and not isinstance(node.value, (ast.Constant, type(None))):
        yield node, "value", ast.Constant(None)
    if kind is ast.Slice:
        bounds = [
            name
            for name in ("lower", "upper")
            if not isinstance(getattr(node, name), (ast.Constant, type(None)))
        ]
        yield from (
            (node, name, ast.BinOp(getattr(node, name), ast.Add(), ast.Constant(1)))
            for name in bounds
        )
    if kind is ast.ExceptHandler and node.type is not None:
        yield node, "type", ast.Tuple([], ast.Load())
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None) if kind not in (ast.Lambda, ast.IfExp) else None
        removable = [(i, each) for i, each in enumerate(statements or []) if _is_removable(each)]
        yield from ((statements, i, ast.copy_location(ast.Pass(), each)) for i, each in removable)


def _other(operator: ast.AST) -> Any:
    return getattr(ast, _OTHERS[type(operator).__name__])()


def _is_log(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger.")


def _is_removable(statement: Any) -> bool:
    """Whether a statement can go: a call, a raise, a change of an attribute or item."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and not _is_log(statement.value)
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    changes = any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets)
    return isinstance(statement, (ast.Raise, ast.AugAssign, ast.Break, ast.Delete)) or changes


def _lines(statement: Any) -> range:
    """The lines of a statement, without those of the statements in it."""
    body = getattr(statement, "body", None)
    end: int = body[0].lineno if isinstance(body, list) else statement.end_lineno + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _code_nodes(node: ast.AST, lines: range = range(0)) -> Iterator[tuple[ast.AST, range]]:
    """What is run of a function, in a fixed order, with the lines of its statement; no annotations,
    messages and logging.
    """
    lines = _lines(node) if isinstance(node, (ast.stmt, ast.ExceptHandler)) else lines
    yield node, lines
    if isinstance(node, (ast.Raise, ast.JoinedStr)) or _is_log(node):
        return
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "args") or isinstance(
            node, ast.Call
        ):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code_nodes(child, lines)


def find_mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    places = [(None, each) for each in tree.body] + [
        (holder, each) for holder in classes for each in holder.body
    ]
    for holder, function in places:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        original = ast.unparse(function)
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        for number, (node, lines) in enumerate(_code_nodes(function)):
            for edit in range(len(list(_edits(node)))):
                changed = copy.deepcopy(function)
                owner, name, value = list(_edits(list(_code_nodes(changed))[number][0]))[edit]
                owner.__setitem__(name, value) if isinstance(owner, list) else setattr(
                    owner, name, value
                )
                changes = difflib.unified_diff(
                    original.splitlines(), ast.unparse(changed).splitlines(), n=0, lineterm=""
                )
                diff = "\n".join(
                    each for each in changes if not each.startswith(("---", "+++", "@@"))
                )
                key = hashlib.sha256(f"{path} {original} {number} {edit}".encode()).hexdigest()[:24]
                code = ast.ClassDef(holder.name, [], [], [changed], []) if holder else changed
                reached = _lines(value) if isinstance(value, ast.Pass) else lines
                yield Mutant((function.name, first), reached, code, diff, key)


def _swap(mutant: Mutant, path: Path, functions: Sequence[types.FunctionType]) -> None:
    """Give the functions the code of the mutant."""
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    pending: list[Any] = [
        compile(ast.fix_missing_locations(ast.Module([future, mutant.code], [])), str(path), "exec")
    ]
    for code in pending:
        pending += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    (found,) = [code for code in pending if (code.co_name, code.co_firstlineno) == mutant.function]
    for each in functions:
        each.__code__ = found


# ------------------------------------------------------------------ the tests of one module


class Runner:
    """A pytest plugin that runs a module's tests once, then, for each mutant, those that reach
    it.
    """

    def __init__(
        self, module: str, mutants: Sequence[Mutant], tests: str, deadline: float, folder: Path
    ) -> None:
        self.module, self.path, self.mutants, self.tests = module, _path(module), mutants, tests
        self.deadline, self.folder = deadline, folder
        self.kept, self.outcomes = _kept(), dict[str, Any]()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out what takes a server."""
        items[:] = [item for item in items if not _SKIPPED.search(item.nodeid)]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replaces pytest's own loop."""
        # Tears a test down, but not the servers of the session, which the forks share.
        self.end: Any = types.SimpleNamespace(listchain=lambda: [session])
        measured = coverage.Coverage(data_file=None, include=[str(self.path)], config_file=False)
        measured.start()
        for item in session.items:
            measured.switch_context(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=self.end)
        measured.stop()
        self.contexts = measured.get_data().contexts_by_lineno(str(self.path))
        # A fork that changes nothing tells the time of each test, and which tests do not pass in a
        # fork.
        pid = self._fork(session.items, stop=False)
        while not _wait({pid: time.time() + 300}):
            pass
        lines = [line.split(" ", 2) for line in _text(self.folder / f"{pid}.times").splitlines()]
        self.usual = {name: float(seconds) for seconds, failed, name in lines if failed == "0"}
        self.items = {item.nodeid: item for item in session.items}
        print("tests that pass in a fork:", len(self.usual), "of", len(self.items))
        self.functions: dict[tuple[str, int], list[types.FunctionType]] = defaultdict(list)
        # conftest.py and a test freeze objects, which hides them from get_objects().
        gc.unfreeze()
        for each in gc.get_objects():
            if type(each) is types.FunctionType and each.__code__.co_filename == str(self.path):
                self.functions[each.__code__.co_name, each.__code__.co_firstlineno].append(each)
        self._run_mutants(list(reversed(self.mutants)))
        return True

    def _run_mutants(self, mutants: list[Mutant]) -> None:
        running: dict[int, tuple[Mutant, float]] = {}
        killers: Counter[str] = Counter()
        reached: set[str] = set()
        while running or (mutants and time.time() < self.deadline):
            if mutants and len(running) < N_AT_ONCE and time.time() < self.deadline:
                mutant = mutants.pop()
                tests = {
                    name
                    for line in mutant.lines
                    for name in self.contexts.get(line, [])
                    if name in self.usual
                }
                reached |= tests
                if tests and self.functions[mutant.function]:
                    last = self.kept.get(mutant.key, ("",))[0]
                    ordered = sorted(
                        tests,
                        key=lambda name: (
                            not last.endswith(name),
                            -killers[name],
                            self.usual[name],
                        ),
                    )
                    limit = time.time() + 5 + 10 * sum(self.usual[name] for name in tests)
                    running[self._fork([self.items[name] for name in ordered], mutant)] = (
                        mutant,
                        limit,
                    )
                else:
                    self.outcomes[mutant.key] = "not reached", self.tests
            for pid, status in _wait({pid: limit for pid, (_, limit) in running.items()}):
                killer = _text(self.folder / f"{pid}.failed")
                killers.update([killer] if killer else [])
                names = {0: "survived", 256: f"killed by {killer}", 512: "not reached"}
                outcome = names.get(status, "killed by its time limit or a crash")
                self.outcomes[running.pop(pid)[0].key] = outcome, self.tests
                _keep(self.outcomes)
        if not mutants:
            self.outcomes[f"idle {self.module}"] = sorted(reached - set(killers))
        _keep(self.outcomes)

    def _fork(
        self, items: Sequence[pytest.Item], mutant: Mutant | None = None, stop: bool = True
    ) -> int:
        """Run tests in a fork: it exits with 1 if one fails, with 2 if the mutant has no place."""
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 2
        with contextlib.suppress(BaseException):
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if mutant:
                _swap(mutant, self.path, self.functions[mutant.function])
            code = 3
            code = self._run(items, stop)
        os._exit(code)

    def _run(self, items: Sequence[pytest.Item], stop: bool) -> int:
        with (self.folder / f"{os.getpid()}.times").open("a", buffering=1) as times:
            for item in items:
                item.session.testsfailed, started = 0, time.time()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=self.end)
                times.write(f"{time.time() - started} {item.session.testsfailed} {item.nodeid}\n")
                if item.session.testsfailed and stop:
                    (self.folder / f"{os.getpid()}.failed").write_text(item.nodeid)
                    return 1
        return 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _path(module: str) -> Path:
    return ROOT / f"data_stack/{module}.py"


def _kept() -> dict[str, Any]:
    """By mutant, its outcome and the digest of the tests that it is of; the tests of a module that
    killed nothing.
    """
    kept: dict[str, Any] = json.loads(_text(KEPT) or "{}")
    return kept


def _keep(outcomes: dict[str, Any]) -> None:
    with KEPT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # of two runs at once, the second keeps what the first has added
        new = KEPT.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(_kept() | outcomes))
        new.replace(KEPT)


def _wait(limits: dict[int, float]) -> list[tuple[int, int]]:
    """The forks that ended, with their exit status; those above their time are killed, and what
    each left running.
    """
    time.sleep(0.005)
    ended = []
    for pid, limit in limits.items():
        if time.time() > limit:
            os.kill(pid, signal.SIGKILL)
        found, status = os.waitpid(pid, 0 if time.time() > limit else os.WNOHANG)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            ended.append((pid, status))
    return ended


# ------------------------------------------------------------------ all modules


def _test_files(module: str) -> list[Path]:
    """The test files of a module, the conftest.py files that apply to them, and the helpers that
    they import.
    """
    helpers = {path.stem: path for folder in _HELPERS for path in (ROOT / folder).rglob("*.py")}
    targets = [ROOT / name.partition("::")[0] for name in TARGETS[module]]
    paths = [each for path in targets for each in [path, *path.rglob("*.py")]]
    paths += [
        folder / "conftest.py"
        for path in targets
        for folder in path.parents
        if folder.is_relative_to(ROOT)
    ]
    files: set[Path] = set()
    while paths:
        path = paths.pop()
        if path.is_file() and path not in files:
            files.add(path)
            imported = re.findall(
                r"^\s*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
            )
            paths += [helpers[name] for name in imported if name in helpers]
    return sorted(files)


def _select(module: str, sample: int) -> tuple[list[Mutant], int, str]:
    """The mutants of a module that are tried, how many it has, and the digest of its tests."""
    tests = hashlib.sha256(b"".join(path.read_bytes() for path in _test_files(module))).hexdigest()[
        :24
    ]
    mutants = list(find_mutants(_path(module)))
    n_drawn = min(sample or len(mutants), len(mutants))
    drawn = random.Random(module).sample(mutants, n_drawn)  # noqa: S311  # the same at each call
    return sorted(drawn, key=lambda mutant: mutant.lines.start), len(mutants), tests


def _run_in_fork(
    module: str, mutants: Sequence[Mutant], tests: str, deadline: float
) -> dict[str, str]:
    """The outcomes that are known afterwards: each module has a process of its own, as its tests
    change the state of theirs.
    """
    known = {key: each[0] for key, each in _kept().items() if each[1:] == [tests]}
    todo = [mutant for mutant in mutants if mutant.key not in known]
    if todo and time.time() < deadline:
        pid = os.fork()
        if not pid:
            with tempfile.TemporaryDirectory() as folder:
                runner = Runner(module, todo, tests, deadline, Path(folder))
                arguments = [*_PYTEST, f"--basetemp={folder}/tests", *TARGETS[module]]
                pytest.main(arguments, plugins=[runner])
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        known = {key: each[0] for key, each in _kept().items() if each[1:] == [tests]}
    return known


def main(arguments: Sequence[str]) -> int:
    """Run the mutants and print the table, the survivors and the idle tests."""
    parser = argparse.ArgumentParser(description="Mutation testing of what protects data.")
    parser.add_argument(
        "--minutes", type=float, default=60, help="time limit; the next run goes on"
    )
    parser.add_argument("--only", default="", help="regular expression for the modules")
    parser.add_argument("--sample", type=int, default=40, help="mutants of each module, 0 for all")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    deadline = time.time() + 60 * options.minutes
    rows, details = [], []
    for module in (each for each in TARGETS if re.search(options.only, each)):
        mutants, n_all, tests = _select(module, options.sample)
        kept = _run_in_fork(module, mutants, tests, deadline)
        found = Counter(kept.get(mutant.key, "not run").split(" by ")[0] for mutant in mutants)
        rate = found["killed"] / max(found["killed"] + found["survived"], 1)
        counts = " | ".join(
            str(found[each]) for each in ("killed", "survived", "not reached", "not run")
        )
        rows.append(f"| {module} | {len(mutants)} of {n_all} | {counts} | {rate:.0%} |")
        for mutant in mutants:
            if kept.get(mutant.key) in ("survived", "not reached"):
                place = f"data_stack/{module}.py:{mutant.lines.start}: {mutant.function[0]}: {kept[mutant.key]}"
                details.append(f"{place}\n{mutant.diff}")
        idle = _kept().get(f"idle {module}", ())
        details += [f"first to fail for no mutant of {module}: {name}" for name in idle]
    print(*details, sep="\n")
    print(
        "\n| module | mutants tried | killed | survived | not reached | not run | killed of those reached |"
    )
    print("|---|---|---|---|---|---|---|", *rows, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
