"""Each dataset gives the samples of its files.

The files are made up here in the published layouts, and served by a server of this machine.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import hashlib
import io
import lzma
import pickle
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import soundfile
from archives import tar_of
from data_stack_classics.arrays import ColumnWriter
from data_stack_classics.classic import ClassicFactory
from idx_files import write_idx
from scipy.io import savemat
from web_server import ScriptedServer
from writing import bytes_of

from data_stack import FileStorageConnector
from data_stack.exception import DatasetFileCorruptError, DataStackError, PreparationError
from data_stack.repository.licenses import spdx_problem
from data_stack.testing.comparing import assert_same

README = Path(__file__).parents[1] / "README.md"
FACTORIES: dict[str, type[ClassicFactory]] = {
    point.name: point.load()
    for point in entry_points(group="data_stack.datasets")
    if point.value.startswith("data_stack_classics.")
}


@dataclass(frozen=True)
class Files:
    """The sources of a dataset by identifier, and the samples that they hold, by split."""

    contents: Mapping[str, bytes]
    samples: Mapping[str, list[Any]]


#: What makes up the files of a dataset, by its name.
MAKERS: dict[str, Callable[[str], Files]] = {}
NAN = float("nan")
RANDOM = np.random.default_rng(7)


def makes(*names: str) -> Callable[[Callable[[str], Files]], Callable[[str], Files]]:
    """Register a function that makes up the files of these datasets."""

    def register(maker: Callable[[str], Files]) -> Callable[[str], Files]:
        MAKERS.update(dict.fromkeys(names, maker))
        return maker

    return register


def draw(*shape: int, most: int = 255) -> Any:
    """Draw an array of uint8 with values from 0 to ``most``."""
    return RANDOM.integers(0, most, shape, np.uint8, endpoint=True)


def twice(images: Any, labels: Any) -> list[Any]:
    """Return samples ``(image, label, label)``."""
    return [(image, int(label), int(label)) for image, label in zip(images, labels, strict=True)]


def idx(array: Any) -> bytes:
    return bytes_of(write_idx, array)


def fetch_by_sklearn(name: str, data: bytes, **options: Any) -> Any:
    """What scikit-learn's own function reads from an archive."""
    module = getattr(sklearn.datasets, f"_{name}")
    fetch = getattr(sklearn.datasets, f"fetch_{name.replace('twenty_', '20')}")
    server = ScriptedServer()
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as home,
        contextlib.closing(server),
    ):
        patch.setenv("no_proxy", "*")
        url = server.serve("/archive", data)
        remote = module.ARCHIVE._replace(url=url, checksum=hashlib.sha256(data).hexdigest())
        patch.setattr(module, "ARCHIVE", remote)
        return fetch(data_home=home, **options)


# ------------------------------------------------------------------- files in the published layouts


@makes("fashion-mnist", "kmnist")
def make_idx(name: str) -> Files:
    contents = {}
    samples = {}
    for split, n_images in (("train", 5), ("test", 3)):
        images = draw(n_images, 28, 28)
        labels = draw(n_images, most=9)
        contents[f"raw/{split}-images"] = gzip.compress(idx(images))
        contents[f"raw/{split}-labels"] = gzip.compress(idx(labels))
        samples[split] = twice(images, labels)
    return Files(contents, samples)


@makes("qmnist")
def make_qmnist(name: str) -> Files:
    compressions: dict[str, Callable[[bytes], bytes]] = {
        "train": gzip.compress,
        "test": gzip.compress,
        "nist": lzma.compress,
    }
    largest_values = np.array([1, 1, 500, 1, 1, 90_000, 1, 0], np.int32)
    contents = {}
    samples = {}
    for split, compress in compressions.items():
        images = draw(4, 28, 28)
        labels = draw(4, 8, most=9).astype(np.int32) * largest_values
        contents[f"raw/{split}-images"] = compress(idx(images))
        contents[f"raw/{split}-labels"] = compress(idx(labels))
        samples[split] = [
            (image, int(label[0]), label.astype(np.int64))
            for image, label in zip(images, labels, strict=True)
        ]
    return Files(contents, samples)


