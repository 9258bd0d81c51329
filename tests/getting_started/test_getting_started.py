"""What newcomers run first: the quickstart, the notebook, and the code of the README and the pages
in docs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import datasets
import nbformat
import numpy as np
import pytest
import run_notebooks
from catalogue_servers import describe, feature, zenodo
from distributions import write_distribution
from hub_server import HubServer, Repo, parquet_of
from left_out import needs_torch
from PIL import Image
from process_harness import WARNINGS_ARE_ERRORS, run_python
from s3_server import S3Server
from web_server import ScriptedServer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own modules
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder and an empty home."""
    for folder in ("work", "home"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "store"))
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")  # none of it needs a network
    return tmp_path / "work"


def python(*arguments: object) -> tuple[str, str]:
    """What Python writes to standard output and error; warnings and exit codes but 0 are errors."""
    return run_python(
        *WARNINGS_ARE_ERRORS, *arguments, timeout_seconds=200, PYTHONIOENCODING="utf-8"
    )


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of one language in a Markdown page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def listing(folder: Path) -> list[str]:
    """All files and folders in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def execute(name: str, folder: Path) -> list[Any]:
    """Run a notebook in a folder, where it leaves nothing; return its outputs."""
    notebook, before = nbformat.read(ROOT / "getting_started" / name, as_version=4), listing(folder)  # type: ignore[no-untyped-call]
    kept = {cell.id for cell in notebook.cells if cell.get("outputs")}

    run_notebooks.execute(notebook, folder)

    assert listing(folder) == before
    assert kept <= {cell.id for cell in notebook.cells if cell.get("outputs")}, "make notebooks"
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_the_quickstart_reports_real_data_and_draws_it(home: Path) -> None:
    said, errors = python(ROOT / "getting_started" / "quickstart.py")

    for fact in ("1,437", "360", DIGITS_SHA256, "57.5 kB", "CC-BY-4.0", "retrieve", "open"):
        assert fact in said
    assert errors == ""
    with Image.open(home / "quickstart.png") as sheet:
        assert (sheet.format, 800 < sheet.width < 1200, sheet.height > 1000) == ("PNG", True, True)
    assert listing(home.parent / "home") == []
    assert sorted(path.name for path in home.iterdir()) == [".quickstart", "quickstart.png"]


#: What the outputs of a notebook say.
NOTEBOOKS = {
    "getting_started": ("image/png", "1,437"),
    "02_stacking": ("(True, False)", "(True, True)", "CC-BY-4.0"),
    "03_storage": ("'digits/1.0.0/manifest.json': 'copied'",),
    "04_records": ("(64, 256, 3)", "image/png", "image.bag"),  # the flipped bit is named
    # the same weights after as many steps, and the remaining samples on three ranks
    "05_training": ("(True, 108)", "([576, 574, 574], True)", "another dataset"),
    # each row twice in two epochs, an interruption and two ranks later; sequences across row groups
    "08_parquet": ("(True, {2})", "(4960,"),
    # fingerprint, batches and weights of two processes, with the store restored in between
    "06_reproducible": (
        "(True, 3)",
        "points.txt: sent sha256",
        "points-plugin 1.1.0 made them here, points-plugin 1.0.0 then",
        "all samples are equal; libraries here: smoothing 2.0, then: smoothing 1.0",
    ),
    "09_ray": ("8 shards", "(32, 64)", "(800, 1.0)"),
    # damaged samples, how far each corpus was read, and the losses of a run that was killed
    "10_mixtures": ("DatasetFileCorruptError", "'web': 216", "([0, 0, 0, 0], 60, True)"),
}
TRAINED = ("03_storage", "05_training", "08_parquet")
SLOW_NOTEBOOKS = (*TRAINED, "02_stacking", "04_records", "06_reproducible", "09_ray", "10_mixtures")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full] if name in SLOW_NOTEBOOKS else [])
        for name in NOTEBOOKS
    ],
)
def test_a_notebook_runs_from_top_to_bottom(
    home: Path, name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "03_storage":
        monkeypatch.setenv("MONGODB_URI", request.getfixturevalue("mongodb_uri"))
    folder = home / "getting_started"
    folder.mkdir()
    (home / "tests").symlink_to(ROOT / "tests")  # as in a clone, beside the notebooks

    outputs = execute(f"{name}.ipynb", folder)

    said = json.dumps(outputs, ensure_ascii=False)
    assert [each for each in NOTEBOOKS[name] if each not in said] == []
    if name in TRAINED:
        assert float(re.findall(r'"text/plain": "([01]\.\d+)"', said)[-1]) > 0.8


FLOWERS = ["setosa", "virginica"]


def serve_hub(hub: HubServer) -> None:
    rng = np.random.default_rng(0)
    rows = {
        "image": [rng.integers(0, 256, (8, 8), np.uint8) for _ in range(12)],
        "label": [0, 1] * 6,
    }
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=2)}
    )
    hub.repos["ylecun/mnist"] = Repo()
    hub.repos["ylecun/mnist"].commit(
        {"data/train-00000-of-00001.parquet": parquet_of(rows, features)}
    )


def serve_openml(server: ScriptedServer) -> None:
    lines = [
        "@RELATION iris",
        "@ATTRIBUTE length REAL",
        f"@ATTRIBUTE class {{{','.join(FLOWERS)}}}",
        "@DATA",
    ]
    arff = "\n".join(lines + [f"{number}.5,{FLOWERS[number % 2]}" for number in range(12)])
    describe(
        server, 61, arff, [feature("length"), feature("class", *FLOWERS)], row_id_attribute=None
    )


@pytest.mark.full
def test_the_notebook_on_datasets_by_name_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch, server: ScriptedServer
) -> None:
    serve_openml(server)
    zenodo(server, 4924875, {"tiny.csv": b"x,y\n" + b"1,a\n2,b\n" * 6})
    monkeypatch.delenv("DATA_STACK_OFFLINE", raising=False)
    for name in ("OPENML_SERVER", "DOI_RESOLVER"):
        monkeypatch.setenv(name, server.origin)
    monkeypatch.setenv("TMPDIR", str(home.parent))
    with HubServer() as hub:
        serve_hub(hub)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        outputs = execute("07_any_dataset.ipynb", home)

    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    counts = [line.split(" ")[0] for line in printed.splitlines() if " samples: " in line]
    assert " ".join(counts) == "360 178 12 12 12 16 1437"
    assert "('setosa', 'virginica')" in printed


@pytest.mark.full
def test_the_code_of_the_readme_runs_as_it_stands(home: Path) -> None:
    (home / "readme.py").write_text("\n".join(blocks(README, "python")), encoding="utf-8")

    said, _ = python("readme.py")

    assert said.splitlines()[0] == "1437 (8, 8) 0"
    assert "dataset digits, train" in said


QUICK_PAGES = (
    "conversion",
    "records",
    "storage",
    "fast_reading",
    "loader",
    "parquet",
    "croissant",
    "reproducibility",
    "from_granular",
    "from_datastack",
)
#: They import torch, pandas, polars or datasets.
SLOW_PAGES = (
    "display",
    "exchange",
    "from_huggingface",
    "from_petastorm",
    "from_tfds",
    "from_torchvision",
    "language_models",
    "stacking",
)


@pytest.mark.full
@pytest.mark.parametrize("name", SLOW_PAGES)
def test_the_code_of_a_slow_page_runs_as_it_stands(home: Path, name: str) -> None:
    run_pages(home, [name])


#: They import torch, or need servers.
SLOW_HOW_TO = [
    f"how_to/{name}"
    for name in ("bucket", "cache", "many_gpus", "mongodb", "resume", "torch_dataset")
]
#: tests/clients runs them.
CLIENT_PAGES = [f"how_to/{name}" for name in ("accelerate", "keras", "lightning", "trainer")]
HOW_TO = sorted(
    {f"how_to/{path.stem}" for path in ROOT.glob("docs/how_to/*.md")}
    - {*SLOW_HOW_TO, *CLIENT_PAGES}
)
REFERENCE = sorted(
    {f"reference/{path.stem}" for path in ROOT.glob("docs/reference/*.md")} - {*SLOW_PAGES}
)


def run_pages(home: Path, names: Sequence[str], places: Mapping[str, str] | None = None) -> None:
    """Run the code of pages in one process, with other stores than theirs; of how-to pages also
    their ``data-stack`` commands.
    """
    files = [f"the_{name.replace('/', '_')}.py" for name in names]
    for name, file in zip(names, files, strict=True):
        program = (
            "import os, shlex\nfrom data_stack.cli.main import main\n" if name in HOW_TO else ""
        )
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for code in re.findall(
            r"^(?:```python\n(?s:.*?)^```|\$ data-stack .*)", page, re.MULTILINE
        ):
            if code[0] == "`":
                program += code[10:-3]
            elif name in HOW_TO:
                program += f"assert main(shlex.split(os.path.expandvars({code[13:]!r}), comments=True)) == 0\n"
        for place, other in (places or {}).items():
            program = program.replace(place, other)
        (home / file).write_text(program, encoding="utf-8")

    python(
        "-c",
        "import runpy, sys\nfor file in sys.argv[1:]: runpy.run_path(file, run_name='__main__')",
        *files,
    )


@needs_torch
def test_the_code_of_pages_runs_as_it_stands(home: Path) -> None:
    for name in ("cat/1", "cat/2", "cat/3", "dog/1", "dog/2"):
        (home / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(home / "photos" / f"{name}.png")
    (home / "wine.csv").write_text('id,name,price\n1,"Barolo, red",31.5\n2,,\n')

    run_pages(home, [*HOW_TO, *QUICK_PAGES, *REFERENCE])

    assert {
        "backup",
        "data_stack.lock",
        "digits-published",
        "experiments",
        "signs",
        "wine_records",
    } <= {*listing(home)}


@pytest.mark.full
def test_the_code_of_how_to_pages_runs_on_real_servers(
    home: Path, mongodb_uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, torchrun = (
        s3_server.options(),
        {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"},
    )
    for name, value in (
        torchrun | {"AWS_ACCESS_KEY_ID": options["key"], "AWS_SECRET_ACCESS_KEY": options["secret"]}
    ).items():
        monkeypatch.setenv(name, value)
    bucket = (
        f"s3://{s3_server.new_bucket()}/sets?endpointUrl={quote(options['endpoint_url'], safe='')}&"
    )
    mongodb = "mongodb://writer:secret@db.example.org/datasets?tls=true"

    run_pages(
        home,
        SLOW_HOW_TO,
        {"s3://bucket/sets?": bucket, mongodb: mongodb_uri, "/var/tmp": str(home)},
    )

    assert {"checkpoint.pt", "records", "sets"} <= {*listing(home)}


@pytest.mark.full
def test_the_code_of_the_page_on_preparation_prepares_in_processes(home: Path) -> None:
    factory, engines = blocks(
        (ROOT / "docs" / "preparation.md").read_text(encoding="utf-8"), "python"
    )
    for i in range(3):
        (home / f"part-{i}.csv").write_text(f"{i}\n")
    factory = (
        factory.replace("range(64)", "range(3)")
        .replace("https://…", home.as_uri())
        .replace(', sha256="…"', "")
    )
    (home / "scans.py").write_text(factory, encoding="utf-8")
    lines = [
        "from data_stack import FileStorageConnector; from data_stack.engines import ProcessEngine",
        "from data_stack_spark import SparkEngine; from scans import Scans",
        "if __name__ == '__main__':",
        "    factory = Scans(FileStorageConnector('store'))",
        *(f"    {line}" for line in engines.replace("(8", "(2").splitlines()),
        "    print(list(factory.get_dataset_iterator({'split': 'train'})[0]))",
    ]
    (home / "prepare.py").write_text("\n".join(lines), encoding="utf-8")

    assert "prepared/part-2.csv" in python("prepare.py")[0]


@pytest.mark.full
def test_the_plugin_of_the_docs_passes_its_tests_once_installed(home: Path) -> None:
    docs = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    (factory,) = (block for block in blocks(docs, "python") if "class WineFactory" in block)
    (metadata,) = (block for block in blocks(docs, "toml") if "entry-points" in block)
    (test,) = (block for block in blocks(docs, "python") if "class TestWine" in block)
    entry_point = re.search(r'^wine = "(.*)"', metadata, re.MULTILINE)
    assert entry_point is not None
    write_distribution(
        home, "my-wine", f"[data_stack.datasets]\nwine = {entry_point[1]}\n", {"my_wine": factory}
    )
    (home / "test_my_wine.py").write_text(test, encoding="utf-8")

    said, _ = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_wine.py")

    assert re.search(r"\d\d passed", said)


def test_the_code_for_agents_runs_as_it_stands(home: Path) -> None:
    (home / "wine.csv").write_text('id,name,price\n1,"Barolo, red",31.5\n2,,\n')
    page = (ROOT / "llms.txt").read_text(encoding="utf-8")
    (home / "llms.py").write_text("\n".join(blocks(page, "python")), encoding="utf-8")

    said, _ = python("llms.py")

    assert said.splitlines()[-1] == "False"
    assert {"data_stack.lock", "wine_records", "wine_parquet", "sets", "backup"} <= {*listing(home)}
    assert len(page) < 12_000
