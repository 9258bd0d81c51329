"""Archives and compressed files as streams: no damaged or hostile one does harm, raises a foreign
error, or is silently short.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import random
import struct
import subprocess
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from process_harness import each_cut, each_flip
from sizes import sized

from data_stack.exception import ArchiveError, ArchiveLimitError, DataStackError, UnsafeArchiveError
from data_stack.io.archives import ArchiveLimits, open_archive, open_decompressed
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.testing.storage_connector import content as content_of

Format = Literal[0, 1, 2]
FILES = {
    "readme.txt": b"hello\n",
    "images/0.bin": bytes(range(256)) * 1500,
    "images/1.bin": b"",
    "images/deep/er/2.bin": random.Random(0).randbytes(300_000),
}

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def member(
    name: str,
    content: bytes = b"x",
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    form: Format = tarfile.GNU_FORMAT,
) -> bytes:
    """One member of a tar, header and content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info.tobuf(form) + content + bytes(-len(content) % 512)


def tar_of(*members: bytes) -> bytes:
    return b"".join(members) + bytes(1024)


def pax(kind: bytes = tarfile.XHDTYPE, **records: str) -> bytes:
    """A pax header with the given records."""
    lines = []
    for key, value in records.items():
        rest = f" {key}={value}\n".encode()
        size = len(rest) + 1
        while len(str(size)) + len(rest) != size:
            size += 1
        lines.append(str(size).encode() + rest)
    return member("pax", b"".join(lines), kind)