@makes(*(name for name in FACTORIES if name.startswith("emnist")))
def make_emnist(name: str) -> Files:
    file = io.BytesIO()
    samples = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("gzip/emnist-other-mapping.txt", "0 48\n")
        for split in ("test", "train"):
            images = draw(3, 28, 28)
            labels = draw(3, most=9)
            start = f"gzip/{name}-{split}"
            archive.writestr(f"{start}-images-idx3-ubyte.gz", gzip.compress(idx(images)))
            archive.writestr(f"{start}-labels-idx1-ubyte.gz", gzip.compress(idx(labels)))
            samples[split] = twice(images, labels)
    return Files({"raw/gzip.zip": file.getvalue()}, samples)


@makes("usps")
def make_usps(name: str) -> Files:
    contents = {}
    samples = {}
    for split in ("train", "test"):
        values = RANDOM.uniform(-1, 1, (3, 256)).round(4)
        labels = draw(3, most=9)
        lines = []
        for label, row in zip(labels, values, strict=True):
            cells = " ".join(f"{number}:{value:g}" for number, value in enumerate(row, 1))
            lines.append(f"{label + 1} {cells}\n")
        contents[f"raw/{split}.bz2"] = bz2.compress("".join(lines).encode())

        # the arithmetic of torchvision.datasets.USPS
        written = np.array([[f"{value:g}" for value in row] for row in values], np.float32)
        pixels = ((written + 1) / 2 * 255).astype(np.uint8)
        samples[split] = twice(pixels.reshape(-1, 16, 16), labels)
    return Files(contents, samples)


@makes("cifar10")
def make_cifar10(name: str) -> Files:
    files = {"batches.meta.txt": b"airplane\n"}
    samples: dict[str, list[Any]] = {"train": [], "test": []}
    batches = {f"data_batch_{number}": "train" for number in range(1, 6)} | {"test_batch": "test"}
    for batch, split in batches.items():
        images = draw(2, 32, 32, 3)
        labels = draw(2, most=9)
        records = []
        for label, planes in zip(labels, images.transpose(0, 3, 1, 2), strict=True):
            records.append(bytes([label]) + planes.tobytes())
        files[f"{batch}.bin"] = b"".join(records)
        samples[split] += twice(images, labels)
    # The archive holds the batches in another order than the dataset.
    members = {f"cifar-10-batches-bin/{file}": files[file] for file in sorted(files, reverse=True)}
    return Files({"raw/archive.tar.gz": tar_of(members)}, samples)


@makes("cifar100")
def make_cifar100(name: str) -> Files:
    files = {}
    samples: dict[str, list[Any]] = {}
    for split in ("train", "test"):
        images = draw(3, 32, 32, 3)
        groups = draw(3, most=19)
        labels = draw(3, most=99)
        records = []
        samples[split] = []
        for image, group, label in zip(images, groups, labels, strict=True):
            records.append(bytes([group, label]) + image.transpose(2, 0, 1).tobytes())
            samples[split].append((image, int(label), int(group)))
        files[f"cifar-100-binary/{split}.bin"] = b"".join(records)
    return Files({"raw/archive.tar.gz": tar_of(files)}, samples)


@makes("svhn")
def make_svhn(name: str) -> Files:
    contents = {}
    samples = {}
    for split, is_compressed in (("train", True), ("test", False), ("extra", True)):
        images = draw(4, 32, 32, 3)
        labels = np.array([10, 1, 9, 10], np.uint8)
        arrays = {"X": images.transpose(1, 2, 3, 0), "y": labels[:, np.newaxis]}
        contents[f"raw/{split}.mat"] = bytes_of(savemat, arrays, do_compression=is_compressed)
        samples[split] = twice(images, labels % 10)
    return Files(contents, samples)


@makes("stl10")
def make_stl10(name: str) -> Files:
    files = {"stl10_binary/class_names.txt": b"airplane\n"}
    samples: dict[str, list[Any]] = {}
    for split in ("test", "train", "unlabeled"):
        images = draw(2, 96, 96, 3)
        labels = draw(2, most=9).astype(int)
        files[f"stl10_binary/{split}_X.bin"] = images.transpose(0, 3, 2, 1).tobytes()
        if split == "unlabeled":
            samples[split] = twice(images, [-1, -1])
        else:
            files[f"stl10_binary/{split}_y.bin"] = bytes((labels + 1).tolist())
            samples[split] = twice(images, labels)
    return Files({"raw/archive.tar.gz": tar_of(files)}, samples)


