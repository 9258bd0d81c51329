"""The known defects of the original DataStack 0.0.13, one test each; the name begins with the defect's number.

Most are tested in depth where the code lives. Here each is reproduced as its report had it, so that one file answers
the question whether any of them is left.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import data_stack
from data_stack.dataset.factory import BaseDatasetFactory, InformedDatasetFactory
from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIterator,
    DatasetIteratorView,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import IteratorMeta, MetaFactory
from data_stack.dataset.preprocesor import PreprocessingHelpers
from data_stack.dataset.reporting import DatasetIteratorReportGenerator
from data_stack.dataset.splitter import SplitterFactory
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    DataStackError,
    MalformedIdentifierError,
    ResourceNotFoundError,
    RetrievalError,
)
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.resources import StreamedResource, StreamedTextResource
from data_stack.io.retriever import RetrieverFactory
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.mnist.factory import MNISTFactory
from data_stack.mnist.iterator import MNISTIterator
from data_stack.repository.repository import DatasetRepository

ITERATOR = SequenceDatasetIterator([list(range(10)), [0, 1] * 5, [0] * 10])
TWO = SequenceDatasetIterator([[100, 101], [7, 7], [7, 7]])
META = MetaFactory.get_dataset_meta(identifier="i", dataset_name="n", dataset_tag="train", iterator_meta=IteratorMeta(0, 1, 2))


def resource(content: bytes) -> StreamedResource:
    return StreamedResource("r", io.BytesIO(content))


@pytest.fixture
def connector(tmp_path: Path) -> FileStorageConnector:
    return FileStorageConnector(str(tmp_path / "data"))


def content(connector: FileStorageConnector, identifier: str) -> bytes:
    with connector.get_resource(identifier) as stored:
        return stored.read()


# ---------------------------------------------------------------------- iterators


def test_i1_a_view_out_of_bounds_raises_index_error_and_loses_no_sample() -> None:
    view = DatasetIteratorView(ITERATOR, [0, 2, 4])

    with pytest.raises(IndexError):
        view[3]
    with pytest.raises(IndexError):
        list(map(view.__getitem__, [0, 99, 1]))
    with pytest.raises(IndexError):
        list(torch.utils.data.DataLoader(view, sampler=[0, 1, 99, 2]))  # type: ignore[arg-type]  # a Dataset by its methods


def test_i2_in_memory_out_of_bounds_raises_index_error() -> None:
    with pytest.raises(IndexError):
        InMemoryDatasetIterator(ITERATOR)[10]


def test_i3_negative_positions_of_a_combination_count_from_its_end() -> None:
    combined = CombinedDatasetIterator([ITERATOR, TWO])

    assert (combined[11], combined[-1], combined[-12]) == ((101, 7, 7), (101, 7, 7), (0, 0, 0))


def test_i4_a_combination_does_not_ask_every_part_at_every_access() -> None:
    class Counting(SequenceDatasetIterator):
        asked = 0

        def __len__(self) -> int:
            Counting.asked += 1
            return super().__len__()

    combined = CombinedDatasetIterator([Counting([[i]]) for i in range(1000)])
    Counting.asked = 0

    assert (combined[500], len(combined)) == ((500,), 1000)
    assert Counting.asked < 10


def test_i5_view_tags_are_given_back() -> None:
    assert DatasetIteratorView(ITERATOR, [0], view_tags={"fold": 1}).view_tags == {"fold": 1}


def test_i6_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ConfigError):
        SequenceDatasetIterator([[1, 2, 3], [0]])
    with contextlib.suppress(ConfigError):
        assert len(SequenceDatasetIterator([])) == 0


def test_i7_a_slice_is_samples_also_through_a_view() -> None:
    assert list(ITERATOR[0:2]) == [(0, 0, 0), (1, 1, 0)]
    assert list(DatasetIteratorView(ITERATOR, [4, 5, 6])[1:]) == [(5, 1, 0), (6, 0, 0)]


def test_i8_a_view_owns_its_indices_and_checks_them() -> None:
    indices = [0, 1, 2]
    view = DatasetIteratorView(ITERATOR, indices)
    indices.clear()

    assert len(view) == 3
    with pytest.raises(IndexError):
        DatasetIteratorView(ITERATOR, [999])


def test_i9_a_forked_child_does_not_move_its_parents_position(connector: FileStorageConnector) -> None:
    connector.set_resource("n", b"0123456789" * 5000)
    with connector.get_resource("n") as opened:
        opened.read(10)
        if (pid := os.fork()) == 0:
            opened.seek(20003)
            os._exit(0 if opened.read(1) == b"3" else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert opened.read(4) == b"0123"


class H5Iterator(DatasetIterator):
    """As the original's clients write it."""

    def __init__(self, stream: StreamedResource) -> None:
        self.h5py_file = h5py.File(stream, "r")
        self.samples = self.h5py_file["rows"]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def test_i9h_forked_loader_workers_read_no_wrong_row_of_hdf5(connector: FileStorageConnector) -> None:
    rows = np.arange(4000 * 16).reshape(4000, 16)
    with connector.create("rows.h5") as writer, h5py.File(writer, "w") as file:
        file.create_dataset("rows", data=rows, chunks=(7, 16))
    iterator = H5Iterator(connector.get_resource("rows.h5"))
    iterator[0]
    loader: Any = torch.utils.data.DataLoader(iterator, batch_size=100, num_workers=2, multiprocessing_context="fork")  # type: ignore[arg-type]

    for _ in range(8):
        assert (np.concatenate([batch.numpy() for batch in loader]) == rows).all()


