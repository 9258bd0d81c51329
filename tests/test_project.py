"""Rules of the project that no linter knows: what must never stand in the package."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: data_stack/testing is tests: it asserts, and sends things through pickle to see that they
#: survive.
MODULES = sorted(
    path
    for path in [*ROOT.glob("data_stack/**/*.py"), *ROOT.glob("plugins/*/data_stack_*/**/*.py")]
    if "testing" not in path.parts
)

#: What could run code that comes from a dataset, by the name it is called by.
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads",
    "shelve.open", "yaml.load", "yaml.unsafe_load", "dill.load", "joblib.load", "cloudpickle.load", "cloudpickle.loads",
    "tarfile.TarFile.extractall", "shutil.unpack_archive", "pandas.read_pickle",
}  # fmt: skip
FORBIDDEN_METHODS = {"extractall"}

#: Processes that a program has started itself, of its own code, may send each other what they like.
BETWEEN_OWN_PROCESSES = {ROOT / "data_stack/processes/pickling.py": ["pickle.loads"]}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe_calls(tree: ast.AST) -> list[str]:
    """What a module must not call, and ``assert`` with its line."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found.append(f"assert in line {node.lineno}")
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if name in FORBIDDEN_CALLS or name.rpartition(".")[2] in FORBIDDEN_METHODS:
            found.append(name)
        pickles = keywords.get("allow_pickle")
        if pickles is not None and not (
            isinstance(pickles, ast.Constant) and pickles.value is False
        ):
            found.append(f"{name}(allow_pickle)")
        if name in ("np.load", "numpy.load") and pickles is None:
            found.append(f"{name} without allow_pickle=False")
        weights_only = keywords.get("weights_only")
        if name == "torch.load" and not (
            isinstance(weights_only, ast.Constant) and weights_only.value is True
        ):
            found.append("torch.load without weights_only=True")
        verify = keywords.get("verify")
        if isinstance(verify, ast.Constant) and verify.value is False:
            found.append(f"{name}(verify=False)")
    return found


def test_no_module_runs_code_from_data_or_asserts() -> None:
    for module in MODULES:
        assert unsafe_calls(
            ast.parse(module.read_text(encoding="utf-8"))
        ) == BETWEEN_OWN_PROCESSES.get(module, []), module


def test_no_file_names_a_machine_a_registry_or_another_package() -> None:
    words = [
        "/wo" + "rk/",
        "/ro" + "ot/",
        "/fa" + "rm/",
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "registry.npm" + "js.org",
    ]
    words += [
        f"pip install {quote}data" + "stack" for quote in ("", '"', "'")
    ]  # the original, by the name of ours
    skipped = (".venv", ".git", "build", "__pycache__", "node_modules")
    texts = []
    for folder, names, files in os.walk(ROOT):
        names[:] = [
            name
            for name in names
            if not name.startswith(skipped) and not name.endswith(".egg-info")
        ]
        texts += [
            Path(folder, file)
            for file in files
            if file.endswith((".py", ".md", ".toml", ".txt", ".yaml", ".ipynb", "Makefile"))
        ]

    assert texts
    assert [
        (path.name, word)
        for path in texts
        for word in words
        if word in path.read_text(encoding="utf-8", errors="replace")
    ] == []


#: Files ``a/b.py``, and folders ``a/b/``.
NAMED_PATH = re.compile(
    r"(?:[A-Za-z_0-9]+/)*[A-Za-z_0-9]+\.(?:pyi?|md|svg)\b|(?:[a-z_0-9]+/)+(?![A-Za-z*_0-9.])"
)


@pytest.mark.parametrize("name_of_page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_path_that_a_page_on_the_code_names_exists(name_of_page: str) -> None:
    page = (ROOT / name_of_page).read_text(encoding="utf-8")
    page_without_urls = re.sub(r"https?://\S+|\.venv\S*", "", page)
    folders = [ROOT, ROOT / "docs"]
    for top in (ROOT / "data_stack", ROOT / "tests"):
        folders += [top, *(path for path in top.rglob("*") if path.is_dir())]

    named = set(NAMED_PATH.findall(page_without_urls))

    assert len(named) > 40
    missing = [
        name for name in sorted(named) if not any((folder / name).exists() for folder in folders)
    ]
    assert [name for name in missing if name != "dist/"] == []  # make dist makes it


def test_every_table_to_which_contributors_add_a_line_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    mentions = re.findall(r"((?:`[A-Z_]+`(?:, | and )?)+) (?:of|in) `([\w/]+\.py)`", page)
    tables = [(table, path) for names, path in mentions for table in re.findall(r"[A-Z_]+", names)]

    missing = []
    for table, path in tables:
        files = [
            folder / path for folder in (ROOT, ROOT / "data_stack", ROOT / "tests/dataset/iterator")
        ]
        texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
        if not any(re.search(rf"^{table}\b.* = ", text, re.MULTILINE) for text in texts):
            missing.append((table, path))

    assert len(tables) > 5
    assert missing == []


def test_each_tool_says_why_it_is_ours() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tools = re.findall(r"^\| `tools/(\w+\.py)` \|", page, re.MULTILINE)

    assert sorted(tools) == sorted(path.name for path in (ROOT / "tools").glob("*.py"))