@makes("imdb-reviews")
def make_imdb(name: str) -> Files:
    files = {"aclImdb/imdb.vocab": b"the\n", "aclImdb/train/urls_pos.txt": b"-\n"}
    samples: dict[str, list[Any]] = {"test": [], "train": [], "unsupervised": []}
    reviews = [
        ("test", "test/neg", 0),
        ("test", "test/pos", 1),
        ("train", "train/neg", 0),
        ("train", "train/pos", 1),
        ("unsupervised", "train/unsup", -1),
    ]
    for split, folder, label in reviews:
        text = f"Amélie, {folder}<br /><br />\n"
        files[f"aclImdb/{folder}/0_9.txt"] = text.encode()
        samples[split].append({"label": label, "text": text})
    return Files({"raw/archive.tar.gz": tar_of(files)}, samples)


@makes("20-newsgroups")
def make_newsgroups(name: str) -> Files:
    groups = FACTORIES[name].class_names or ()
    files = {}
    samples: dict[str, list[Any]] = {"test": [], "train": []}
    for split, samples_of_split in samples.items():
        for label, group in enumerate(groups):
            text = f"From: José ({split})\nNewsgroups: {group}\n\n> quoted\n\xa0\x80"
            files[f"20news-bydate-{split}/{group}/{9000 + label}"] = text.encode("latin-1")
            samples_of_split.append({"label": label, "text": text})
    archive = tar_of(files)

    for split, samples_of_split in samples.items():
        bunch = fetch_by_sklearn("twenty_newsgroups", archive, subset=split, shuffle=False)
        expected = [(sample["label"], sample["text"]) for sample in samples_of_split]
        assert sorted(zip(bunch.target, bunch.data, strict=True)) == expected
        assert tuple(bunch.target_names) == groups
    return Files({"raw/archive.tar.gz": archive}, samples)


@makes("ag-news")
def make_ag_news(name: str) -> Files:
    lines = '"3","Oil, again","A ""record""\\in spite of #36;"\n"1","Ünited","<b>Two</b>"\n"4","Moon","Dust"\n'
    texts = [
        (2, 'Oil, again A "record"\\in spite of #36;'),
        (0, "Ünited <b>Two</b>"),
        (3, "Moon Dust"),
    ]
    samples = [{"label": label, "text": text} for label, text in texts]
    contents = {
        "raw/train.csv": lines.encode(),
        "raw/test.csv": lines.splitlines(keepends=True)[1].encode(),
    }
    return Files(contents, {"train": samples, "test": samples[1:2]})


@makes("adult")
def make_adult(name: str) -> Files:
    rows = [
        "39, State-gov, 77516, Bachelors, 13, Divorced, Adm-clerical, Wife, White, Male, 2174, 0, 40, United-States, <=50K",
        "40, ?, 121772, Assoc-voc, 11, Married-civ-spouse, ?, Husband, Asian-Pac-Islander, Male, 0, 0, 40, ?, >50K",
    ]
    columns = list(FACTORIES[name].fields)  # type: ignore[attr-defined]  # a TableFactory
    samples = []
    for row in rows:
        values = [
            int(cell) if cell.isdigit() else cell.replace("?", "") for cell in row.split(", ")
        ]
        samples.append(dict(zip(columns, [*values[:-1], int(values[-1] == ">50K")], strict=True)))
    test = "|1x3 Cross validator\n" + "".join(f"{row}.\n" for row in rows) + "\n"
    return Files(
        {"raw/train.csv": ("\n".join(rows) + "\n\n").encode(), "raw/test.csv": test.encode()},
        {"train": samples, "test": samples},
    )


@makes("penguins")
def make_penguins(name: str) -> Files:
    columns = "species,island,culmen_length_mm,culmen_depth_mm,flipper_length_mm,body_mass_g,sex"
    rows = "Adelie,Torgersen,39.1,18.7,181,3750,MALE\nGentoo,Biscoe,NA,NA,NA,NA,NA\nGentoo,Biscoe,44.5,15.7,217,4875,.\n"
    values = [
        (0, "Torgersen", 39.1, 18.7, 181.0, 3750.0, "MALE"),
        (2, "Biscoe", *[NAN] * 4, ""),
        (2, "Biscoe", 44.5, 15.7, 217.0, 4875.0, ""),
    ]
    samples = [dict(zip(columns.split(","), row, strict=True)) for row in values]
    return Files({"raw/all.csv": f"{columns}\n{rows}".encode()}, {"all": samples})