def test_i10_a_stored_resource_pickles(connector: FileStorageConnector) -> None:
    connector.set_resource("p", b"abc")
    with connector.get_resource("p") as opened, pickle.loads(pickle.dumps(opened)) as again:
        assert again.read() == b"abc"


def test_i11_loading_to_memory_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    InMemoryDatasetIterator(ITERATOR)

    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------- splitters


def test_s1_s2_the_same_splitter_gives_the_same_answer_every_time() -> None:
    random_splitter = SplitterFactory.get_random_splitter([0.5, 0.5], 1)
    first = random_splitter.get_indices(ITERATOR)

    assert first[0] == [6, 8, 9, 7, 5]  # the original's first answer
    assert first == random_splitter.get_indices(ITERATOR) == [list(view.indices) for view in random_splitter.split(ITERATOR)]
    for splitter in (SplitterFactory.get_cv_splitter(num_folds=2), SplitterFactory.get_nested_cv_splitter(2, 2)):
        assert splitter.get_indices(ITERATOR) == splitter.get_indices(ITERATOR)


def test_s3_ratios_that_do_not_sum_to_one_are_refused_and_others_truncate_as_ever() -> None:
    hundred = SequenceDatasetIterator([list(range(100)), [0] * 100])
    for ratios in ([0.5, 0.9, 0.3], [0.1, 0.1]):
        with pytest.raises(ConfigError):
            SplitterFactory.get_random_splitter(ratios, 1).get_indices(hundred)

    assert [len(part) for part in SplitterFactory.get_random_splitter([0.29, 0.57, 0.14], 1).get_indices(hundred)] == [28, 56, 16]


def test_s4_the_stratified_splitter_takes_the_targets_position() -> None:
    by_third = SequenceDatasetIterator([list(range(10)), list(range(10)), [0, 1] * 5])

    halves = SplitterFactory.get_stratified_splitter([0.5, 0.5], 1, target_pos=2).split(by_third)

    assert sorted(sum(sample[2] for sample in half) for half in halves) == [2, 3]


def test_s5_folds_without_stratification_read_no_sample() -> None:
    class Unread(SequenceDatasetIterator):
        def __getitem__(self, index: Any) -> Any:
            raise RuntimeError("read")

    splitter = SplitterFactory.get_cv_splitter(num_folds=2, stratification=False)

    assert sorted(i for fold in splitter.get_indices(Unread([list(range(10))])) for i in fold) == list(range(10))


# ---------------------------------------------------------------------- metas, reports


def test_m1_a_tag_given_as_none_is_cleared_and_what_is_omitted_is_inherited() -> None:
    cleared = MetaFactory.get_dataset_meta_from_existing(META, identifier="c", dataset_name="combined", dataset_tag=None)
    inherited = MetaFactory.get_dataset_meta_from_existing(META)

    assert (cleared.dataset_tag, inherited.identifier, inherited.dataset_tag) == (None, "i", "train")


