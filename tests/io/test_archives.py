"""Tests of reading archives and compressed files as streams."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from data_stack.exception import ArchiveError, ArchiveLimitError
from data_stack.io.archives import ArchiveLimits, open_archive, open_decompressed
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

FILES = {
    "readme.txt": b"hello\n",
    "images/0.bin": bytes(range(256)) * 1500,
    "images/1.bin": b"",
    "images/deep/er/2.bin": random.Random(0).randbytes(300_000),
}

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def tar_of(files: dict[str, bytes] = FILES, tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes] = FILES, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def all_archives(files: dict[str, bytes] = FILES) -> dict[str, bytes]:
    """The same files in every kind of archive."""
    archives = {f"tar.{name}": compress(tar_of(files)) for name, compress in COMPRESS.items()}
    archives |= {f"tar, {form}": tar_of(files, form) for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)}
    archives |= {f"zip, {method}": zip_of(files, method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)}
    return archives


ARCHIVES = all_archives()
KINDS = sorted(ARCHIVES)


# ---------------------------------------------------------------------- compressed files


@pytest.mark.parametrize("compression", COMPRESS)
def test_compressed_streams_are_read_as_one_and_zeros_behind_them_are_padding(compression: str) -> None:
    data, compress = random.Random(1).randbytes(1 << 20) + bytes(3 << 20), COMPRESS[compression]

    with open_decompressed(io.BytesIO(compress(data) + compress(b"") + compress(b"two") + bytes(1000))) as stream:
        assert stream.read() == data + b"two"


# ---------------------------------------------------------------------- members


@pytest.mark.parametrize("kind", KINDS)
def test_members_are_read_in_their_order_and_by_name_in_any_other(kind: str) -> None:
    with open_archive(io.BytesIO(ARCHIVES[kind])) as archive:
        found = {member.name: (archive.read(member), member.size) for member in archive}

        assert found == {name: (content, len(content)) for name, content in FILES.items()}
        assert archive.names() == list(FILES)
        for name in [*reversed(FILES), *FILES]:
            assert archive.read(name) == FILES[name]
        with pytest.raises(ArchiveError, match=r"no file 'image/0\.bin'"):
            archive.open("image/0.bin")


def test_a_member_read_after_the_iteration_went_on_is_an_error_not_other_data() -> None:
    archive = open_archive(io.BytesIO(ARCHIVES["tar.gzip"]))
    members = iter(archive)
    next(members)
    stream = archive.open(next(members))
    stream.read(10)
    next(members)

    with pytest.raises(ValueError, match="can no longer be read"):
        stream.read()


def test_folders_are_members_without_content_and_may_be_named_again() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in (".", "a", "./a", "a/b"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive_file:
        archive_file.writestr("a/", b"")
        archive_file.writestr("a/b/", b"")

    for stream in (buffer, zipped):
        with open_archive(stream) as archive:
            assert {(member.name, member.is_folder) for member in archive} == {("a", True), ("a/b", True)}
            assert archive.names() == []
            with pytest.raises(ArchiveError, match="no file 'a'"):
                archive.open("a")


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_are_read(tar_format: int) -> None:
    files = {"/".join(["long" * 12] * 12) + "/ü 文.bin": b"1", "small": b"2"}

    with open_archive(io.BytesIO(tar_of(files, tar_format))) as archive:
        assert {name: archive.read(name) for name in archive.names()} == files
    with open_archive(io.BytesIO(zip_of(files))) as archive:
        assert {name: archive.read(name) for name in archive.names()} == files


def test_a_tar_written_by_other_tools_is_read(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    for form in ("gnu", "posix", "ustar", "v7"):
        subprocess.run(["tar", f"--format={form}", "-C", tmp_path / "in", "-czf", tmp_path / f"{form}.tgz", "."], check=True)

        with open(tmp_path / f"{form}.tgz", "rb") as file, open_archive(file) as archive:
            assert {name: archive.read(name) for name in archive.names()} == FILES


# ---------------------------------------------------------------------- unpacking


@pytest.mark.parametrize("kind", KINDS)
def test_unpacking_stores_all_or_chosen_files_below_a_prefix_within_limits(kind: str) -> None:
    connector = InMemoryStorageConnector()
    limits = ArchiveLimits(max_bytes=sum(map(len, FILES.values())), max_members=len(FILES) * 3)

    with open_archive(io.BytesIO(ARCHIVES[kind]), limits=limits) as archive:
        stored = archive.unpack(connector, "raw/set")
        by_rule = archive.unpack(connector, "b", members=lambda member: member.size == 0)

    assert stored == [f"raw/set/{name}" for name in FILES]
    assert by_rule == ["b/images/1.bin"]
    assert {name: connector.get_resource(f"raw/set/{name}").read() for name in FILES} == FILES
    for too_few in (ArchiveLimits(max_bytes=500_000), ArchiveLimits(max_members=3)):
        with pytest.raises(ArchiveLimitError, match=r"limits=ArchiveLimits\(max_"):
            with open_archive(io.BytesIO(ARCHIVES[kind]), limits=too_few) as archive:
                archive.unpack(InMemoryStorageConnector())


def test_names_outside_of_the_grammar_are_unpacked_under_new_ones() -> None:
    connector = InMemoryStorageConnector()

    with open_archive(io.BytesIO(zip_of({"my file (1).txt": b"1", "plain": b"2"}))) as archive:
        with pytest.raises(ArchiveError, match="rename"):
            archive.unpack(connector)
        stored = archive.unpack(connector, "x/", rename=lambda name: name.translate({32: "_", 40: "", 41: ""}))

    assert stored == ["x/my_file_1.txt", "x/plain"]


def test_a_member_that_turns_out_damaged_is_not_published() -> None:
    data = bytearray(zip_of({"good": b"1", "bad": b"content" * 1000}, zipfile.ZIP_STORED))
    data[data.index(b"contentcontent") + 5000] ^= 1
    connector = InMemoryStorageConnector()

    with open_archive(io.BytesIO(data)) as archive, pytest.raises(ArchiveError, match="CRC"):
        archive.unpack(connector)

    assert connector.list_resources() == ["good"]