@makes("titanic")
def make_titanic(name: str) -> Files:
    columns = list(FACTORIES[name].fields)  # type: ignore[attr-defined]  # a TableFactory
    lines = (
        '1,1,"Duff Gordon, Lady. (\\"Mrs Morgan\\")","female",48,1,0,"11755",39.6,"A16","C","1",?,"London / Paris"\n'
        '3,0,"O\'Dwyer, ""Nellie""","male",?,0,0,"330959",?,?,"Q",?,304,?\n'
    )
    values = [
        (
            1,
            1,
            'Duff Gordon, Lady. ("Mrs Morgan")',
            "female",
            48.0,
            1,
            0,
            "11755",
            39.6,
            "A16",
            "C",
            "1",
            NAN,
            "London / Paris",
        ),
        (3, 0, 'O\'Dwyer, "Nellie"', "male", NAN, 0, 0, "330959", NAN, "", "Q", "", 304.0, ""),
    ]
    header = ",".join(f'"{column}"' for column in columns)
    return Files(
        {"raw/all.csv": f"{header}\n{lines}".encode()},
        {"all": [dict(zip(columns, row, strict=True)) for row in values]},
    )


@makes("california-housing")
def make_california(name: str) -> Files:
    lines = "-122.23,37.88,41,880,129,322,126,8.3252,452600\n-122.22,37.86,21,7099,1106,2401,1138,8.3014,358500\n"
    archive = tar_of(
        {
            "CaliforniaHousing/cal_housing.domain": b"-",
            "CaliforniaHousing/cal_housing.data": lines.encode(),
        }
    )
    bunch = fetch_by_sklearn("california_housing", archive)
    samples = [
        (row, float(price), float(price))
        for row, price in zip(bunch.data, bunch.target, strict=True)
    ]
    assert FACTORIES[name].feature_names == tuple(bunch.feature_names)
    return Files({"raw/archive.tar.gz": archive}, {"all": samples})


@makes("covertype")
def make_covertype(name: str) -> Files:
    rows = np.hstack([RANDOM.integers(-100, 4000, (7, 54)), np.arange(1, 8)[:, np.newaxis]])
    data = gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows.tolist()).encode())
    bunch = fetch_by_sklearn("covtype", data)
    assert FACTORIES[name].feature_names == tuple(bunch.feature_names)
    return Files(
        {"raw/covtype.csv.gz": data},
        {"all": twice(bunch.data.astype(np.float32), bunch.target - 1)},
    )


@makes("wine-quality")
def make_wine(name: str) -> Files:
    header = ";".join(
        f'"{column}"' for column in (*(FACTORIES[name].feature_names or ()), "quality")
    )
    row = [7.4, 0.7, 0.0, 1.9, 0.076, 11.0, 34.0, 0.9978, 3.51, 0.56, 9.4]
    data = f"{header}\n{';'.join(map(str, row))};5\n".encode()
    return Files(
        {"raw/red.csv": data, "raw/white.csv": data},
        {split: [(np.array(row), 5, 5)] for split in ("red", "white")},
    )


@makes("speech-commands")
def make_speech(name: str) -> Files:
    class_names = FACTORIES[name].class_names or ()
    files = {
        "./LICENSE": b"-",
        "./_background_noise_/white_noise.wav": b"-",
        "./testing_list.txt": b"zero/a1_nohash_0.wav\n",
        "./validation_list.txt": b"wow/a2_nohash_0.wav\n",
    }
    samples: dict[str, list[Any]] = {}
    words = {"bed": "train", "zero": "test", "wow": "validation"}
    for number, (word, split) in enumerate(words.items()):
        sound = RANDOM.integers(-(2**15), 2**15, 100 + number, np.int16)
        files[f"./{word}/a{number}_nohash_0.wav"] = bytes_of(
            soundfile.write, sound, 16_000, "PCM_16", format="WAV"
        )
        label = class_names.index(word)
        samples[split] = [{"label": label, "sound": sound, "speaker": f"a{number}"}]
    return Files({"raw/archive.tar.gz": tar_of(files)}, samples)