def test_m2_metas_wrap_a_thousand_times() -> None:
    meta: Any = META
    for i in range(1000):
        meta = MetaFactory.get_dataset_meta_from_existing(meta, identifier=str(i))

    assert (meta.target_pos, meta.identifier) == (1, "999")


def test_m3_equal_metas_are_equal_and_show_what_they_are() -> None:
    assert MetaFactory.copy_dataset_meta(META) == META
    assert "train" in repr(META)


def test_p1_a_report_reads_each_node_once() -> None:
    class Counting(SequenceDatasetIterator):
        n_read = 0

        def __getitem__(self, index: Any) -> Any:
            Counting.n_read += 1
            return super().__getitem__(index)

    part = InformedDatasetIterator(Counting([[1, 2, 3], [0, 0, 1], [0, 0, 1]]), META)
    report = DatasetIteratorReportGenerator.generate_report(
        InformedDatasetFactory.get_combined_dataset_iterator([part, part], META)
    )

    assert (report.length, [sub.length for sub in report.sub_reports]) == (6, [3, 3])
    assert Counting.n_read <= 16  # each part once and all samples of the whole, which are fewer than eight


def test_p2_a_view_of_a_plain_iterator_can_be_reported() -> None:
    report = DatasetIteratorReportGenerator.generate_report(
        InformedDatasetFactory.get_dataset_iterator_view(ITERATOR, META, [0, 1])
    )

    assert (report.length, report.sub_reports[0].length) == (2, 10)


def test_p3_tensors_one_hot_rows_numpy_and_mixed_labels_are_counted() -> None:
    def distribution(labels: Any, report_format: Any = DatasetIteratorReportGenerator.ReportFormat.DICT) -> Any:
        iterator = SequenceDatasetIterator([list(range(len(labels))), labels])
        return DatasetIteratorReportGenerator.generate_report(InformedDatasetIterator(iterator, META), report_format)

    assert distribution(torch.tensor([1, 1, 1]))["target_dist"] == {1: 3}
    assert sum(distribution(torch.eye(3))["target_dist"].values()) == 3
    assert sum(distribution([1, "a", 1])["target_dist"].values()) == 3
    formats = DatasetIteratorReportGenerator.ReportFormat
    assert json.loads(distribution(np.array([2, 2]), formats.JSON))["target_dist"] == {"2": 2}
    assert "python/object" not in distribution(np.array([2, 2]), formats.YAML)


# ---------------------------------------------------------------------- storage, resources


def test_o1_a_neighbouring_folder_is_out_of_reach(connector: FileStorageConnector, tmp_path: Path) -> None:
    with pytest.raises(MalformedIdentifierError):
        connector.set_resource("../data-evil/f", resource(b"boo"))

    assert not (tmp_path / "data-evil").exists()


def test_o2_a_linked_root_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    connector = FileStorageConnector(str(tmp_path / "link"))
    connector.set_resource("a", resource(b"x"))

    assert content(connector, "a") == b"x"


