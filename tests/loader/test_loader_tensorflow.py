"""Batches of a loader as tensors of TensorFlow, and as tf.data. Without it the tests are skipped:
`make test-all` has it.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from loader_batches import beginning_at, rows_and_numbers

tf = pytest.importorskip(
    "tensorflow", reason="tensorflow is not installed: `make test-all` brings it"
)

from data_stack.dataset.iterator import SequenceDatasetIterator  # noqa: E402  # behind the line that may skip this module
from data_stack.exception import ConfigError  # noqa: E402  # likewise
from data_stack.loader import Concatenated, Loader, Padded  # noqa: E402  # likewise

LENGTHS = [3, 0, 2, 1, 4, 2, 2]


def texts() -> Any:
    rows = [np.arange(length, dtype=np.int32) for length in LENGTHS]
    return SequenceDatasetIterator([rows, np.arange(7), [f"ä{i}" for i in range(7)]]).as_dict(
        "tokens", "label", "name"
    )


def inline(iterator: Any, batch_size: int, **options: Any) -> Loader:
    return Loader(iterator, batch_size, worker_kind="inline", **options)


def of_one_batch(value: Any) -> Any:
    """What TensorFlow gets of a batch."""
    (converted,) = inline(rows_and_numbers(2), 2, transform=lambda _: value).tensorflow()
    return converted


# ------------------------------------------------------------------ tensors


def test_an_aligned_array_is_shared_and_others_are_usable() -> None:
    arrays = [beginning_at(0), *[beginning_at(offset) for offset in (4, 16, 32)]]

    tensors = of_one_batch(arrays)

    places = [np.asarray(tensor).ctypes.data for tensor in tensors]
    assert places[0] == arrays[0].ctypes.data
    assert all(
        place != array.ctypes.data for place, array in zip(places[1:], arrays[1:], strict=True)
    )
    assert [float(tf.reduce_sum(tensor + 1)) for tensor in tensors] == [
        1024.0
    ] * 4  # else the process ends here


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", "f4", "c16", ">i2"])
def test_numbers_have_their_dtype_and_values(dtype: str) -> None:
    array = np.arange(48).reshape(12, 4).astype(dtype)
    read_only = array.copy()
    read_only.setflags(write=False)
    layouts = [
        array,
        array[::-1],
        array[:, ::2],
        np.asfortranarray(array),
        read_only,
        array[:0],
        np.array(array[1, 1]),
        array[1, 1],
    ]

    tensors = of_one_batch(layouts)

    assert {tensor.dtype.as_numpy_dtype for tensor in tensors} == {array.dtype.type}
    assert [tensor.numpy().tolist() for tensor in tensors] == [
        layout.tolist() for layout in layouts
    ]


def test_strings_ragged_values_and_what_there_are_no_tensors_for() -> None:
    images = [np.zeros((height, 2, 3), np.uint8) for height in (1, 3, 2)]
    iterator = SequenceDatasetIterator(
        [
            ["a", "ö", ""],
            [b"\x00", b"", b"x\x00"],
            [np.arange(i) for i in range(3)],
            images,
            [{"x": i, "name": str(i)} for i in range(3)],
            [None, 1, "x"],
            np.array(["2020-01-01"] * 3, dtype="M8[D]"),
            np.array(["x", "yz", ""]),
        ]
    )

    ((strings, raw, ragged, pictures, dicts, mixed, dates, others),) = inline(
        iterator, 3
    ).tensorflow()

    assert [text.decode() for text in strings.numpy()] == ["a", "ö", ""]
    assert raw.numpy().tolist() == [b"\x00", b"", b"x\x00"]
    assert ragged.to_list() == [[], [0], [0, 1]]
    assert pictures.to_list() == [image.tolist() for image in images]
    assert (pictures.ragged_rank, pictures.shape.as_list()) == (1, [3, None, 2, 3])
    assert (dicts["x"].numpy().tolist(), dicts["name"].numpy().tolist()) == (
        [0, 1, 2],
        [b"0", b"1", b"2"],
    )
    assert (mixed, dates) == ([None, 1, "x"], [np.datetime64("2020-01-01")] * 3)
    assert others.numpy().tolist() == [b"x", b"yz", b""]


def test_missing_numbers_are_an_error_naming_the_column() -> None:
    with pytest.raises(
        ConfigError, match=r"column 'x' has samples without a value .* TensorFlow tensors"
    ):
        next(iter(inline(SequenceDatasetIterator([[1.5, None]]).as_dict("x"), 2).tensorflow()))


# ------------------------------------------------------------------ tf.data


def test_a_dataset_has_form_and_number_of_the_batches() -> None:
    loader = inline(rows_and_numbers(), 16, shuffle=True)

    dataset = loader.tensorflow().dataset()

    assert dataset.element_spec == (
        tf.TensorSpec([None, 3], tf.float32),
        tf.TensorSpec([None], tf.int64),
    )
    assert (int(dataset.cardinality()), len(dataset), loader.state_dict()["position"]) == (7, 7, 0)
    epochs = [
        [label for _, labels in dataset for label in labels.numpy().tolist()] for _ in range(2)
    ]
    expected = [
        [
            label
            for batch in inline(rows_and_numbers(), 16, shuffle=True, epochs=2)
            for label in batch[1].tolist()
        ]
    ]
    assert epochs[0] + epochs[1] == expected[0]


def test_form_of_strings_dicts_and_values_of_different_lengths() -> None:
    dataset = inline(texts(), 2).tensorflow().dataset()
    spec = {"label": tf.TensorSpec([None], tf.int64), "name": tf.TensorSpec([None], tf.string)}
    padded_spec = {
        "tokens": tf.TensorSpec([None, None], tf.int32),
        **spec,
        "tokens_lengths": tf.TensorSpec([None], tf.int64),
    }
    padded = inline(texts(), 2, collate=Padded({"tokens": 0})).tensorflow().dataset(padded_spec)
    ragged = inline(texts(), 2, collate=Concatenated(columns="tokens")).tensorflow().dataset()

    assert dataset.element_spec == {"tokens": tf.RaggedTensorSpec([None, None], tf.int32), **spec}
    assert ragged.element_spec == dataset.element_spec
    assert padded.element_spec == padded_spec
    for each in (
        dataset,
        ragged,
    ):  # the third batch has values of one length, and is ragged all the same
        assert [row for batch in each for row in batch["tokens"].to_list()] == [
            list(range(length)) for length in LENGTHS
        ]
    assert [batch["tokens"].shape.as_list() for batch in padded] == [[2, 3], [2, 2], [2, 4], [1, 2]]
    assert [name.decode() for batch in dataset for name in batch["name"].numpy()] == [
        f"ä{i}" for i in range(7)
    ]


def test_what_has_no_form_is_refused_by_name() -> None:
    dates = SequenceDatasetIterator([np.arange(4), np.array(["2020-01-01"] * 4, dtype="M8[D]")])
    mixed = SequenceDatasetIterator([[None, 1, "x", 2]]).as_dict("what")

    for loader, message in (
        (
            inline(dates, 4),
            r"the batch\[1\] is .*datetime64.*no TensorFlow tensor; leave it out by select",
        ),
        (inline(mixed, 4), r"the batch\['what'\] is \[None, 1"),
        (inline([], 4), "pass output_signature="),
    ):
        with pytest.raises(ConfigError, match=message):
            loader.tensorflow().dataset()


def test_a_dataset_completes_an_epoch_before_whole_ones() -> None:
    expected = [
        batch[1].tolist() for batch in inline(rows_and_numbers(), 16, shuffle=True, epochs=2)
    ]
    loader = inline(rows_and_numbers(), 16, shuffle=True).tensorflow()
    before = loader.dataset()
    for number, _ in enumerate(before):
        if number == 2:
            break
    state = loader.state_dict()

    loader.load_state_dict(state)
    dataset = loader.dataset()

    assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
    batches = [labels.numpy().tolist() for _ in range(2) for _, labels in dataset]
    assert batches == expected[3:]
    loader.load_state_dict(state)
    with pytest.raises(tf.errors.OpError, match="make the dataset after load_state_dict"):
        list(before)


def test_errors_say_which_sample_and_a_left_dataset_leaves_nothing() -> None:
    def failing(sample: Any) -> Any:
        if sample[1] == 50:
            raise ValueError("fifty")
        return sample

    def threads() -> list[
        threading.Thread
    ]:  # without those of TensorFlow that have called us, and those that end when idle
        known = [
            thread
            for thread in threading.enumerate()
            if not isinstance(thread, threading._DummyThread)
        ]
        return [thread for thread in known if not thread.name.startswith("data_stack-")]

    threads_before = threads()
    loader = Loader(rows_and_numbers().map(failing), 8, worker_kind="threads", workers=2)
    dataset = loader.tensorflow().dataset()
    with pytest.raises(tf.errors.OpError, match="sample 50 could not be read"):
        list(dataset)
    for _ in dataset:
        break
    gc.collect()
    loader.close()

    assert threads() == threads_before
