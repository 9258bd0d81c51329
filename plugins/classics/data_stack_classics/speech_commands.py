"""Speech Commands: single words, spoken by thousands of people."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from data_stack import DatasetCard, IteratorMeta, ResourceDefinition
from data_stack.io.archives import Archive
from data_stack_classics.folders import FoldersFactory

#: Samples a second.
_RATE = 16_000

#: Channels, bytes of a sample and samples a second of each file.
_SOUND_FORM = (1, 2, _RATE)

#: The publisher's lists of the files of a split.
_SPLITS_OF_LISTS = {"validation_list.txt": "validation", "testing_list.txt": "test"}

_CITATION = """@misc{speech-commands,
  author = {Pete Warden},
  title = {Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition},
  year = {2018},
  eprint = {1804.03209},
  archiveprefix = {arXiv}
}"""


class SpeechCommandsFactory(FoldersFactory):
    """Words of a second, in the splits of the publisher's two lists; the rest is ``train``.

    Samples are ``{"sound": array, "label": int, "speaker": str}``: int16 of shape ``(n,)``,
    16,000 samples a second, n at most 16,000; the position in ``class_names``; and a code for who
    speaks.
    """

    card = DatasetCard(
        name="speech-commands",
        version="1.0.0",
        license="CC-BY-4.0",
        homepage="https://arxiv.org/abs/1804.03209",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/archive.tar.gz",
            "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
            sha256="af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
            size=2_428_923_189,
        ),
    )
    splits = ("train", "validation", "test")
    n_samples = {"train": 84_843, "validation": 9_981, "test": 11_005}
    spec = {"sound": "array", "label": "i64", "speaker": "utf8"}
    iterator_meta = IteratorMeta("sound", "label", "speaker")
    column_kinds = {"sound": f"audio {_RATE}"}
    class_names = (
        "backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow", "forward",
        "four", "go", "happy", "house", "learn", "left", "marvin", "nine", "no", "off", "on", "one",
        "right", "seven", "sheila", "six", "stop", "three", "tree", "two", "up", "visual", "wow",
        "yes", "zero",
    )  # fmt: skip

    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        """Return a function that finds the split of a file by the publisher's lists."""
        listed_splits: dict[str, str] = {}
        # One pass for both lists: reading each by its name would take a pass of its own.
        for member in archive:
            split = _SPLITS_OF_LISTS.get(member.name)
            if split is not None:
                for name in archive.read(member).decode("ascii").split():
                    listed_splits[name] = split

        def find_split(name: str) -> str | None:
            # Noise, lists and license are not samples.
            if "_nohash_" not in name:
                return None
            return listed_splits.get(name, "train")

        return find_split

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the sound of a file; its folder is the word, its name begins with the speaker."""
        word, file = name.split("/")[-2:]
        speaker, _, _ = file.partition("_nohash_")
        with wave.open(io.BytesIO(data)) as sound:
            form = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            if form != _SOUND_FORM:
                raise ValueError(f"channels, bytes and rate are {form}, expected {_SOUND_FORM}")
            samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
        return {"sound": samples, "label": self.class_names.index(word), "speaker": speaker}
