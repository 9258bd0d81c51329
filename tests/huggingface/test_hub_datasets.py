"""Datasets of the Hub, loaded from a server that answers as the Hub does."""

from __future__ import annotations

import pickle
from typing import Any

import datasets
import numpy as np
import pytest
from hub_server import HubServer, Repo
from kept_samples import exact

import data_stack
from data_stack.dataset.encoders import EncodingError
from data_stack.exception import CatalogueError, CatalogueSchemaError, CatalogueUnavailableError, RevisionNotFoundError
from data_stack.loader import Loader

Rows = Any
ParquetOf = Any  # the function in conftest.py, which cannot be imported from here


@pytest.fixture
def zoo(hub: HubServer, pictures: Rows, parquet_of: ParquetOf) -> Repo:
    """A dataset with two shards of ``train``, one of ``test``, and a card."""
    rows, features = pictures
    halves = [{name: values[part] for name, values in rows.items()} for part in (slice(3), slice(3, 6))]
    shards = {f"data/train-{n:05}-of-00002.parquet": parquet_of(half, features) for n, half in enumerate(halves)}
    files = {**shards, "data/test-00000-of-00001.parquet": parquet_of(rows, features), "README.md": b"---\nlicense: mit\n---\n"}
    repo = hub.repos["team/zoo"] = Repo(card={"license": "mit", "pretty_name": "A zoo"})
    repo.commit(files)
    return repo


@pytest.mark.parametrize("lazy", [False, True])
def test_splits_have_parts_classes_and_images_of_a_chosen_mode(zoo: Repo, lazy: bool) -> None:
    loaded = data_stack.load("hf:team/zoo", lazy=lazy)

    in_colour = data_stack.load("hf:team/zoo", split="train", lazy=lazy, image_mode="RGB")
    assert [sample["image"].shape for sample in in_colour.take(2)] == [(5, 4, 3)] * 2
    meta = loaded["train"].dataset_meta
    assert (meta.sample_pos, meta.target_pos, meta.class_names) == ("image", "label", ("cat", "dog", "owl"))
    assert {name: len(split) for name, split in loaded.items()} == {"train": 6, "test": 6}


def test_the_commit_is_pinned_and_the_files_are_those_that_the_hub_lists(
    hub: HubServer, zoo: Repo, parquet_of: ParquetOf
) -> None:
    commit = zoo.refs["main"]
    train = data_stack.load("hf:team/zoo", split="train")
    zoo.commit({"data/train-00000-of-00001.parquet": parquet_of({"x": [1]})})

    assert data_stack.default_repository().resolve("hf:team/zoo").name != f"hf:team/zoo@{commit}"
    again = data_stack.from_recipe(train.recipe())
    assert [exact(again[i]) for i in range(6)] == [exact(train[i]) for i in range(6)]
    description = data_stack.describe(f"hf:team/zoo@{commit}")
    assert (description.version, description.license, description.splits) == (commit, "mit", ("train", "test"))
    assert description.distribution == "datastack-huggingface"
    inventory = data_stack.take_inventory(names=["hf:team/zoo"])
    assert inventory.prepared_versions == {"hf+team+zoo": [commit]}
    lazily = data_stack.load(f"hf:team/zoo@{commit}", split="train", lazy=True)
    assert pickle.loads(pickle.dumps(lazily))[4]["text"] == "ü"
    factory = data_stack.default_repository().get_factory(f"hf:team/zoo@{commit}")
    assert pickle.loads(pickle.dumps(factory)).splits == ("train", "test")


def test_a_prepared_dataset_is_loaded_without_network(hub: HubServer, zoo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_sample_of_a_large_file_moves_its_row_group_and_the_footer_alone(hub: HubServer, parquet_of: ParquetOf) -> None:
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


def test_configurations_are_chosen_by_name_and_images_that_are_elsewhere_are_an_error(
    hub: HubServer, parquet_of: ParquetOf
) -> None:
    configs = [{"config_name": name, "data_files": f"{name}/*.parquet"} for name in ("en", "de")]
    repo = hub.repos["team/words"] = Repo(card={"configs": configs, "license": ["mit", "cc-by-4.0"]})
    image = datasets.Features({"image": datasets.Image()})
    files = {f"{name}/0.parquet": parquet_of({"word": [name]}) for name in ("en", "de")}
    repo.commit({**files, "fr/0.parquet": parquet_of({"image": [{"bytes": None, "path": "a.png"}]}, image)})

    assert data_stack.load("hf:team/words#de", split="train")[0] == {"word": "de"}
    assert data_stack.describe("hf:team/words#de").license == "mit AND cc-by-4.0"
    with pytest.raises(RevisionNotFoundError, match=r"several configurations.*one of de, en"):
        data_stack.load("hf:team/words")
    with pytest.raises(RevisionNotFoundError, match=r"no configuration 'e': .*one of de, en"):
        data_stack.load("hf:team/words#e")
    repo.card = {}
    with pytest.raises(CatalogueSchemaError, match=r"\(image\)"):
        data_stack.load("hf:team/words", split="train", lazy=True)
    repo.card = {"configs": [{"config_name": "fr", "data_dir": "fr"}]}
    with pytest.raises(EncodingError, match=r"position 0.* an image with bytes"):
        data_stack.load("hf:team/words", split="train", lazy=True)[0]


def test_other_files_are_read_as_the_parquet_that_the_hub_makes_of_them(hub: HubServer, parquet_of: ParquetOf) -> None:
    repo = hub.repos["team/lines"] = Repo(card={"license": "mit"})
    repo.commit({"loading_script.py": b"raise SystemExit", "data/train.csv": b"x"})
    with pytest.raises(CatalogueError, match=r"no Parquet files at 'main'.*from_huggingface"):
        data_stack.load("hf:team/lines")
    files = {
        f"{config}/{split}/0000.parquet": parquet_of({"x": [config, split]}) for config in "ab" for split in ("test", "train")
    }
    commit = repo.commit(files, "refs/convert/parquet")

    train = data_stack.load("hf:team/lines#b", split="train")
    repo.commit({}, "refs/convert/parquet")

    assert [sample["x"] for sample in train] == ["b", "train"]
    assert train.dataset_meta.identifier == "team/lines#b/train"
    again = data_stack.from_recipe(train.recipe(), storage="memory://")
    assert [sample["x"] for sample in again] == ["b", "train"]
    assert data_stack.describe(f"hf:team/lines#b@parquet-{commit}").license == "mit"
    with pytest.raises(CatalogueError, match="no Parquet files"):
        data_stack.load(f"hf:team/lines@{repo.refs['main']}")