def zip_of(*members: tuple[str, bytes], mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo()
            info.filename = name  # as it is: the constructor would tidy it up
            info.compress_type, info.external_attr = method, mode << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def patched(data: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """``data`` with ``value`` written ``offset`` bytes after the last ``signature``."""
    at = data.rindex(signature) + offset
    return data[:at] + value + data[at + len(value) :]


def unpacked(data: bytes) -> dict[str, bytes]:
    """Everything that an archive holds, by way of a store."""
    connector = InMemoryStorageConnector()
    with open_archive(io.BytesIO(data)) as archive:
        archive.unpack(connector)
    return {
        identifier: content_of(connector, identifier) for identifier in connector.list_resources()
    }


def decompress(data: bytes) -> bytes:
    with open_decompressed(io.BytesIO(data)) as stream:
        return b"".join(iter(lambda: stream.read(1 << 16), b""))


def tar_of_files(files: dict[str, bytes], form: Format = tarfile.PAX_FORMAT) -> bytes:
    return tar_of(*(member(name, content, form=form) for name, content in files.items()))


#: The same files in every kind of archive.
ARCHIVES = {
    **{f"tar.{name}": compress(tar_of_files(FILES)) for name, compress in COMPRESS.items()},
    **{
        f"tar, {form}": tar_of_files(FILES, form)
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    },
    **{
        f"zip, {method}": zip_of(*FILES.items(), method=method)
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    },
}


# ---------------------------------------------------------------------- compressed files


@pytest.mark.parametrize("compression", COMPRESS)
def test_concatenated_streams_are_one_and_zeros_are_padding(
    compression: str,
) -> None:
    data, compress = random.Random(1).randbytes(1 << 18) + bytes(3 << 18), COMPRESS[compression]

    with open_decompressed(
        io.BytesIO(compress(data) + compress(b"") + compress(b"two") + bytes(1000))
    ) as stream:
        assert stream.read() == data + b"two"


@pytest.mark.parametrize("compression", COMPRESS)
def test_streams_of_all_lengths_follow_one_another(compression: str) -> None:
    generator = random.Random(2)
    # They end before, at and after the ends of the pieces that are unpacked at a time.
    lengths = [0, 1, *range(900, 1_100, 10), *range(65_400, 65_600, 50), 200_000, 1]
    contents = [generator.randbytes(length) for length in lengths]

    compressed = b"".join(COMPRESS[compression](content) for content in contents)

    assert decompress(compressed) == b"".join(contents)


# ---------------------------------------------------------------------- members


@pytest.mark.parametrize("kind", ARCHIVES)
def test_members_are_read_in_order_and_by_name(kind: str) -> None:
    with open_archive(io.BytesIO(ARCHIVES[kind])) as archive:
        found = {member.name: (archive.read(member), member.size) for member in archive}

        assert found == {name: (content, len(content)) for name, content in FILES.items()}
        assert archive.names() == list(FILES)
        for name in [*reversed(FILES), *FILES]:
            assert archive.read(name) == FILES[name]
        with pytest.raises(ArchiveError, match=r"no file 'image/0\.bin'"):
            archive.open("image/0.bin")


def test_a_member_that_the_iteration_passed_is_an_error() -> None:
    archive = open_archive(io.BytesIO(ARCHIVES["tar.gzip"]))
    members = iter(archive)
    next(members)
    stream = archive.open(next(members))
    stream.read(10)
    next(members)

    with pytest.raises(ValueError, match="can no longer be read"):
        stream.read()


def test_folders_are_members_without_content_and_may_be_named_again() -> None:
    tar = tar_of(*(member(name, b"", tarfile.DIRTYPE) for name in (".", "a", "./a", "a/b")))

    for data in (tar, zip_of(("a/", b""), ("a/b/", b""))):
        with open_archive(io.BytesIO(data)) as archive:
            assert {(member.name, member.is_folder) for member in archive} == {
                ("a", True),
                ("a/b", True),
            }
            assert archive.names() == []
            with pytest.raises(ArchiveError, match="no file 'a'"):
                archive.open("a")


def test_long_and_foreign_names_are_read() -> None:
    files = {"/".join(["long" * 12] * 12) + "/ü 文.bin": b"1", "small": b"2"}

    for data in (
        tar_of_files(files, tarfile.GNU_FORMAT),
        tar_of_files(files),
        zip_of(*files.items()),
    ):
        with open_archive(io.BytesIO(data)) as archive:
            assert {name: archive.read(name) for name in archive.names()} == files


def test_a_tar_written_by_other_tools_is_read(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    for form in ("gnu", "posix", "ustar", "v7"):
        subprocess.run(
            [
                "tar",
                f"--format={form}",
                "-C",
                tmp_path / "in",
                "-czf",
                tmp_path / f"{form}.tgz",
                ".",
            ],
            check=True,
        )

        with open(tmp_path / f"{form}.tgz", "rb") as file, open_archive(file) as archive:
            assert {name: archive.read(name) for name in archive.names()} == FILES


# ---------------------------------------------------------------------- unpacking


@pytest.mark.parametrize("kind", ARCHIVES)
def test_unpacking_stores_chosen_files_below_a_prefix_within_limits(kind: str) -> None:
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

    with open_archive(io.BytesIO(zip_of(("my file (1).txt", b"1"), ("plain", b"2")))) as archive:
        with pytest.raises(ArchiveError, match="rename"):
            archive.unpack(connector)
        stored = archive.unpack(
            connector, "x/", rename=lambda name: name.translate({32: "_", 40: "", 41: ""})
        )

    assert stored == ["x/my_file_1.txt", "x/plain"]


def test_a_member_that_turns_out_damaged_is_not_published() -> None:
    data = bytearray(zip_of(("good", b"1"), ("bad", b"content" * 1000), method=zipfile.ZIP_STORED))
    data[data.index(b"contentcontent") + 5000] ^= 1
    connector = InMemoryStorageConnector()

    with open_archive(io.BytesIO(data)) as archive, pytest.raises(ArchiveError, match="CRC"):
        archive.unpack(connector)

    assert connector.list_resources() == ["good"]


# ---------------------------------------------------------------------- names and kinds

UP = ["../up", "a/../../up", "/etc/passwd", "C:/x", "c:x", "..", "a/..", "..\\up"]
ESCAPING = [*UP, "a\\b", "a\nb", "a\x7fb", "a\x85b", "x" * 1100]


@pytest.mark.parametrize("name", ESCAPING)
def test_a_name_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for data in (tar_of(member(name)), tar_of(pax(path=name), member("a")), zip_of((name, b"x"))):
        with pytest.raises(UnsafeArchiveError):
            with open_archive(io.BytesIO(data)) as archive:
                archive.unpack(FileStorageConnector(tmp_path / "in"))

    assert list(tmp_path.rglob("*")) == [tmp_path / "in"]


def test_a_name_that_cannot_be_decoded_is_refused() -> None:
    info = tarfile.TarInfo("\udcff\udcfe")

    with pytest.raises(UnsafeArchiveError, match="undecodable"):
        unpacked(info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape") + bytes(1024))
    with pytest.raises(ArchiveError):
        unpacked(zip_of(("ü", b"x")).replace("ü".encode(), b"\xff\xfe"))


#: Links, devices, a pipe, sparse files and others, as the header of a tar has them.
SPECIAL = [bytes([kind]) for kind in b"12346SVMD"]


def test_a_repeated_name_is_refused_however_it_is_written() -> None:
    twins = [("f", "f"), ("f", "./f"), ("a/f", "a//f"), ("a/f", "a/./f"), ("f", "f/")]
    for first, second in twins:
        kind, content = (tarfile.DIRTYPE, b"") if second.endswith("/") else (tarfile.REGTYPE, b"2")
        with pytest.raises(UnsafeArchiveError, match="two members"):
            unpacked(tar_of(member(first, b"1"), member(second, content, kind)))
        zipped = zip_of((first, b"1"), ("?" * len(second), content)).replace(
            b"?" * len(second), second.encode()
        )
        with pytest.raises(UnsafeArchiveError, match="two members"):
            unpacked(zipped)


@pytest.mark.parametrize(
    "data",
    [
        *(
            tar_of(member("before"), member("l", b"", kind, link="../up"), member("l/after"))
            for kind in SPECIAL
        ),
        *(
            zip_of(("l", b"../up"), mode=mode)
            for mode in (0o120777, 0o020666, 0o060666, 0o010666, 0o140666)
        ),
    ],
)
def test_a_special_file_is_refused(data: bytes) -> None:
    with pytest.raises(UnsafeArchiveError, match="'l'"):
        unpacked(data)


# ---------------------------------------------------------------------- bombs


@pytest.mark.parametrize("compression", COMPRESS)
def test_a_bomb_gives_bounded_chunks_and_no_tar(compression: str) -> None:
    compress = COMPRESS[compression]
    bomb, header = compress(bytes(24 << 20)), member("big", bytes(24 << 20))[:512]

    with open_decompressed(io.BytesIO(bomb)) as stream:
        tracemalloc.start()
        try:
            with pytest.raises(ArchiveLimitError, match="max_ratio"):
                while stream.read(1 << 16):
                    pass
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert (
        peak < (80 if compression == "zstd" else 12) << 20
    )  # zstandard makes up to 32 MiB of a piece
    with pytest.raises(ArchiveLimitError, match="max_ratio"):
        unpacked(compress(header) + bomb)


def test_a_zip_bomb_is_refused_even_if_its_directory_lies() -> None:
    honest = zip_of(("a", bytes(40 << 20)))

    with pytest.raises(ArchiveLimitError, match="max_ratio"):
        unpacked(honest)
    with pytest.raises(ArchiveError, match="CRC"):
        unpacked(patched(honest, b"PK\1\2", 24, struct.pack("<I", 100)))


def test_a_window_of_gigabytes_is_refused_without_allocating_it() -> None:
    block = bytearray(lzma.compress(b"x" * 100, check=lzma.CHECK_NONE))
    # The dictionary size of the LZMA2 filter in the block header (xz format 1.1.0, section 5.3.1),
    # and the header's CRC.
    header_at = 12
    header_size = (block[header_at] + 1) * 4
    at = block.index(b"\x21\x01", header_at) + 2
    block[at] = 40
    crc = zlib.crc32(bytes(block[header_at : header_at + header_size - 4]))
    block[header_at + header_size - 4 : header_at + header_size] = struct.pack("<I", crc)
    zstd = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"

    for data in (bytes(block), zstd):
        with pytest.raises(ArchiveError, match="128 MiB of memory"):
            decompress(data)


# ---------------------------------------------------------------------- headers that lie


def number(value: int) -> bytes:
    """A tar number in base 256."""
    return (
        b"\x80" + value.to_bytes(11, "big")
        if value >= 0
        else b"\xff" + (value % (1 << 88)).to_bytes(11, "big")
    )


def resized(data: bytes, size: bytes) -> bytes:
    """A tar member whose header claims another size."""
    header = bytearray(data[:512])
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


@pytest.mark.parametrize(
    "size",
    [
        number(1 << 40),
        number((1 << 63) - 1),
        number((1 << 88) - 1),
        number(-1),
        number(-512),
        b"77777777777\0",
    ],
)
@pytest.mark.parametrize(
    "kind",
    [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE, tarfile.SYMTYPE],
)
def test_an_impossible_size_is_an_error_and_takes_no_memory(size: bytes, kind: bytes) -> None:
    data = tar_of(resized(member("a", b"x", kind), size), member("b"))

    tracemalloc.start()
    try:
        for packed in (data, gzip.compress(data)):
            with pytest.raises(ArchiveError):
                unpacked(packed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 << 20


def test_a_pax_size_tells_where_the_next_member_begins() -> None:
    hidden = member("hidden")
    data = tar_of(
        pax(size=str(len(hidden))),
        resized(member("outer", hidden), b"00000000000\0"),
        member("after"),
    )

    assert unpacked(data) == {"outer": hidden, "after": b"x"}


def test_a_pax_header_for_all_members_must_not_name_them() -> None:
    with pytest.raises(ArchiveError, match="all members"):
        unpacked(tar_of(pax(tarfile.XGLTYPE, path="same"), member("a"), member("b")))

    assert unpacked(tar_of(pax(tarfile.XGLTYPE, comment="0123abcd"), member("a"))) == {"a": b"x"}


def test_an_encrypted_or_unknown_zip_member_is_refused() -> None:
    data = zip_of(("a", b"content"))
    encrypted = patched(patched(data, b"PK\1\2", 8, b"\1\0"), b"PK\3\4", 6, b"\1\0")
    unknown = patched(patched(data, b"PK\1\2", 10, b"\x09\0"), b"PK\3\4", 8, b"\x09\0")

    with pytest.raises(UnsafeArchiveError, match="encrypted"):
        unpacked(encrypted)
    with pytest.raises(ArchiveError, match="method 9, not by deflate"):
        unpacked(unknown)


@pytest.mark.parametrize(
    ("signature", "offset", "value"),
    [
        (b"PK\5\6", 12, b"\xff\xff\0\0"),  # bytes of the directory
        (b"PK\5\6", 12, b"\1\0\0\0"),
        (b"PK\5\6", 16, b"\xff\xff\0\0"),  # where it lies
        (b"PK\1\2", 0, b"PK\1\3"),
        (b"PK\1\2", 16, b"\0\0\0\0"),  # CRC
        (b"PK\1\2", 20, b"\1\0\0\0"),  # stored size
        (b"PK\1\2", 24, b"\1\0\0\0"),  # size
        (b"PK\1\2", 24, b"\xff\0\0\0"),
        (b"PK\1\2", 42, b"\xff\xff\xff\x7f"),  # where the member lies
    ],
)
def test_a_zip_directory_that_lies_is_an_error(signature: bytes, offset: int, value: bytes) -> None:
    data = zip_of(("a", b"content" * 10))

    with pytest.raises(ArchiveError):
        unpacked(patched(data, signature, offset, value))


def zip_with_comments(*comments: bytes) -> bytes:
    """A zip of files a, b, … with these comments in the directory."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number, comment in enumerate(comments):
            info = zipfile.ZipInfo(chr(ord("a") + number))
            info.comment = comment
            archive.writestr(info, b"content")
    return file.getvalue()


@pytest.mark.parametrize("signature", [b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6"])
def test_a_comment_may_hold_the_signature_of_a_record(signature: bytes) -> None:
    data = zip_with_comments(b"see " + signature * 3, b"", signature)

    assert unpacked(data) == dict.fromkeys("abc", b"content")


def test_an_entry_that_a_damaged_length_hides_is_missed() -> None:
    data = zip_with_comments(b"", b"", b"")
    comment_length = data.index(b"PK\1\2") + 32
    hiding = data[:comment_length] + struct.pack("<H", 46 + 1) + data[comment_length + 2 :]

    with pytest.raises(ArchiveError, match="has 3 entries, of which 2 can be found"):
        unpacked(hiding)


def test_a_zip_of_more_than_65535_files_is_read() -> None:
    """Old writers have no 64-bit record, and count modulo 65,536."""
    data = zip_with_comments(b"")
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    names = [f"{number:05}".encode() for number in range(65_537)]
    entry = patched(data[start:end], b"PK\1\2", 28, struct.pack("<H", 5))[:46]
    directory = b"".join(entry + name for name in names)
    sizes = struct.pack("<HHII", 1, 1, len(directory), start)
    old = data[:start] + directory + patched(data[end:], b"PK\5\6", 8, sizes)

    with open_archive(io.BytesIO(old)) as archive:
        assert sum(1 for _ in archive) == 65_537


# ---------------------------------------------------------------------- damage

CONTENT = random.Random(5).randbytes(40) * 3
WHOLE = {
    **{name: compress(CONTENT) for name, compress in COMPRESS.items()},
    "zip": zip_of(("a", CONTENT), ("b", b"beta"), ("c", CONTENT)),
    "tar": tar_of(
        member("a", CONTENT * 6), member("n" * 150, b"", form=tarfile.PAX_FORMAT), member("c")
    ),
}


def read_all(kind: str, data: bytes) -> set[bytes]:
    return {decompress(data)} if kind in COMPRESS else set(unpacked(data).values())


@pytest.mark.parametrize("kind", WHOLE)
def test_what_is_cut_short_anywhere_is_an_error(kind: str) -> None:
    for cut in each_cut(WHOLE[kind], sized(37, 1) if kind == "tar" else 1):
        with pytest.raises(ArchiveError):
            read_all(kind, cut)


@pytest.mark.parametrize("kind", [*COMPRESS, "zip"])
def test_a_flipped_bit_is_an_error_or_changes_no_content(kind: str) -> None:
    for data in each_flip(WHOLE[kind], sized(5, 1)):
        with contextlib.suppress(ArchiveError):
            assert read_all(kind, data) == read_all(kind, WHOLE[kind])  # a time stamp or a name


@pytest.mark.parametrize("kind", [*COMPRESS, "tar"])
def test_what_follows_the_end_is_an_error(kind: str) -> None:
    for garbage in (b"garbage", b"\0\0x", b"\x1f", bytes(500_000) + b"\n"):
        with pytest.raises(ArchiveError):
            read_all(kind, WHOLE[kind] + garbage)


@pytest.mark.parametrize("kind", [*COMPRESS, "deflated", "stored"])
def test_the_checksum_is_verified_before_the_last_bytes(kind: str) -> None:
    zipped = zip_of(("a", CONTENT), method=0 if kind == "stored" else zipfile.ZIP_DEFLATED)
    at = {"gzip": -8, "bz2": -5, "xz": -44, "zstd": -1}.get(kind, zipped.rindex(b"PK\1\2") + 16)
    data = bytearray(WHOLE.get(kind, zipped))
    data[at] ^= 1

    source: Any = (open_decompressed if kind in COMPRESS else open_archive)(io.BytesIO(data))
    with source:
        stream = source if kind in COMPRESS else source.open("a")
        for size in (
            (len(CONTENT), 1) if kind in COMPRESS else (len(CONTENT),)
        ):  # and then it is not the end of the file
            with pytest.raises(ArchiveError):
                stream.read(size)


@given(data=st.data())
def test_mutated_archives_raise_errors_of_ours_only(data: st.DataObject) -> None:
    mutated = bytearray(data.draw(st.sampled_from(sorted(WHOLE.values()))))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated)))
        mutated[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))

    for read in (unpacked, decompress):
        with contextlib.suppress(DataStackError):
            read(bytes(mutated))