# ---------------------------------------------------------------------- the tests


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with contextlib.closing(ScriptedServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATA_STACK_OFFLINE", raising=False)
    monkeypatch.setenv("no_proxy", "*")


@functools.cache
def made(name: str) -> Files:
    return MAKERS[name](name)


def publish(
    server: ScriptedServer, name: str, contents: Mapping[str, bytes], n_samples: Mapping[str, int]
) -> Any:
    """The dataset with other sources, as its users derive it for files of their own."""
    sources = []
    for source in FACTORIES[name].sources:
        data = contents[source.identifier]
        url = server.serve(f"/{name}/{source.identifier}", data)
        sha256 = hashlib.sha256(data).hexdigest()
        sources.append(replace(source, source=url, mirrors=(), sha256=sha256, size=len(data)))

    base: Any = FACTORIES[name]

    class Published(base):  # type: ignore[misc]  # no type is known here
        pass

    Published.sources = sources
    Published.n_samples = n_samples
    return Published


def count(files: Files) -> dict[str, int]:
    return {split: len(samples) for split, samples in files.samples.items()}


def sort_keys(samples: Any) -> list[Any]:
    return [
        dict(sorted(sample.items())) if isinstance(sample, dict) else sample for sample in samples
    ]


def cause_of(factory: Any, tmp_path: Path) -> BaseException | None:
    """What preparing it fails with."""
    with pytest.raises(PreparationError) as caught:
        factory(FileStorageConnector(tmp_path)).prepare(progress=False)
    assert not factory(FileStorageConnector(tmp_path)).is_ready()
    return caught.value.__cause__


@pytest.mark.parametrize("name", FACTORIES)
def test_the_samples_are_those_of_the_files(
    name: str, server: ScriptedServer, tmp_path: Path
) -> None:
    files = made(name)

    factory = publish(server, name, files.contents, count(files))(FileStorageConnector(tmp_path))
    iterators = {}
    for split in factory.splits:
        iterators[split], _ = factory.get_dataset_iterator({"split": split})

    assert set(iterators) == set(files.samples)
    for split, samples in files.samples.items():
        iterator = iterators[split]
        assert_same(sort_keys(iterator), sort_keys(samples))
        assert len(pickle.loads(pickle.dumps(iterator)).read_batch([0])) == len(samples[0])
    assert factory.verify() == []


def test_a_column_written_in_blocks_is_the_file_of_numpy() -> None:
    array = draw(7, 2, 3)
    expected = io.BytesIO()
    np.save(expected, array)
    written = io.BytesIO()

    writer = ColumnWriter(written, len(array))
    writer.append(array[:4])
    writer.append(array[4:])

    assert written.getvalue() == expected.getvalue()
    assert writer.n_rows == 7


def test_an_empty_first_block_has_one_header() -> None:
    array = draw(7, 2, 3)
    expected = bytes_of(np.save, array)
    written = io.BytesIO()

    writer = ColumnWriter(written, len(array))
    writer.append(array[:0])
    writer.append(array)

    assert written.getvalue() == expected


@pytest.mark.parametrize("block", [draw(2, 2, 4), draw(2, 2, 3).astype(np.int64)])
def test_a_block_of_another_form_is_an_error(block: Any) -> None:
    writer = ColumnWriter(io.BytesIO(), 9)
    writer.append(draw(7, 2, 3))

    with pytest.raises(ValueError, match=r"expected rows of uint8 and shape \(2, 3\)"):
        writer.append(block)


@pytest.mark.parametrize("name", ["imdb-reviews", "20-newsgroups", "speech-commands"])
def test_a_derived_class_may_leave_out_splits(
    name: str, server: ScriptedServer, tmp_path: Path
) -> None:
    files = made(name)
    factory = publish(server, name, files.contents, {"test": len(files.samples["test"])})
    factory.splits = ("test",)

    iterator, _ = factory(FileStorageConnector(tmp_path)).get_dataset_iterator()

    assert_same(sort_keys(iterator), sort_keys(files.samples["test"]))


def test_a_backslash_of_a_table_is_kept(server: ScriptedServer, tmp_path: Path) -> None:
    files = made("penguins")
    data = files.contents["raw/all.csv"].replace(b"Torgersen", rb"Torger\'sen")
    factory = publish(server, "penguins", {"raw/all.csv": data}, count(files))

    iterator, _ = factory(FileStorageConnector(tmp_path)).get_dataset_iterator()

    assert iterator[0]["island"] == r"Torger\'sen"


@pytest.mark.parametrize("name", FACTORIES)
def test_a_wrong_number_of_samples_is_refused_naming_the_file(
    name: str, server: ScriptedServer, tmp_path: Path
) -> None:
    files = made(name)
    split, *_ = files.samples
    # 5 more is a multiple of the files of CIFAR-10.
    n_samples = count(files) | {split: len(files.samples[split]) + 5}

    cause = cause_of(publish(server, name, files.contents, n_samples), tmp_path)

    assert isinstance(cause, DatasetFileCorruptError)
    assert re.match(r"'[\w./-]+' (holds|ends|goes on)", str(cause)), cause


@pytest.mark.parametrize("name", FACTORIES)
def test_the_card_and_the_published_sources_are_complete(name: str) -> None:
    factory = FACTORIES[name]

    assert factory.card.name == name
    assert spdx_problem(factory.card.license or "") is None
    assert re.fullmatch(r"@\w+\{[\w-]+,\n.*\n\}", factory.card.citation or "", re.DOTALL)
    assert (factory.card.homepage or "").startswith("http")
    assert list(factory.splits) == list(factory.n_samples)
    assert {source.identifier for source in factory.sources} == set(made(name).contents)
    assert all(source.sha256 and source.source.startswith("http") for source in factory.sources)


def change_tar(data: bytes, change: Callable[[dict[str, bytes]], Any]) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]  # a file
    change(files)
    return tar_of(files)


