"""Text to token ids and back: one id per character, or byte-level BPE. Both return every text exactly as it was.

A tokenizer starts as a recipe (what the config says) and is ready after `train` or `load_tokenizer`. Its last id is
`bos`: it starts every document, so it also separates documents, and it starts an empty prompt. It has no text form, so
no text can contain it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models, pre_tokenizers, trainers

from minitf.data.pieces import grouped, pieces
from minitf.errors import ConfigError, DataError
from minitf.files import atomic_file

FILE_NAME = "tokenizer.json"
MAX_BPE = 1_000_000  # ids; memory for more is asked for before any text is read


class BaseTokenizer(ABC):
    """What every tokenizer has: the special ids, decoding through bytes, and a plain file.

    The special ids are the last ones of the vocabulary, bos the very last. eos_id is bos_id, as in GPT-2; pad_id and
    sep_id are None because text streams need neither.

    Args:
        special: names of the special ids: "bos", and "mask" where a task hides tokens.

    Raises ConfigError for other names.
    """

    vocab_size: int
    _bytes: list[bytes]  # of each id; b"" for a special one
    pad_id: int | None = None
    sep_id: int | None = None

    def __init__(self, special: Sequence[str] = ("bos",)) -> None:
        if sorted(special) not in (["bos"], ["bos", "mask"]):
            raise ConfigError(f"data.tokenizer.special ({list(special)}) must be [bos] or [bos,mask]")
        self.n_special = len(special)

    @property
    def bos_id(self) -> int:
        """The id that starts every document: the last one of the vocabulary."""
        return self.vocab_size - 1

    @property
    def mask_id(self) -> int | None:
        """The id that stands for a hidden token: the one before bos; None where there is none."""
        return self.vocab_size - 2 if self.n_special > 1 else None

    @property
    def special_ids(self) -> list[int]:
        """Every special id."""
        return list(range(self.vocab_size - self.n_special, self.vocab_size))

    def _settings(self, **own: object) -> dict:
        return own if self.n_special == 1 else {**own, "special": ["bos", "mask"]}

    @property
    def eos_id(self) -> int:
        """The id that ends a document: the next one's `bos_id`."""
        return self.bos_id

    @property
    @abstractmethod
    def settings(self) -> dict:
        """What the recipe was told: plain values, enough to make the same tokenizer from the same text."""

    @abstractmethod
    def train(self, texts: Iterable[str]) -> "BaseTokenizer":
        """Learn the vocabulary from `texts` (the training split only) and return self."""

    @abstractmethod
    def encode_batch(
        self, texts: Iterable[str], progress: Callable[[int], object] = lambda n: None
    ) -> list[np.ndarray]:
        """Token ids of each text, without bos, as arrays of unsigned integers.

        Args:
            texts: what to encode.
            progress: is called now and then with the number of characters done since the last call.

        Raises DataError for what has no id.
        """

    @abstractmethod
    def _state(self) -> dict:
        """What `load_tokenizer` needs, as JSON values."""

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes of one id: maybe a part of a character, empty for bos. Raises DataError for an unknown id."""
        if not 0 <= token_id < self.vocab_size:
            known = f"this tokenizer has the ids 0 to {self.vocab_size - 1}"
            raise DataError(f"token id {int(token_id)} does not exist: {known}")
        return self._bytes[token_id]

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without bos. Raises DataError for what has no id."""
        return self.encode_batch([text])[0].tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; bos is nothing, and bytes that form no character become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` into `folder` in one step: a reader sees the old file or the whole new one."""
        with atomic_file(Path(folder) / FILE_NAME) as file:
            file.write(self.content().encode("utf-8"))

    def content(self) -> str:
        """Everything that the tokenizer is, as the text of its file."""
        return json.dumps({"settings": self.settings, **self._state()}, ensure_ascii=True)


class CharTokenizer(BaseTokenizer):
    """One id per character (Unicode code point) of the training text, in code point order, and the special ids."""

    def __init__(self, special: Sequence[str] = ("bos",)) -> None:
        super().__init__(special)
        self._code_points = np.zeros(0, dtype=np.uint32)
        self.vocab_size = self.n_special

    @property
    def settings(self) -> dict:
        return self._settings(type="char")

    def train(self, texts: Iterable[str]) -> "CharTokenizer":
        characters: set[str] = set()
        for text in texts:
            characters.update(text)
        return self._set("".join(sorted(characters)))

    def _set(self, characters: str) -> "CharTokenizer":
        self._code_points = _code_points(characters)
        self._bytes = [character.encode("utf-8") for character in characters] + [b""] * self.n_special
        self.vocab_size = len(characters) + self.n_special
        return self

    def encode_batch(
        self, texts: Iterable[str], progress: Callable[[int], object] = lambda n: None
    ) -> list[np.ndarray]:
        found = []
        for text in texts:
            found.append(self._encode(text))
            progress(len(text))
        return found

    def _encode(self, text: str) -> np.ndarray:
        points = _code_points(text)
        ids = np.searchsorted(self._code_points, points)
        known = np.append(self._code_points, np.uint32(0))[ids] == points
        known &= ids < len(self._code_points)
        if not known.all():
            unknown = sorted({chr(point) for point in points[~known]})
            shown = ", ".join(f"{c!r} (U+{ord(c):04X})" for c in unknown[:8])
            more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
            raise DataError(
                f"{shown}{more}: not among the {len(self._code_points)} characters that this tokenizer met in training."
                " Leave them out, or train with data/tokenizer=bpe, which can write every text."
            )
        return ids.astype(id_dtype(self.vocab_size))

    def _state(self) -> dict:
        return {"characters": b"".join(self._bytes).decode("utf-8")}


class BPETokenizer(BaseTokenizer):
    """Byte-level byte pair encoding (Sennrich et al. 2016, Radford et al. 2019), trained with `tokenizers`.

    Args:
        vocab_size: ids in all: 256 bytes, the merges, and the special ids. A text too small for that many merges gives
            fewer.
        special: names of the special ids.

    Raises ConfigError below 256 and the special ids, and above MAX_BPE.
    """

    def __init__(self, vocab_size: int = 2048, special: Sequence[str] = ("bos",)) -> None:
        super().__init__(special)
        least = 256 + self.n_special
        if not isinstance(vocab_size, int) or not least <= vocab_size <= MAX_BPE:
            specials = "bos" if self.n_special == 1 else "bos, mask"
            raise ConfigError(
                f"data.tokenizer.vocab_size ({vocab_size!r}) of byte-level BPE must be a whole number from {least} "
                f"(256 bytes and {specials}) to {MAX_BPE}. 2048 suits small models; data/tokenizer=char counts for "
                "itself."
            )
        self._wanted = vocab_size
        self.vocab_size = vocab_size

    @property
    def settings(self) -> dict:
        return self._settings(type="bpe", vocab_size=self._wanted)

    def train(self, texts: Iterable[str]) -> "BPETokenizer":
        core = HFTokenizer(models.BPE())
        # A prefix space would make decode(encode(x)) differ from x; special tokens would give bos a text form.
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=self._wanted - self.n_special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        core.train_from_iterator((piece for text in texts for piece, _ in pieces(_checked(text))), trainer)
        return self._set(core)

    def _set(self, core: HFTokenizer) -> "BPETokenizer":
        self._core = core
        n_content = core.get_vocab_size()
        self.vocab_size = n_content + self.n_special
        byte_of = {character: byte for byte, character in enumerate(_byte_characters())}
        written = [bytes(byte_of[character] for character in core.id_to_token(i)) for i in range(n_content)]
        self._bytes = written + [b""] * self.n_special
        return self

    def encode_batch(
        self, texts: Iterable[str], progress: Callable[[int], object] = lambda n: None
    ) -> list[np.ndarray]:
        dtype = id_dtype(self.vocab_size)
        found: list[np.ndarray] = []
        parts: list[np.ndarray] = []
        for group in grouped(piece for text in texts for piece in pieces(_checked(text))):
            encodings = self._core.encode_batch_fast([piece for piece, _ in group])
            for (_, is_last), encoding in zip(group, encodings, strict=True):
                parts.append(np.array(encoding.ids, dtype=dtype))
                if is_last:
                    found.append(np.concatenate(parts))
                    parts = []
            progress(sum(len(piece) for piece, _ in group))
        return found

    def _state(self) -> dict:
        return {"tokenizers": json.loads(self._core.to_str())}


def load_tokenizer(folder: str | Path) -> BaseTokenizer:
    """The tokenizer that `save` wrote into `folder`; nothing in the file is executed.

    Raises DataError if the file is missing or is not such a file.
    """
    path = Path(folder) / FILE_NAME
    try:
        return tokenizer_of(path.read_text(encoding="utf-8"))
    except Exception as error:  # `tokenizers` raises bare Exception for text it cannot read
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"no tokenizer can be read from {path} ({reason}). Is this the folder of a run that trained?"
        ) from error


def tokenizer_of(content: str) -> BaseTokenizer:
    """The tokenizer whose `content` this is. Raises an exception of some kind for anything else."""
    stored = json.loads(content)
    settings = stored["settings"]
    special = settings.get("special", ["bos"])
    if settings["type"] == "char":
        return CharTokenizer(special)._set(stored["characters"])
    if settings["type"] == "bpe":
        core = HFTokenizer.from_str(json.dumps(stored["tokenizers"]))
        return BPETokenizer(settings["vocab_size"], special)._set(core)
    raise ValueError(f"unknown tokenizer type {settings['type']!r}")


def id_dtype(vocab_size: int) -> type[np.unsignedinteger]:
    """The smaller of uint16 and uint32 that holds every id below `vocab_size`."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(_checked(text).encode("utf-32-le"), dtype=np.uint32)


def _checked(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"the text holds the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}, which is no "
            "character and has no UTF-8 form. It comes from reading with a wrong encoding: read the text as UTF-8."
        ) from None
    return text


def _byte_characters() -> str:
    """The 256 characters that stand for the bytes 0 to 255 in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return "".join(chr(byte if byte in printable else next(moved)) for byte in range(256))