def test_o3_half_a_write_is_never_seen(connector: FileStorageConnector) -> None:
    def failing() -> Iterator[bytes]:
        yield b"first half"
        assert not connector.has_resource("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        connector.set_resource("x", failing())

    assert not connector.has_resource("x")


def test_o4_storing_a_resource_from_itself_keeps_it(connector: FileStorageConnector) -> None:
    connector.set_resource("q", resource(b"data"))
    with connector.get_resource("q") as stored:
        connector.set_resource("q", stored)

    assert content(connector, "q") == b"data"


def test_o5_folders_are_no_resources(connector: FileStorageConnector) -> None:
    connector.set_resource("a/b/c", resource(b"x"))

    assert not connector.has_resource("a/b")
    with pytest.raises(ResourceNotFoundError):
        connector.get_resource("a/b")
    with pytest.raises(MalformedIdentifierError):
        connector.has_resource("")


def test_o6_resources_can_be_listed_measured_and_deleted(connector: FileStorageConnector) -> None:
    connector.set_resource("a/b", resource(b"abc"))

    assert (connector.list_resources(), connector.stat("a/b").size, resource(b"").chunk_size) == (["a/b"], 3, 1 << 20)
    connector.delete_resource("a/b")
    assert connector.list_resources() == []


def test_o7_writing_answers() -> None:
    with resource(b"") as wrapped:
        assert (wrapped.writable(), wrapped.write(b"zz")) == (True, 2)


def test_o8_nothing_is_printed_when_a_block_raises(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="mine"), resource(b""):
        raise ValueError("mine")

    assert capsys.readouterr().out == ""


def test_o9_text_has_lines_and_an_encoding() -> None:
    with StreamedTextResource("t", io.BytesIO("ä;1\n".encode("latin-1") * 1000), encoding="latin-1") as text:
        assert len(list(text)) == 1000
        text.seek(0)
        assert next(csv.reader(text, delimiter=";")) == ["ä", "1"]


def test_o10_a_resource_is_an_io_stream() -> None:
    buffer = bytearray(2)
    with resource(b"a,b\n1,2\n") as stream:
        assert isinstance(stream, io.IOBase)
        assert (stream.readinto(buffer), stream.read1(1), next(stream)) == (2, b"b", b"\n1,2\n")


def test_o11_a_pipe_can_be_stored(connector: FileStorageConnector) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"body")
    os.close(writing)
    with open(reading, "rb", buffering=0) as pipe:
        connector.set_resource("x", pipe)

    assert content(connector, "x") == b"body"


def test_o12_digests_may_be_absent_upper_case_or_sha256(connector: FileStorageConnector, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    md5, sha256 = hashlib.md5(b"abc").hexdigest().upper(), hashlib.sha256(b"abc").hexdigest()
    jobs = [
        ResourceDefinition("none", str(tmp_path / "f"), None),
        ResourceDefinition("upper", str(tmp_path / "f"), md5),
        ResourceDefinition("sha", str(tmp_path / "f"), sha256=sha256),
    ]

    assert RetrieverFactory.get_file_retriever(connector).retrieve(jobs) == ["none", "upper", "sha"]
    with pytest.raises(DatasetFileCorruptError, match=md5.lower()):
        RetrieverFactory.get_file_retriever(connector).retrieve([ResourceDefinition("x", str(tmp_path / "f"), "0" * 32)])


# ---------------------------------------------------------------------- retrieval


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.path)))
            self.end_headers()
            self.wfile.write(self.path.encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()
        thread.join()


def job(url: str, path: str, right: bool = True) -> ResourceDefinition:
    return ResourceDefinition(
        path.strip("/").replace("/", "_"), url + path, hashlib.md5(path.encode() if right else b"").hexdigest()
    )


def test_r1_r2_files_of_one_name_and_addresses_ending_in_a_slash_are_retrieved(
    connector: FileStorageConnector, server: tuple[str, list[str]]
) -> None:
    url, _ = server

    RetrieverFactory.get_http_retriever(connector).retrieve(
        [job(url, path) for path in ("/train/d.bin", "/test/d.bin", "/folder/")]
    )

    assert (content(connector, "train_d.bin"), content(connector, "test_d.bin")) == (b"/train/d.bin", b"/test/d.bin")
    assert content(connector, "folder") == b"/folder/"


def test_r3_good_files_are_kept_and_not_asked_for_again(connector: FileStorageConnector, server: tuple[str, list[str]]) -> None:
    url, asked = server
    retriever = RetrieverFactory.get_http_retriever(connector)
    with pytest.raises(RetrievalError):
        retriever.retrieve([job(url, "/good"), job(url, "/corrupt", right=False)])

    retriever.retrieve([job(url, "/good")])

    assert content(connector, "good") == b"/good"
    assert asked.count("/good") == 1


# ---------------------------------------------------------------------- factories, packaging


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes())