def wave(rate: int = 16_000) -> bytes:
    return bytes_of(soundfile.write, np.zeros(9, np.int16), rate, "PCM_16", format="WAV")


def compressed_line_of_usps(first_value: str = "0", *, n_values: int = 256) -> bytes:
    cells = [f"{number}:0" for number in range(2, n_values + 1)]
    return bz2.compress(f"1 1:{first_value} {' '.join(cells)}\n".encode())


def svhn_with_labels(*labels: float) -> bytes:
    images = np.zeros((32, 32, 3, 4), np.uint8)
    return bytes_of(savemat, {"X": images, "y": np.array(labels)[:, np.newaxis]})


def with_file(name: str, data: bytes | None) -> Callable[[bytes], bytes]:
    """What replaces, adds or removes a file of an archive."""
    return lambda archive: change_tar(
        archive, lambda files: files.pop(name) if data is None else files.update({name: data})
    )


IMAGES = "raw/train-images"
LABELS = "raw/train-labels"
ARCHIVE = "raw/archive.tar.gz"
DAMAGE: list[tuple[str, str, Callable[[bytes], bytes], str]] = [
    (
        "kmnist",
        IMAGES,
        lambda data: gzip.compress(gzip.decompress(data)[:-1]),
        "raw/train-images' ends after 4 of 5 rows",
    ),
    (
        "kmnist",
        IMAGES,
        lambda data: gzip.compress(gzip.decompress(data) + b"-"),
        "raw/train-images' has more than",
    ),
    (
        "kmnist",
        IMAGES,
        lambda data: gzip.compress(idx(draw(5, 784))),
        "raw/train-images' holds uint8 of shape",
    ),
    (
        "kmnist",
        LABELS,
        lambda data: gzip.compress(idx(np.full(5, 10, np.uint8))),
        "raw/train-labels' has classes from 10",
    ),
    (
        "qmnist",
        LABELS,
        lambda data: gzip.compress(idx(draw(4, most=9))),
        "the third column of Published is 'origin', which needs 2 dimensions",
    ),
    (
        "kmnist",
        LABELS,
        lambda data: gzip.compress(idx(draw(5, 1, most=9))),
        "the third column of Published is 'tag', which needs 1 dimensions",
    ),
    (
        "cifar10",
        ARCHIVE,
        with_file("cifar-10-batches-bin/data_batch_2.bin", bytes([10]) * (2 * 3073)),
        "data_batch_2.bin' has classes from 10",
    ),
    ("usps", "raw/test.bz2", lambda data: bz2.compress(b"1 1:0\n"), "raw/test.bz2' is not lines"),
    (
        "usps",
        "raw/test.bz2",
        lambda data: compressed_line_of_usps(n_values=255),
        "raw/test.bz2' is not lines",
    ),
    (
        "usps",
        "raw/test.bz2",
        lambda data: bz2.compress(bz2.decompress(data).replace(b" 3:", b" 4:")),
        "see line 1",
    ),
    ("usps", "raw/test.bz2", lambda data: compressed_line_of_usps("0_1"), "see line 1"),
    ("usps", "raw/test.bz2", lambda data: compressed_line_of_usps("nan"), "is no number"),
    ("svhn", "raw/train.mat", lambda data: svhn_with_labels(1, 11, 1, 1), "labels from 1 to 11"),
    ("svhn", "raw/train.mat", lambda data: svhn_with_labels(1, 0, 1, 1), "labels from 0 to 1"),
    ("svhn", "raw/train.mat", lambda data: svhn_with_labels(1, 1.5, 1, 1), "the label 1.5"),
    (
        "svhn",
        "raw/train.mat",
        lambda data: bytes_of(savemat, {"z": np.zeros(3)}),
        "holds a variable 'z' of shape (1, 3), expected X and y, once each",
    ),
    (
        "svhn",
        "raw/train.mat",
        lambda data: bytes_of(savemat, {"y": np.ones((4, 1))}),
        "lacks the variables X",
    ),
    (
        "svhn",
        "raw/train.mat",
        lambda data: bytes_of(savemat, {"X": np.zeros((32, 32, 3, 4))}),
        "images of float64, expected uint8",
    ),
    (
        "covertype",
        "raw/covtype.csv.gz",
        lambda data: gzip.compress(gzip.decompress(data).replace(b",1\n", b",1.5\n")),
        "raw/covtype.csv.gz' has the label 1.5, expected an integer",
    ),
    (
        "wine-quality",
        "raw/red.csv",
        lambda data: data.replace(b";5\n", b";nan\n"),
        "raw/red.csv' has the label nan, expected an integer",
    ),
    (
        "california-housing",
        ARCHIVE,
        with_file("CaliforniaHousing/cal_housing.data", b"1,2,3\n"),
        "has 3 columns, expected 9",
    ),
    ("svhn", "raw/train.mat", lambda data: data[:-20], "raw/train.mat' is truncated"),
    ("svhn", "raw/test.mat", lambda data: b"-" + data, "raw/test.mat' is not a little-endian"),
    (
        "adult",
        "raw/test.csv",
        lambda data: data.replace(b">50K", b">60K"),
        "raw/test.csv' has the class '>60K.'",
    ),
    (
        "titanic",
        "raw/all.csv",
        lambda data: data.replace(b",48,", b",old,"),
        "raw/all.csv', line 2, column 5",
    ),
    ("speech-commands", ARCHIVE, with_file("./bed/a_nohash_1.wav", wave(8000)), "8000"),
    (
        "speech-commands",
        ARCHIVE,
        with_file("./hello/a_nohash_1.wav", wave()),
        "the folder 'hello' is none of the words",
    ),
    (
        "speech-commands",
        ARCHIVE,
        with_file("./bed/a_nohash_1.wav", wave()[:-4]),
        "the sound ends after 7 of 9 samples",
    ),
    (
        "speech-commands",
        ARCHIVE,
        with_file("./testing_list.txt", None),
        "holds 2 samples of 'train'",
    ),
    ("imdb-reviews", ARCHIVE, with_file("aclImdb/test/pos/1_1.txt", b"\xff"), "1_1.txt"),
]


@pytest.mark.parametrize(("name", "identifier", "damage", "message"), DAMAGE)
def test_damage_is_an_error_that_names_the_file(
    name: str,
    identifier: str,
    damage: Callable[[bytes], bytes],
    message: str,
    server: ScriptedServer,
    tmp_path: Path,
) -> None:
    files = made(name)
    contents = {**files.contents, identifier: damage(files.contents[identifier])}

    cause = cause_of(publish(server, name, contents, count(files)), tmp_path)

    assert isinstance(cause, DataStackError)
    assert message in str(cause)


def test_the_readme_lists_all_datasets_and_its_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = README.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert len(FACTORIES) == 24
    assert all(
        f"| [{name}]({factory.card.homepage}) |" in text for name, factory in FACTORIES.items()
    )
    exec(
        compile(
            "".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)),
            README,
            "exec",
        ),
        {},
    )
