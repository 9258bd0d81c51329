"""Datasets of the Hub, loaded from a server that answers as the Hub does."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from feature_lists import list_feature
from hub_server import HubServer, Repo, parquet_of
from kept_samples import exact

import data_stack
from data_stack.dataset.encoders import EncodingError
from data_stack.exception import (
    CatalogueError,
    CatalogueSchemaError,
    CatalogueUnavailableError,
    LeftOutWarning,
    RevisionNotFoundError,
)
from data_stack.loader import Loader


def rows_and_features(
    columns: dict[str, tuple[Any, list[Any]]],
) -> tuple[dict[str, Any], datasets.Features]:
    """Of columns of which a feature and the values are known."""
    features = datasets.Features({name: feature for name, (feature, _) in columns.items()})
    return {name: values for name, (_, values) in columns.items()}, features


def pictures() -> tuple[dict[str, Any], datasets.Features]:
    """Rows of all kinds, and their features."""
    rng = np.random.default_rng(0)
    shapes = [(5, 4), (5, 4, 3), (5, 4, 4), (6, 2), (3, 3, 3)]
    nested = {"a": datasets.Value("int32"), "b": [{"c": datasets.Value("string")}]}
    columns: dict[str, tuple[Any, list[Any]]] = {
        "image": (
            datasets.Image(),
            [*(rng.integers(0, 256, shape, np.uint8) for shape in shapes), None],
        ),
        "label": (datasets.ClassLabel(names=["cat", "dog", "owl"]), [0, 1, 2, 1, 0, 2]),
        "text": (datasets.Value("string"), ["a", "b", "", None, "ü", "f"]),
        "matrix": (
            datasets.Array2D((2, 3), "float32"),
            [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(6)],
        ),
        "numbers": ([datasets.Value("int64")], [list(range(n)) for n in range(6)]),
        "nested": (nested, [{"a": n, "b": [{"c": str(n)}] * n} for n in range(6)]),
        "weight": (datasets.Value("float32"), [0.5 * n for n in range(6)]),
    }
    return rows_and_features(columns)


@pytest.fixture
def zoo(hub: HubServer) -> Repo:
    """A dataset with two shards of ``train``, one of ``test``, and a card."""
    rows, features = pictures()
    halves = [
        {name: values[part] for name, values in rows.items()} for part in (slice(3), slice(3, 6))
    ]
    shards = {
        f"data/train-{n:05}-of-00002.parquet": parquet_of(half, features)
        for n, half in enumerate(halves)
    }
    files = {
        **shards,
        "data/test-00000-of-00001.parquet": parquet_of(rows, features),
        "README.md": b"---\nlicense: mit\n---\n",
    }
    repo = hub.repos["team/zoo"] = Repo(card={"license": "mit", "pretty_name": "A zoo"})
    repo.commit(files)
    return repo


@pytest.mark.parametrize("lazy", [False, True])
def test_splits_have_parts_classes_and_images_of_a_chosen_mode(zoo: Repo, lazy: bool) -> None:
    loaded = data_stack.load("hf:team/zoo", lazy=lazy)

    in_colour = data_stack.load("hf:team/zoo", split="train", lazy=lazy, image_mode="RGB")
    assert [sample["image"].shape for sample in in_colour.take(2)] == [(5, 4, 3)] * 2
    meta = loaded["train"].dataset_meta
    assert (meta.sample_pos, meta.target_pos, meta.class_names) == (
        "image",
        "label",
        ("cat", "dog", "owl"),
    )
    assert {name: len(split) for name, split in loaded.items()} == {"train": 6, "test": 6}


def test_a_dataset_is_pinned_to_the_commit_of_its_files(hub: HubServer, zoo: Repo) -> None:
    commit = zoo.refs["main"]
    train = data_stack.load("hf:team/zoo", split="train")
    zoo.commit({"data/train-00000-of-00001.parquet": parquet_of({"x": [1]})})

    assert data_stack.default_repository().resolve("hf:team/zoo").name != f"hf:team/zoo@{commit}"
    again = data_stack.from_recipe(train.recipe())
    assert [exact(again[i]) for i in range(6)] == [exact(train[i]) for i in range(6)]
    description = data_stack.describe(f"hf:team/zoo@{commit}")
    assert (description.version, description.license, description.splits) == (
        commit,
        "mit",
        ("train", "test"),
    )
    assert description.distribution == "lazy-data-stack-huggingface"
    inventory = data_stack.take_inventory(names=["hf:team/zoo"])
    assert inventory.prepared_versions == {"hf+team+zoo": [commit]}
    lazily = data_stack.load(f"hf:team/zoo@{commit}", split="train", lazy=True)
    assert pickle.loads(pickle.dumps(lazily))[4]["text"] == "ü"
    factory = data_stack.default_repository().get_factory(f"hf:team/zoo@{commit}")
    assert pickle.loads(pickle.dumps(factory)).splits == ("train", "test")


def test_a_prepared_dataset_is_loaded_without_network(
    hub: HubServer, zoo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = data_stack.load("hf:team/zoo", split="train")
    data_stack.default_repository.cache_clear()
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    n_requests = len(hub.requests)

    again = data_stack.from_recipe(train.recipe())

    assert exact(again[0]) == exact(train[0])
    assert data_stack.describe(f"hf:team/zoo@{zoo.refs['main']}").splits == ("train", "test")
    assert len(hub.requests) == n_requests
    with pytest.raises(CatalogueUnavailableError, match=r"hf:team/zoo: DATA_STACK_OFFLINE is set"):
        data_stack.load(f"hf:team/zoo@{zoo.refs['main']}", split="train", lazy=True)
    with pytest.raises(CatalogueUnavailableError, match=r"with its commit"):
        data_stack.load("hf:team/zoo", split="train")


def test_a_sample_moves_its_row_group_and_the_footer_alone(hub: HubServer) -> None:
    rows = {"x": np.random.default_rng(0).integers(0, 2**62, 400_000)}
    data = parquet_of(rows, row_group_size=20_000)  # 160 kB each, of 3.2 MB
    hub.repos["team/large"] = Repo()
    hub.repos["team/large"].commit({"train.parquet": data})

    train = data_stack.load("hf:team/large", split="train", lazy=True)
    before = hub.sent
    value = train[123_456]["x"]

    assert value == rows["x"][123_456]
    assert before <= 2 * 65_536 < 160_000 <= hub.sent - before <= 160_000 + 3 * 65_536
    assert data_stack.take_inventory().prepared_versions == {}
    before = hub.sent
    again = data_stack.from_recipe(train.recipe())
    assert len(again) == 400_000
    assert hub.sent - before <= 2 * 65_536  # the footer
    batches = list(Loader(train, 100_000, workers=0))
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == rows["x"].tolist()


def test_configurations_are_chosen_by_name(
    hub: HubServer,
) -> None:
    configs = [{"config_name": name, "data_files": f"{name}/*.parquet"} for name in ("en", "de")]
    repo = hub.repos["team/words"] = Repo(
        card={"configs": configs, "license": ["mit", "cc-by-4.0"]}
    )
    repo.commit({f"{name}/0.parquet": parquet_of({"word": [name]}) for name in ("en", "de")})

    assert data_stack.load("hf:team/words#de", split="train")[0] == {"word": "de"}
    assert data_stack.describe("hf:team/words#de").license == "mit AND cc-by-4.0"
    with pytest.raises(RevisionNotFoundError, match=r"several configurations.*one of de, en"):
        data_stack.load("hf:team/words")
    with pytest.raises(RevisionNotFoundError, match=r"no configuration 'e': .*one of de, en"):
        data_stack.load("hf:team/words#e")


def test_images_that_are_elsewhere_are_an_error(hub: HubServer) -> None:
    repo = hub.repos["team/words"] = Repo(
        card={"configs": [{"config_name": "fr", "data_dir": "fr"}]}
    )
    image = datasets.Features({"image": datasets.Image()})
    path = parquet_of({"image": [{"bytes": None, "path": "a.png"}]}, image)
    repo.commit({"en/0.parquet": parquet_of({"word": ["en"]}), "fr/0.parquet": path})

    with pytest.raises(EncodingError, match=r"position 0.* an image with bytes"):
        data_stack.load("hf:team/words", split="train", lazy=True)[0]


def test_files_with_other_columns_than_the_first_are_an_error(hub: HubServer) -> None:
    repo = hub.repos["team/words"] = Repo()
    image = datasets.Features({"image": datasets.Image()})
    path = parquet_of({"image": [{"bytes": None, "path": "a.png"}]}, image)
    repo.commit({"en/0.parquet": parquet_of({"word": ["en"]}), "fr/0.parquet": path})

    with (
        pytest.warns(LeftOutWarning, match="column image"),
        pytest.warns(UserWarning, match=r"'word' \(data/train/00001\.parquet\)"),
        pytest.raises(CatalogueSchemaError, match=r"\(image\)"),
    ):
        data_stack.load("hf:team/words", split="train", lazy=True)


def test_other_files_are_read_as_the_hub_converts_them(hub: HubServer) -> None:
    repo = hub.repos["team/lines"] = Repo(card={"license": "mit"})
    repo.commit({"loading_script.py": b"raise SystemExit", "data/train.csv": b"x"})
    with pytest.raises(
        CatalogueError, match=r"no Parquet or Arrow files at 'main'.*from_huggingface"
    ):
        data_stack.load("hf:team/lines")
    files = {
        f"{config}/{split}/0000.parquet": parquet_of({"x": [config, split]})
        for config in "ab"
        for split in ("test", "train")
    }
    commit = repo.commit(files, "refs/convert/parquet")

    train = data_stack.load("hf:team/lines#b", split="train")
    repo.commit({}, "refs/convert/parquet")

    assert [sample["x"] for sample in train] == ["b", "train"]
    assert train.dataset_meta.identifier == "team/lines#b/train"
    again = data_stack.from_recipe(train.recipe(), storage="memory://")
    assert [sample["x"] for sample in again] == ["b", "train"]
    assert data_stack.describe(f"hf:team/lines#b@parquet-{commit}").license == "mit"
    with pytest.raises(CatalogueError, match="no Parquet or Arrow files"):
        data_stack.load(f"hf:team/lines@{repo.refs['main']}")


# ---------------------------------------------------------------------- the page

PAGE = Path(__file__).parents[3] / "docs" / "catalogues.md"


def test_the_code_of_the_page_runs(hub: HubServer) -> None:
    rows, features = pictures()
    digits = {"image": rows["image"][:2], "label": [5, 0]}
    file = parquet_of(
        digits,
        datasets.Features(
            {"image": features["image"], "label": datasets.ClassLabel(num_classes=10)}
        ),
    )
    config = {
        "config_name": "mnist",
        "data_files": [{"split": split, "path": f"mnist/{split}-*"} for split in ("train", "test")],
    }
    hub.repos["ylecun/mnist"] = Repo(card={"configs": [config]})
    hub.repos["ylecun/mnist"].commit(
        {f"mnist/{split}-00000-of-00001.parquet": file for split in ("train", "test")}
    )
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}

    exec(code, names)

    assert (names["image"].shape, names["label"], len(names["lazily"])) == ((5, 4), 5, 2)


# ---------------------------------------------------------------------- as datasets loads them


def rows_of(start: int, n: int = 3) -> dict[str, Any]:
    """Rows with a number that says where they come from, and without any metadata of
    ``datasets``.
    """
    return {"x": list(range(start, start + n)), "text": [f"{start}-{i}" for i in range(n)]}


SPLITS = [
    {"split": "zoo", "path": ["z*.parquet", "a*.parquet"]},
    {"split": "train", "path": ["b.parquet", ".hidden/*"]},
]
MARKED: list[dict[str, Any]] = [
    {"config_name": "a", "data_dir": "a"},
    {"config_name": "b", "data_dir": "b", "default": True},
]
#: Configurations of a card, and paths.
LAYOUTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "several words of one split": ([], "val dev validation a-valid train b/dev-2"),
    "folders": ([], "test/b eval/a training/a train/z x/my-train/c"),
    "shards": (
        [],
        " ".join(
            f"data/{split}-0000{n}-of-00002"
            for split in ("test", "zoo", "extra", "train")
            for n in (1, 0)
        ),
    ),
    "no split": ([], "b a/c __sub .hidden/a __x/y"),
    "patterns": ([{"config_name": "default", "data_files": SPLITS}], "a1 z1 a0 z0 b .hidden/c"),
    "a configuration that is marked": (MARKED, "a/train b/val b/dev b/test"),
    "notes beside": ([], "train test train-notes.md config.json run_train.py"),
}


def load_both(
    hub: HubServer,
    folder: Path,
    card: Mapping[str, Any],
    files: Mapping[str, bytes],
    **options: Any,
) -> tuple[Any, Any]:
    """The splits that ``datasets`` reads of a folder, and ours of a Hub with the same files."""
    readme = (
        f"---\n{yaml.safe_dump(dict(card), sort_keys=False)}---\n".encode()
        if card
        else b"# A dataset\n"
    )
    listed = {**files, "README.md": readme}
    for path, data in listed.items():
        (folder / "repo" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "repo" / path).write_bytes(data)
    repo = hub.repos["team/repo"] = Repo(card=dict(card))
    repo.commit(listed)
    theirs = datasets.load_dataset(str(folder / "repo"), cache_dir=str(folder / "cache"))
    return theirs, data_stack.load("hf:team/repo", **options)


def assert_equal(theirs: Any, ours: Any) -> None:
    """Splits and their order, columns and their order, and all samples with their types."""
    assert list(ours) == list(theirs)
    for split, dataset in theirs.items():
        expected = data_stack.from_huggingface(dataset)
        assert [list(sample) for sample in ours[split]] == [list(dataset.features)] * len(dataset)
        assert [_of_python(sample) for sample in ours[split]] == [
            _of_python(sample) for sample in expected
        ]
        positions = range(len(dataset))
        assert exact(ours[split].read_batch(positions)) == exact(expected.read_batch(positions))


def _of_python(sample: Any) -> Any:
    return exact(
        {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in sample.items()
        }
    )


@pytest.mark.parametrize(
    ("layout", "lazy"),
    [
        *((layout, True) for layout in LAYOUTS),
        *(
            pytest.param(layout, False, marks=[] if layout == "shards" else pytest.mark.full)
            for layout in LAYOUTS
        ),
    ],
)
def test_splits_and_rows_have_the_order_of_datasets(
    hub: HubServer, tmp_path: Path, layout: str, lazy: bool
) -> None:
    configs, names = LAYOUTS[layout]
    card = {"configs": configs} if configs else {}
    paths = [
        name if name.endswith((".md", ".json", ".py")) else f"{name}.parquet"
        for name in names.split()
    ]
    files = {
        path: parquet_of(rows_of(10 * n)) if path.endswith("parquet") else b"-"
        for n, path in enumerate(paths)
    }

    theirs, ours = load_both(hub, tmp_path, card, files, lazy=lazy)

    assert_equal(theirs, ours)


def without_metadata(data: bytes) -> bytes:
    """A Parquet file without what ``datasets`` has written into its schema."""
    table = pq.read_table(io.BytesIO(data)).replace_schema_metadata(None)
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def test_files_of_several_formats_are_an_error_as_of_datasets(
    hub: HubServer, tmp_path: Path
) -> None:
    files = {"train.parquet": parquet_of(rows_of(0)), "test.csv": b"x,text\n1,a\n"}

    with pytest.raises(ValueError, match="same data file format"):
        load_both(hub, tmp_path, {}, files)
    with pytest.raises(
        CatalogueError, match=r"files of several formats \(train: parquet, test: csv\)"
    ):
        data_stack.load("hf:team/repo")


@pytest.mark.parametrize(
    ("has_configs", "is_listed"), [(False, False), (False, True), (True, False), (True, None)]
)
def test_types_of_the_card_that_files_store_otherwise(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_configs: bool,
    is_listed: bool | None,
) -> None:
    png = data_stack.codecs.PngCodec().encode(np.arange(12, dtype=np.uint8).reshape(3, 4))
    text, start = [datasets.Value("string")], [datasets.Value("int32")]
    answers = [
        {"start": [1], "text": ["x"]},
        {"start": [], "text": []},
        {"start": [1, 2], "text": ["y", "z"]},
    ]
    nested = {"a": datasets.Value("int64"), "b": {"c": datasets.Value("string")}}
    columns: dict[str, tuple[Any, list[Any]]] = {
        "name": (datasets.ClassLabel(names=["cat", "dog"]), ["dog", "cat", None]),
        "file": (datasets.Image(), [png, None, png]),
        "coloured": (datasets.Image(mode="RGB"), [{"bytes": png, "path": None}] * 3),
        "weight": (datasets.Value("float32"), [1, None, 3]),
        "day": (datasets.Value("large_string"), ["a", "b", "c"]),
        "answers": ({"start": start, "text": text}, answers),  # datasets 3 sorts them
        "tokens": (datasets.LargeList(datasets.Value("string")), [["a"], ["b", "c"], []]),
        "nested": (nested, [{"a": 1, "b": {"c": "x"}}] * 3),
        "pair": (datasets.Sequence(datasets.Value("int32"), length=2), [[1, 2], [3, 4], [5, 6]]),
        "cube": (
            datasets.Array3D((2, 2, 2), "uint8"),
            [np.arange(8, dtype=np.int64).reshape(2, 2, 2).tolist()] * 3,
        ),
    }
    rows, features = rows_and_features(columns)
    info = {
        "config_name": "plain" if has_configs else "default",
        "features": features._to_yaml_list(),
    }
    card: dict[str, Any] = (
        {} if is_listed is None else {"dataset_info": [info] if is_listed else info}
    )
    if has_configs:
        card["configs"] = [
            {"config_name": "plain", "data_files": [{"split": "train", "path": "train*"}]}
        ]
    if is_listed is None:  # among the configurations
        card["configs"][0]["features"] = info["features"]

    theirs, ours = load_both(
        hub, tmp_path, card, {"train.parquet": without_metadata(parquet_of(rows))}
    )

    assert theirs["train"].features == features
    assert_equal(theirs, ours)
    assert ours["train"].dataset_meta.class_names == ("cat", "dog")
    data_stack.default_repository.cache_clear()
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    again = data_stack.from_recipe(ours["train"].recipe())
    assert [exact(sample) for sample in again] == [exact(sample) for sample in ours["train"]]


@pytest.mark.parametrize("told", [False, True])
def test_converted_files_have_the_default_and_the_order_of_cards(
    hub: HubServer, told: bool
) -> None:
    splits = ["zoo", "train", "extra", "test", "validation"]
    configs = [{"config_name": name, "data_files": f"{name}.csv"} for name in ("a", "b")]
    infos = (
        [{"config_name": "b", "splits": [{"name": split} for split in splits[:3]]}] if told else []
    )
    repo = hub.repos["team/lines"] = Repo(
        card={"configs": [configs[0], {**configs[1], "default": True}], "dataset_info": infos}
    )
    repo.commit({"a.csv": b"x\n1\n", "b.csv": b"x\n2\n"})
    parts = {f"b/{split}/0000.parquet": parquet_of({"x": [split]}) for split in splits[1:]}
    parts |= {
        f"b/zoo-part{n}/{m:04}.parquet": parquet_of({"x": [f"{n}.{m}"]})
        for n in (10, 0, 2)
        for m in (1, 0)
    }
    repo.commit({"a/train/0000.parquet": parquet_of({"x": ["a"]}), **parts}, "refs/convert/parquet")

    loaded = data_stack.load("hf:team/lines")

    order = (
        ["zoo", "train", "extra", "validation", "test"]
        if told
        else ["train", "validation", "test", "extra", "zoo"]
    )
    assert list(loaded) == order
    assert [sample["x"] for sample in loaded["train"]] == ["train"]
    assert [sample["x"] for sample in loaded["zoo"]] == ["0.0", "0.1", "2.0", "2.1", "10.0", "10.1"]


@pytest.mark.parametrize("path", ["test.parquet", "test*.parquet", "folder"])
def test_missing_listed_files_are_an_error_as_with_datasets(
    hub: HubServer, tmp_path: Path, path: str
) -> None:
    data_files = [{"split": "train", "path": "train.parquet"}, {"split": "test", "path": path}]
    card = {"configs": [{"config_name": "default", "data_files": data_files}]}
    files = {name: parquet_of(rows_of(0)) for name in ("train.parquet", "folder/a.parquet")}

    with pytest.raises(
        (ValueError, FileNotFoundError), match=r"same data file format|Unable to find"
    ):
        load_both(hub, tmp_path, card, files)
    with pytest.raises(
        CatalogueError,
        match=r"configs in the card of hf:team/repo are damaged \((the file|no files match)",
    ):
        data_stack.load("hf:team/repo")


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([1, 300], datasets.Value("int8")),
        ([[1], [1, 300]], [datasets.Value("int8")]),
        ([[[1.0, 2.5]], [[1.5, 2.0]]], datasets.Array2D((1, 2), "int32")),
        (["cat", "owl"], datasets.ClassLabel(names=["cat", "dog"])),
    ],
)
def test_values_beyond_their_features_are_an_error_as_of_datasets(
    hub: HubServer, tmp_path: Path, values: list[Any], feature: Any
) -> None:
    card = {"dataset_info": {"features": datasets.Features({"x": feature})._to_yaml_list()}}
    files = {"train.parquet": without_metadata(parquet_of({"x": values}))}

    with pytest.raises(datasets.exceptions.DatasetGenerationError):
        load_both(hub, tmp_path, card, files)
    with pytest.raises(EncodingError, match=r"column 'x': at position [01], "):
        data_stack.load("hf:team/repo", split="train", lazy=True).read_batch([0, 1])


_TIMES = pa.array([0, 86_400_000_000, None], pa.timestamp("us"))
_DAYS = pa.array([1, None, 2], pa.date32())
#: Cells of files, and the types that a card may declare for them.
PAIRS: list[tuple[Any, list[Any]]] = [
    ([1, -2, None], ["string", "large_string", "bool", "float32", "int8", "decimal128(25, 2)"]),
    ([1.0, 0.5, None], ["string", "float16", "decimal128(10, 1)"]),
    ([2.0, 0.0], ["int64", "uint8", "bool"]),
    (["01", "-2", None], ["int64", "float64", "int8", "float32", "decimal128(5, 1)"]),
    (["1.5", "inf", "nan"], ["float64", "float32"]),
    (["true", "0", None], ["bool"]),
    (["2024-01-01", "1970-01-01"], ["date32", "timestamp[us]", "timestamp[s]"]),
    (["2024-01-01T00:00:00+02:00"], ["timestamp[us, tz=UTC]"]),
    ([True, False, None], ["int64", "float32", "string", "uint8"]),
    ([b"x", None, b"y"], ["string"]),
    (["\xe9", None], ["binary"]),
    (_DAYS, ["string", "timestamp[ns]", "date64"]),
    (_TIMES, ["string", "date32", "int64", "timestamp[ms]", "timestamp[us, tz=Europe/Berlin]"]),
    ([5, None], ["timestamp[s]", "duration[ms]"]),
    ([Decimal("1.50"), None], ["string", "float64"]),
    ([["1"], [], None], [list_feature(datasets.Value("int64"))]),
    ([[1, 2], [3, 4]], [list_feature(datasets.Value("string"))]),
    ([[[1]], [[2], []]], [list_feature(list_feature(datasets.Value("string")))]),
    ([{"a": "1", "b": True}, None], [{"a": datasets.Value("int64"), "b": datasets.Value("int8")}]),
    ([[{"a": "1"}], []], [list_feature({"a": datasets.Value("float64")})]),
    (pa.nulls(2), ["int64", "string"]),
]


def of_pairs() -> Iterator[tuple[str, pa.Array, Any]]:
    for number, (cells, features) in enumerate(PAIRS):
        for place, feature in enumerate(features):
            declared = datasets.Value(feature) if isinstance(feature, str) else feature
            array = cells if isinstance(cells, pa.Array) else pa.array(cells)
            yield f"x{number}_{place}", array, declared


def test_all_pairs_of_types_are_those_of_datasets(hub: HubServer, tmp_path: Path) -> None:
    n_rows = 6
    columns = {}
    features = {}
    for name, cells, feature in of_pairs():
        columns[name] = pa.concat_arrays([cells] * n_rows)[:n_rows]
        features[name] = feature
    declared = datasets.Features(features)
    card = {"dataset_info": {"features": declared._to_yaml_list()}}

    theirs, ours = load_both(hub, tmp_path, card, {"train.parquet": parquet_of(columns)})

    assert theirs["train"].features == declared
    assert_equal(theirs, ours)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["1", "x"], "int64"),
        (["1", "1e400"], "float64"),
        ([1.0, 1e300], "float32"),
        (["1", "70000"], "float16"),
        (pa.array([0, 43_200_000_000], pa.timestamp("us")), "date32"),
        (pa.array([0, 1], pa.timestamp("us")), "time64[us]"),
        (pa.array([0, 1], pa.timestamp("us")), "timestamp[ms]"),
        ([b"a", b"\xff"], "string"),
        (["1", "1.555"], "decimal128(5, 2)"),
        (["1", "5e-324"], "decimal128(20, 3)"),
        (["2020-01-01", "2500-01-01"], "timestamp[ns]"),
        (["yes", "no"], "bool"),
    ],
)
def test_values_that_a_declared_type_would_change_are_refused(
    hub: HubServer, values: Any, dtype: str
) -> None:
    card = {"dataset_info": {"features": [{"name": "x", "dtype": dtype}]}}
    repo = hub.repos["team/repo"] = Repo(card=card)
    cells = values if isinstance(values, pa.Array) else pa.array(values)
    repo.commit({"train.parquet": without_metadata(parquet_of({"x": cells}))})

    with pytest.raises(EncodingError, match=r"column 'x': at position [01], "):
        data_stack.load("hf:team/repo", split="train", lazy=True).read_batch([0, 1])


@pytest.mark.parametrize(
    ("values", "dtype"), [([{"a": 1}], "int64"), ([1.5], "binary"), (["x"], "unheard")]
)
def test_types_that_are_not_cast_to_each_other_are_refused(
    hub: HubServer, values: list[Any], dtype: str
) -> None:
    card = {"dataset_info": {"features": [{"name": "x", "dtype": dtype}]}}
    repo = hub.repos["team/repo"] = Repo(card=card)
    repo.commit({"train.parquet": without_metadata(parquet_of({"x": values}))})

    with pytest.raises(CatalogueSchemaError, match="x: "):
        data_stack.load("hf:team/repo", split="train", lazy=True)


def test_class_ids_with_a_gap_are_refused_as_by_datasets(hub: HubServer, tmp_path: Path) -> None:
    label = {"class_label": {"names": {"0": "cat", "2": "dog"}}}
    card = {"dataset_info": {"features": [{"name": "x", "dtype": label}]}}
    files = {"train.parquet": without_metadata(parquet_of({"x": [2, 0]}))}

    with pytest.raises(ValueError, match="some ids are missing"):
        load_both(hub, tmp_path, card, files)
    with pytest.raises(CatalogueSchemaError, match="but not for 1"):
        data_stack.load("hf:team/repo")


def test_two_default_configurations_are_refused_unless_one_is_named(
    hub: HubServer, tmp_path: Path
) -> None:
    card = {"configs": [{**config, "default": True} for config in MARKED]}
    files = {f"{name}/train.parquet": parquet_of(rows_of(0)) for name in "ab"}

    with pytest.raises(ValueError, match="several default configs"):
        load_both(hub, tmp_path, card, files)
    with pytest.raises(CatalogueError, match=r"several configurations as the default \(a, b\)"):
        data_stack.load("hf:team/repo")
    assert list(data_stack.load("hf:team/repo#b")) == ["train"]


# ------------------------------------------------------------------------------------- Arrow files


def arrow_of(rows: dict[str, Any], features: datasets.Features, folder: Path) -> bytes:
    """The bytes of the Arrow file that ``datasets`` saves."""
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder))
    (file,) = folder.glob("*.arrow")
    return file.read_bytes()


@pytest.mark.parametrize("lazy", [False, True])
def test_arrow_files_are_read_as_datasets_reads_them(
    hub: HubServer, tmp_path: Path, lazy: bool
) -> None:
    rows, features = pictures()
    data = arrow_of(rows, features, tmp_path / "saved")
    files = {
        "train/data-00000-of-00001.arrow": data,
        "train/state.json": b"{}",
        "test/data-00000-of-00001.arrow": data,
    }
    hub.repos["team/saved"] = Repo()
    hub.repos["team/saved"].commit(files)
    expected = data_stack.from_huggingface(datasets.Dataset.from_dict(rows, features=features))

    train: Any = data_stack.load("hf:team/saved", split="train", lazy=lazy)

    assert exact(list(train)) == exact(list(expected))
    assert train.dataset_meta.class_names == ("cat", "dog", "owl")
    assert train.dataset_meta.target_pos == "label"