@pytest.fixture
def mnist(connector: FileStorageConnector, tmp_path: Path) -> MNISTFactory:
    """MNIST from files of our own, in a store of its own."""
    definitions: dict[str, list[ResourceDefinition]] = {}
    factory = MNISTFactory(connector)
    for split, pair in factory.resource_definitions.items():
        for definition, shape in zip(pair, ((5, 28, 28), (5,)), strict=True):
            data = idx(np.arange(np.prod(shape), dtype=np.uint8).reshape(shape))
            path = tmp_path / definition.identifier.replace("/", "_")
            path.write_bytes(data)
            digest = hashlib.md5(data).hexdigest()
            definitions.setdefault(split, []).append(ResourceDefinition(definition.identifier, str(path), digest))
    factory.resource_definitions = definitions
    return factory


def test_f1_a_part_of_a_dataset_is_not_taken_for_the_whole(mnist: MNISTFactory, connector: FileStorageConnector) -> None:
    connector.set_resource("mnist/preprocessed/train/samples.pt", resource(b"garbage"))

    assert not mnist.check_exists()
    assert len(mnist.get_dataset_iterator({"split": "test"})[0]) == 5


def test_f2_a_factory_needs_no_config(mnist: MNISTFactory) -> None:
    assert len(mnist.get_dataset_iterator()[0]) == 5


def test_f3_a_wrong_name_is_answered_and_nothing_is_overwritten_silently() -> None:
    repository = DatasetRepository()
    repository.register("mnist", BaseDatasetFactory())

    with pytest.raises(DatasetNotFoundError, match="did you mean 'mnist'"):
        repository.get("mnits")
    with pytest.raises(DataStackError):
        repository.register("mnist", BaseDatasetFactory())
    assert repository.list() == ["mnist"]


def test_f4_both_streams_of_mnist_are_closed(mnist: MNISTFactory, connector: FileStorageConnector) -> None:
    mnist.get_dataset_iterator({"split": "train"})
    streams = [connector.get_resource(f"mnist/preprocessed/train/{name}.pt") for name in ("samples", "targets")]

    MNISTIterator(*streams)

    assert [stream.closed for stream in streams] == [True, True]


def test_f5_no_handler_writes_what_the_program_did_not_ask_for(connector: FileStorageConnector) -> None:
    connector.set_resource("a", resource(b"x"))

    assert logging.getLogger("data_stack").handlers == []
    assert logging.getLogger("data_stack").level == logging.NOTSET


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_f6_torchvision_is_not_needed() -> None:
    assert (
        run(
            "import sys; sys.modules['torchvision'] = None; import data_stack.io.retriever, data_stack.mnist.factory; print('ok')"
        )
        == "ok\n"
    )


def test_f7_f8_the_helpers_work_on_an_instance_and_the_modules_run() -> None:
    with PreprocessingHelpers().get_gzip_stream(resource=resource(gzip.compress(b"abc"))) as unzipped:
        assert unzipped.read() == b"abc"
    subprocess.run([sys.executable, "-m", "data_stack.dataset.reporting"], check=True)


def test_f9_there_is_a_version_and_pytest_is_not_required_to_use_it() -> None:
    from importlib.metadata import requires

    required = [line for line in requires("datastack") or [] if "extra ==" not in line]

    assert data_stack.__version__
    assert not [line for line in required if line.startswith(("pytest", "torchvision", "torch"))]


def test_f10_importing_is_cheap() -> None:
    heavy = "{'sklearn', 'scipy', 'pandas', 'torch', 'requests'} & set(sys.modules)"
    imports = "data_stack.dataset.splitter, data_stack.io.retriever, data_stack.mnist.factory, data_stack.io.storage_connectors"

    assert run(f"import sys, {imports}; print({heavy})") == "set()\n"


def test_f11_two_threads_that_ask_at_once_prepare_once(mnist: MNISTFactory, connector: FileStorageConnector) -> None:
    steps: list[str] = []

    class Logging(MNISTFactory):
        def preprocess(self, raw: Any, prepared: Any) -> None:
            steps.append("preprocess")
            super().preprocess(raw, prepared)

    lengths: list[int] = []

    def ask() -> None:
        factory = Logging(connector)
        factory.resource_definitions = mnist.resource_definitions
        lengths.append(len(factory.get_dataset_iterator({"split": "train"})[0]))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (lengths, steps) == ([5, 5], ["preprocess"])
