"""Speech Commands: single words, spoken by thousands of people."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack import DatasetCard, IteratorMeta, ResourceDefinition
from data_stack.io.archives import Archive
from data_stack_classics.folders import FoldersFactory

#: Number of samples a second of each sound.
_RATE = 16_000

#: What the parameters of each sound must be, by their names in the module wave.
_PARAMETERS = {"nchannels": 1, "sampwidth": 2, "framerate": _RATE}

#: The files of the archive with the publisher's lists, and the split that each lists.
_SPLITS_OF_LISTS = {"validation_list.txt": "validation", "testing_list.txt": "test"}

#: What stands between speaker and number in the name of a sound.
_SPEAKER_MARK = "_nohash_"

_CITATION = """@misc{speech-commands,
  author = {Pete Warden},
  title = {Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition},
  year = {2018},
  eprint = {1804.03209},
  archiveprefix = {arXiv}
}"""


class SpeechCommandsFactory(FoldersFactory):
    """Words of at most a second, in the splits of the publisher's two lists.

    Samples are ``{"sound": array, "label": int, "speaker": str}``. The sound is an int16 array of
    shape ``(n,)`` with 16,000 samples a second, so ``n`` is at most 16,000. The label is a position
    in ``class_names``. The speaker is a code of eight hexadecimal digits. Words that no list names
    are ``train``.
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
                # A name that is not ASCII is damaged. It is no name of a file then.
                listed_names = archive.read(member).decode("ascii", errors="replace")
                for name in listed_names.split():
                    listed_splits[name] = split

        def find_split(name: str) -> str | None:
            # A sound is called <speaker>_nohash_<number>.wav. The archive also has noise, lists and
            # the license.
            if _SPEAKER_MARK not in name:
                return None
            return listed_splits.get(name, "train")

        return find_split

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the sound of a file, named ``<word>/<speaker>_nohash_<number>.wav``.

        Raises:
            ValueError, EOFError: the word is no class, or the sound is damaged or of another form.
        """
        path = PurePosixPath(name)
        word = path.parent.name
        if word not in self.class_names:
            raise ValueError(f"the folder {word!r:.80} is none of the words of the dataset")
        speaker, _, _ = path.name.partition(_SPEAKER_MARK)
        try:
            samples = _decode_sound(data)
        except wave.Error as error:
            raise ValueError(str(error)) from error
        return {"sound": samples, "label": self.class_names.index(word), "speaker": speaker}


def _decode_sound(data: bytes) -> npt.NDArray[np.int16]:
    """Return the samples of a sound.

    Raises:
        wave.Error, EOFError, ValueError: the sound is damaged, truncated, or of another form.
    """
    with wave.open(io.BytesIO(data)) as sound:
        parameters = sound.getparams()
        for name, expected in _PARAMETERS.items():
            value = getattr(parameters, name)
            if value != expected:
                raise ValueError(f"{name} of the sound is {value}, expected {expected}")
        samples = np.frombuffer(sound.readframes(parameters.nframes), "<i2")
    if len(samples) != parameters.nframes:
        raise ValueError(f"the sound ends after {len(samples)} of {parameters.nframes} samples")
    return samples
