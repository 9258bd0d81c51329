"""Copies that are kept of compressed texts: used again, changed, damaged, made once, removed."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import lzma
import multiprocessing
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from full_disk import files_limited

import data_stack
from data_stack.exception import (
    ArchiveError,
    ArchiveLimitError,
    ConfigError,
    ResourceChangedError,
    StorageFullError,
)
from data_stack.formats.text_tables import (
    kept_folder,
    kept_texts,
    pinned_file,
    reading,
    text_copy,
)
from data_stack.formats.text_tables.kept_folder import KeptFile, KeptFolder, surplus_texts

Compress = Callable[[bytes], bytes]

_ROWS = [{"id": number, "text": f"é {number}"} for number in range(2000)]
_TEXT = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _ROWS).encode()
_OTHER_TEXT = _TEXT.replace(b'"text"', b'"TEXT"')

#: Longer than the samples that identify a copy.
_LONG_ROWS = [{"id": number, "text": f"é {number}"} for number in range(20_000)]
_LONG_TEXT = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _LONG_ROWS).encode()

_COMPRESSIONS: list[Compress] = [gzip.compress, bz2.compress, lzma.compress, zstandard.compress]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the copies, in which those of small files are kept as well.

    Files count as settled at once: a program cannot set the time of the last change back.
    """
    monkeypatch.setattr(reading, "MAX_TABLE_BYTES", 0)
    monkeypatch.setattr(text_copy, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(pinned_file, "SETTLING_NS", -(10**18))
    monkeypatch.setenv(kept_folder.FOLDER_VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def write(folder: Path, data: bytes, name: str = "a.jsonl.gz") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def load(path: Path) -> Any:
    return data_stack.from_jsonl(str(path))


def described(path: Path) -> Any:
    rows = load(path)
    return [list(rows), rows.column_types, rows.fingerprint(), rows.recipe()]


def copies_in(folder: Path) -> dict[str, int]:
    """The inode of each copy, which changes when the copy is made again."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.text")}


# ---------------------------------------------------------------------- the next opening


@pytest.mark.parametrize("compress", _COMPRESSIONS)
def test_the_next_opening_reads_the_kept_copy(
    tmp_path: Path, folder: Path, compress: Compress
) -> None:
    path = write(tmp_path, compress(_TEXT))
    first = described(path)
    copies = copies_in(folder)

    assert described(path) == first
    assert first[0] == _ROWS
    assert copies_in(folder) == copies
    assert len(copies) == 1


def test_a_text_in_another_encoding_is_kept_for_each_encoding(tmp_path: Path, folder: Path) -> None:
    path = write(tmp_path, "name,n\né,1\n".encode("latin-1"), "a.csv")

    def read(encoding: str) -> Any:
        return data_stack.from_csv(str(path), encoding=encoding)[0]

    assert read("latin-1") == read("iso-8859-1") == {"name": "é", "n": 1}
    assert read("cp437") == {"name": "\u0398", "n": 1}
    assert read("latin-1") == {"name": "é", "n": 1}
    assert len(copies_in(folder)) == 2


def test_a_changed_file_is_copied_again(tmp_path: Path, folder: Path) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    load(path)
    status = path.stat()
    write(tmp_path, gzip.compress(_OTHER_TEXT))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert load(path)[3] == {"id": 3, "TEXT": "é 3"}
    assert len(copies_in(folder)) == 2


def test_a_small_text_stays_in_memory(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_copy, "MAX_BYTES_IN_MEMORY", 1 << 20)

    assert list(load(write(tmp_path, gzip.compress(_TEXT)))) == _ROWS
    assert not folder.exists()


def test_a_file_written_just_now_is_kept_only_temporarily(
    tmp_path: Path, folder: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_file, "SETTLING_NS", 1000 * 10**9)

    rows = load(write(tmp_path, gzip.compress(_TEXT)))

    assert rows[3] == _ROWS[3]
    assert len(list(temporary_folder.iterdir())) == 1
    assert not folder.exists()
    del rows
    assert list(temporary_folder.iterdir()) == []


# ---------------------------------------------------------------------- files that change


@pytest.mark.usefixtures("folder")
def test_a_file_written_to_under_its_table_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    rows = load(path)
    assert rows[0] == _ROWS[0]

    with open(path, "ab") as file:
        file.write(b"\0")

    with pytest.raises(ResourceChangedError, match=r"a\.jsonl\.gz"):
        rows[0]
    with pytest.raises(ResourceChangedError, match=r"a\.jsonl\.gz"):
        pickle.loads(pickle.dumps(rows))[0]


@pytest.mark.usefixtures("folder")
def test_a_replaced_or_removed_file_is_read_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    rows = load(path)

    os.replace(write(tmp_path, gzip.compress(_OTHER_TEXT), "new"), path)
    assert rows[5] == _ROWS[5]
    with pytest.raises(ResourceChangedError, match=r"a\.jsonl\.gz"):
        pickle.loads(pickle.dumps(rows))[5]

    path.unlink()
    assert rows[5] == _ROWS[5]
    assert pickle.loads(pickle.dumps(rows))[5] == _ROWS[5]


# ---------------------------------------------------------------------- damaged files


@pytest.mark.parametrize("compress", _COMPRESSIONS)
def test_a_truncated_file_is_refused_and_keeps_nothing(
    tmp_path: Path, folder: Path, compress: Compress
) -> None:
    data = compress(_TEXT)
    for size in (len(data) - 1, len(data) - 9, len(data) // 2, 20):
        with pytest.raises(ArchiveError, match=r"a\.jsonl\.gz.* is truncated"):
            load(write(tmp_path, data[:size]))

    assert list(folder.glob("*")) == []


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_wrong_checksum_is_refused_and_keeps_nothing(
    tmp_path: Path, folder: Path, compress: Compress
) -> None:
    data = bytearray(compress(_TEXT))
    data[-6] ^= 1

    with pytest.raises(ArchiveError, match=r"a\.jsonl\.gz.* is damaged"):
        load(write(tmp_path, bytes(data)))

    assert list(folder.glob("*")) == []


@pytest.mark.parametrize("compress", _COMPRESSIONS)
def test_other_data_behind_the_text_is_refused(
    tmp_path: Path, folder: Path, compress: Compress
) -> None:
    with pytest.raises(ArchiveError, match=r"a\.jsonl\.gz.* has other data behind"):
        load(write(tmp_path, compress(_TEXT) + b"garbage"))

    assert list(folder.glob("*")) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("compress", _COMPRESSIONS)
def test_several_members_are_one_text(tmp_path: Path, compress: Compress) -> None:
    middle = _TEXT.index(b"1000") - 3
    packed = compress(_TEXT[:middle]) + compress(b"") + compress(_TEXT[middle:])

    for _ in range(2):
        assert list(load(write(tmp_path, packed))) == _ROWS


@pytest.mark.usefixtures("folder")
def test_an_empty_text_has_no_columns(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="has no columns"):
            load(write(tmp_path, gzip.compress(b"")))


@pytest.mark.usefixtures("temporary_folder")
def test_a_bomb_is_refused_and_keeps_nothing(
    tmp_path: Path, folder: Path, temporary_folder: Path
) -> None:
    path = write(tmp_path, zstandard.compress(b"\n" * (64 << 20)))

    with pytest.raises(ArchiveLimitError, match="200 fold"):
        load(path)

    assert list(folder.glob("*")) == []
    assert list(temporary_folder.iterdir()) == []


# ---------------------------------------------------------------------- damaged copies


def test_a_copy_that_was_changed_is_made_again(tmp_path: Path, folder: Path) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    load(path)
    copy = next(folder.glob("*.text"))
    description = next(folder.glob("*.text.json"))

    for damaged_file in (copy, description):
        data = damaged_file.read_bytes()
        for damaged_data in (data[:-1], b"", data[:20] + b"7" + data[21:]):
            damaged_file.write_bytes(damaged_data)
            assert list(load(path)) == _ROWS
            assert copy.read_bytes() == _TEXT


def test_the_copy_of_another_text_is_made_again(tmp_path: Path, folder: Path) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    other_path = write(tmp_path, gzip.compress(_OTHER_TEXT), "b.jsonl.gz")
    load(path)
    kept_files = {"".join(file.suffixes): file for file in folder.glob("*.text*")}
    load(other_path)
    for file in set(folder.glob("*.text*")) - set(kept_files.values()):
        file.replace(kept_files["".join(file.suffixes)])

    assert list(load(path)) == _ROWS
    assert kept_files[".text"].read_bytes() == _TEXT


@pytest.mark.parametrize("facts", [[], {}, {"name": 1}, "a text", None])
def test_a_description_that_is_none_is_made_again(tmp_path: Path, folder: Path, facts: Any) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    load(path)
    (description,) = folder.glob("*.text.json")
    assert KeptFolder(folder).store_facts(description.name, facts)
    (text,) = KeptFolder(folder).list_files().texts

    assert kept_texts.source_of(KeptFolder(folder), text) == "?"
    assert list(load(path)) == _ROWS
    assert kept_texts.source_of(KeptFolder(folder), text) == str(path)


@pytest.mark.parametrize("suffix", [".text", ".text.json"])
@pytest.mark.parametrize("kind", ["folder", "link", "loop", "pipe"])
def test_what_is_no_file_is_not_opened(
    tmp_path: Path, folder: Path, suffix: str, kind: str
) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    load(path)
    (kept_file,) = folder.glob(f"*{suffix}")
    kept_file.rename(tmp_path / "elsewhere")
    if kind == "folder":
        kept_file.mkdir()
    elif kind == "link":
        kept_file.symlink_to(tmp_path / "elsewhere")
    elif kind == "loop":
        kept_file.symlink_to(kept_file)
    else:
        os.mkfifo(kept_file)

    assert list(load(path)) == _ROWS
    assert kept_file.is_dir() if kind == "folder" else not kept_file.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_the_copy_of_another_user_is_not_read(tmp_path: Path, folder: Path) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    load(path)
    copies = copies_in(folder)
    (description,) = folder.glob("*.text.json")
    os.chown(description, 12345, -1)

    assert list(load(path)) == _ROWS
    assert copies_in(folder).keys() == copies.keys()
    assert copies_in(folder) != copies


@pytest.mark.parametrize("has_hole", [False, True])
def test_the_whole_copy_is_verified_after_a_restart(
    tmp_path: Path, folder: Path, has_hole: bool
) -> None:
    path = write(tmp_path, gzip.compress(_LONG_TEXT))
    load(path)
    copy = next(folder.glob("*.text"))
    inode = copy.stat().st_ino
    if has_hole:
        with open(copy, "r+b") as file:
            file.seek(30_000)
            file.write(bytes(4096))
    _describe_as_of_another_boot(folder, copy)

    rows = load(path)

    assert rows[len(rows) - 1] == _LONG_ROWS[-1]
    assert copy.read_bytes() == _LONG_TEXT
    assert (copy.stat().st_ino != inode) is has_hole


def _describe_as_of_another_boot(folder: Path, copy: Path) -> None:
    """Describe a copy with its present version, as if it had been made before a restart."""
    kept_folder_of_copies = KeptFolder(folder)
    name = copy.name + ".json"
    description = kept_folder_of_copies.load_facts(name)
    pinned = kept_texts.pin_file(str(copy))
    description["version"] = [*pinned.version.content, pinned.digest_of_samples()]
    description["boot"] = "another"
    assert kept_folder_of_copies.store_facts(name, description)


def test_a_copy_written_to_under_its_table_is_an_error(tmp_path: Path, folder: Path) -> None:
    rows = load(write(tmp_path, gzip.compress(_TEXT)))
    assert rows[0] == _ROWS[0]

    next(folder.glob("*.text")).write_bytes(_OTHER_TEXT)

    with pytest.raises(ResourceChangedError, match=r"\.text"):
        rows[0]


def test_copies_that_are_removed_are_made_again_by_workers(tmp_path: Path, folder: Path) -> None:
    rows = load(write(tmp_path, gzip.compress(_TEXT)))
    assert rows[0] == _ROWS[0]
    pickled = pickle.dumps(rows)

    KeptFolder(folder).clear()

    assert list(folder.iterdir()) == []
    assert rows[7] == _ROWS[7]
    assert pickle.loads(pickled)[7] == _ROWS[7]
    assert len(copies_in(folder)) == 1


# ---------------------------------------------------------------------- the folder


def test_a_folder_that_cannot_be_written_to_is_no_error(
    tmp_path: Path, folder: Path, temporary_folder: Path
) -> None:
    folder.write_text("a file")

    rows = load(write(tmp_path, gzip.compress(_TEXT)))

    assert rows[7] == _ROWS[7]
    assert len(list(temporary_folder.glob("data_stack_text_*"))) == 1
    assert folder.read_text() == "a file"


def test_a_full_disk_says_what_to_do_and_keeps_nothing(
    tmp_path: Path, folder: Path, temporary_folder: Path
) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))

    with (
        files_limited(10_000),
        pytest.raises(StorageFullError, match=r"a\.jsonl\.gz.*cache --clear.*TMPDIR"),
    ):
        load(path)

    assert list(folder.iterdir()) == []
    assert list(temporary_folder.iterdir()) == []


def test_a_folder_that_is_full_keeps_nothing_and_raises_nothing(folder: Path) -> None:
    with files_limited(10_000):
        was_stored = KeptFolder(folder).store("0" * 64 + ".text", [b"x" * 8_000] * 2)

    assert not was_stored
    assert list(folder.iterdir()) == []


def test_what_a_killed_writer_left_is_removed(tmp_path: Path, folder: Path) -> None:
    folder.mkdir()
    names = ("0" * 64 + ".text", "0" * 64 + ".lock", "row_index_x.unfinished")
    leftovers = [folder / name for name in names]
    new_leftover = folder / ("1" * 64 + ".text")
    for path in (*leftovers, new_leftover):
        path.write_bytes(b"half a ro")
    for path in leftovers:
        os.utime(path, (time.time() - 120, time.time() - 120))

    load(write(tmp_path, gzip.compress(_TEXT)))

    assert not any(path.exists() for path in leftovers)
    assert new_leftover.exists()
    KeptFolder(folder).clear()
    assert list(folder.iterdir()) == []


def test_a_file_that_is_being_written_is_not_removed(folder: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"first piece, "
        (unfinished,) = folder.iterdir()
        os.utime(unfinished, (time.time() - 120, time.time() - 120))
        KeptFolder(folder).prune()
        KeptFolder(folder).clear()
        yield b"second piece"

    assert KeptFolder(folder).store("0" * 64 + ".text", pieces())
    assert (folder / ("0" * 64 + ".text")).read_bytes() == b"first piece, second piece"


def test_texts_take_at_most_what_stays_free() -> None:
    now = 10 * kept_folder.MIN_UNUSED_SECONDS
    old, middle, last = (KeptFile(Path(f"{n}.text"), 100, used_at=n) for n in range(3))
    texts = [last, old, middle]

    assert surplus_texts(texts, n_free_bytes=300, now=now) == []
    assert surplus_texts(texts, n_free_bytes=299, now=now) == [old]
    assert surplus_texts(texts, n_free_bytes=0, now=now) == [old, middle]
    assert surplus_texts([last], n_free_bytes=0, now=now) == [last]
    assert surplus_texts([], n_free_bytes=0, now=now) == []


def test_texts_used_less_than_a_day_ago_stay() -> None:
    texts = [KeptFile(Path(f"{n}.text"), 100, used_at=n) for n in range(3)]

    assert surplus_texts(texts, n_free_bytes=0, now=kept_folder.MIN_UNUSED_SECONDS) == texts[:1]


# ---------------------------------------------------------------------- several processes


def load_at_once(path: str, barrier: Any, answers: Any) -> None:
    """Open a file at the same moment as others, and tell how many texts were copied for it."""
    patch = pytest.MonkeyPatch()
    patch.setattr(reading, "MAX_TABLE_BYTES", 0)
    patch.setattr(text_copy, "MAX_BYTES_IN_MEMORY", 0)
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]  # the shortest handler
    logger = logging.getLogger("data_stack")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    barrier.wait()
    rows: Any = data_stack.from_jsonl(path)
    n_copies = sum("copying the text" in message for message in messages)
    answers.put((rows[1999], n_copies))


def test_processes_that_open_at_once_copy_once(tmp_path: Path, folder: Path) -> None:
    path = write(tmp_path, gzip.compress(_TEXT))
    time.sleep(2.1)  # other processes do not take it as settled at once
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    answers = context.Queue()

    processes = []
    for _ in range(2):
        process = context.Process(target=load_at_once, args=(str(path), barrier, answers))
        process.start()
        processes.append(process)
    received = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()

    assert [row for row, _ in received] == [_ROWS[1999]] * 2
    assert sum(n_copies for _, n_copies in received) == 1
    assert len(copies_in(folder)) == 1
    assert list(folder.glob("*.lock")) == []
