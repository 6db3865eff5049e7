"""How a checkpoint makes vectors for late interaction: ColBERT, in four forms of folders.

Read without the packages that write them:
  sentence-transformers   modules.json with MultiVectorMask; lengths, expansion of queries and skip
                          list in the folders of the modules, prompts in the main config
  PyLate                  modules.json with its own Dense; all settings in the main config
  Stanford                `HF_ColBERT` in config.json, `linear.weight` among the weights of the
                          encoder, settings in artifact.metadata
  bge-m3                  colbert_linear.pt beside the weights; the first token has no vector

Each setting is followed, known to be without effect, or a reason for `unsupported`.
"""

import functools
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bert_features.checkpoints.modules.sentence_transformers import read_main, read_transformer
from bert_features.checkpoints.modules.settings import (
    COMMON,
    count_of,
    dense_weights,
    flag_of,
    module_problems,
    read_dense_module,
    read_modules,
    transformer_config,
    wrong_value,
)
from bert_features.checkpoints.weights.file_names import (
    COLBERT_LINEAR,
    MAIN_CONFIG,
    METADATA,
    MODULES,
)
from bert_features.checkpoints.weights.weight_readers import WeightFiles
from bert_features.config.json_files import read_json, read_json_object
from bert_features.config.poolings import DenseModule, Module
from bert_features.errors import CheckpointError

QUERY, DOCUMENT = "query", "document"
# Names of prompts for documents; the first that a folder has counts.
_DOCUMENT_NAMES = (DOCUMENT, "passage", "corpus")
# The weights of a token's vector among those of the encoder, in the form of this name.
PROJECTION, STANFORD = "linear.weight", "Stanford"
BGE_M3 = "bge-m3"
_CLASSIC_LENGTH = 32  # of queries, where a folder has none
_MASK = "MultiVectorMask"
_KINDS = ("Transformer", "Dense", _MASK, "Normalize")

# Settings of modules and the values that are followed, see `module_problems`.
_FOLLOWED: dict[str, Any] = {
    **COMMON,
    **dict.fromkeys(("query_length", "document_length", "query_expansion"), ...),
    **dict.fromkeys(("skiplist_words", "skiplist_tasks"), ...),
    **dict.fromkeys(("module_input_name", "module_output_name"), ("token_embeddings",)),
}
# Settings of artifact.metadata that decide about numbers, and the values that are followed.
_FOLLOWED_OF_STANFORD = {"similarity": ("cosine",), "interaction": ("colbert",)}
# Settings of PyLate's main config: with one of these, queries are filled where it says nothing.
_PREFIXES = {QUERY: "query_prefix", DOCUMENT: "document_prefix"}
_PYLATE = {
    *(*_PREFIXES.values(), "query_length", "document_length", "query_expansion"),
    *("do_query_expansion", "attend_to_expansion_tokens", "attend_to_mask_tokens"),
    "skiplist_words",
}


@dataclass(frozen=True)
class Fill:
    """The expansion of queries: copies of a token behind each, up to a number of tokens.

    Attributes:
      length: number of tokens of a query, at least.
      token: the token; None for [MASK].
      attended: whether other tokens attend to it; each copy has a vector in any case.
    """

    length: int
    token: str | None = None
    attended: bool = False


@dataclass(frozen=True)
class TextSettings:
    """What is done to queries, or to documents.

    Attributes:
      prompt: the text before each, with its marker.
      length: the tokens of the longest row; None for the checkpoint's number of positions.
      skip_words: tokens that get no vector.
      skip_first: whether [CLS] gets none.
      fill: the expansion; None without one.
    """

    prompt: str = ""
    length: int | None = None
    skip_words: tuple[str, ...] = ()
    fill: Fill | None = None
    skip_first: bool = False


@dataclass(frozen=True)
class MultiVectorSettings:
    """How a checkpoint makes a vector of each token of a query or a document.

    Attributes:
      form: `sentence-transformers`, `PyLate`, `Stanford` or `bge-m3`: whose folder it is.
      query: what is done to queries.
      document: what is done to documents.
      prompts: all prompts by name; `query` and `document` among them.
      markers: for each prompt that may begin with a marker, a single token, its possible texts.
      modules: what is done to the vector of each token: dense layers, and scaling to length 1.
      dense: the file of the weights of each dense layer.
      similarity: `maxsim`, or `meanmaxsim`, which is divided by the number of query tokens.
      files: the files that hold these settings, if no module of sentence-transformers does.
      unsupported: why the vectors cannot be computed here; None if they can.
    """

    form: str
    query: TextSettings = TextSettings()
    document: TextSettings = TextSettings()
    prompts: Mapping[str, str] = field(default_factory=dict, hash=False)
    markers: tuple[tuple[str, ...], ...] = ()
    modules: tuple[Module, ...] = ()
    dense: Mapping[DenseModule, Path] = field(default_factory=dict, hash=False)
    similarity: str = "maxsim"
    files: tuple[Path, ...] = ()
    unsupported: str | None = None

    def describe(self) -> dict[str, Any]:
        """The settings as JSON values, without those that are not there."""
        facts: dict[str, Any] = {"form": self.form}
        if self.unsupported is not None:
            return facts | {"unsupported": self.unsupported}
        widths = [module.outputs for module in self.modules if isinstance(module, DenseModule)]
        facts |= {"width": widths[-1]} if widths else {}
        for name in (QUERY, DOCUMENT):
            values = asdict(getattr(self, name))
            facts[name] = {key: value for key, value in values.items() if value}
        return facts | {
            "normalized": self.modules[-1:] == ("normalize",),
            "similarity": self.similarity,
        }

    def check_supported(self) -> None:
        """Refuses settings that cannot be followed, for `unsupported`; raises CheckpointError."""
        if self.unsupported is not None:
            raise CheckpointError(f"multi-vectors are unavailable: {self.unsupported}")

    def document_length(self, positions: int) -> int:
        """The tokens of the longest document, for a checkpoint with this number of positions."""
        return min(self.document.length or positions, positions)

    def query_length(self, positions: int) -> int:
        """The tokens of the longest query."""
        return min(self.query.length or positions, positions)


def read_multi_vector(folder: Path, weights: WeightFiles) -> MultiVectorSettings | None:
    """The settings of a folder for late interaction; None if it is for something else.

    A value that is not allowed or followed is no error: see `unsupported`. Raises CheckpointError
    if modules.json or a config that says what the folder is for is damaged.
    """
    main = folder / MAIN_CONFIG
    if (folder / MODULES).is_file():
        listed = read_modules(read_json(folder / MODULES), folder / MODULES)
        modules = [(_kind(kind), path) for kind, path in listed]
        values = read_json_object(main) if main.is_file() else {}
        # PyLate takes a missing one for its own.
        default = "ColBERT" if any(kind.startswith("pylate.") for kind, _ in listed) else None
        is_pylate = (values.get("model_type") or default) == "ColBERT"
        is_ours = values.get("model_type") == "MultiVectorEncoder" or _MASK in dict(modules)
        if not is_pylate and not is_ours:
            return None
        form = "PyLate" if is_pylate else "sentence-transformers"
        read = functools.partial(_read_modules, folder, modules, values, form)
    else:
        config = weights.beside(["config.json"])
        stated = None if config is None else read_json_object(config).get("architectures")
        if not isinstance(stated, list) or "HF_ColBERT" not in stated:
            return None
        form = STANFORD
        read = functools.partial(_read_stanford, folder, weights)
    try:
        return read()
    except CheckpointError as error:  # the encoder needs none of these files
        return MultiVectorSettings(form, unsupported=str(error))


def _kind(name: str) -> str:
    """The class of a module without its package, if it is one that is known here."""
    ours = name.startswith(("sentence_transformers.", "pylate.models.Dense."))
    last = name.rpartition(".")[2]
    return last if ours and last in _KINDS else name


def _read_modules(
    folder: Path, modules: list[tuple[str, str]], main: Mapping[str, Any], form: str
) -> MultiVectorSettings:
    """A folder with modules.json; `main` is the main config."""
    kinds = [kind for kind, _ in modules]
    if kinds[0] != "Transformer" or not {*_KINDS[1:]} >= {*kinds[1:]} or kinds.count(_MASK) > 1:
        allowed = "Transformer, then Dense, MultiVectorMask or Normalize"
        raise CheckpointError(f"its modules are {', '.join(kinds)}, not {allowed}")
    for kind, path in modules:
        if reason := next(module_problems(folder, kind, path, _FOLLOWED), None):
            raise CheckpointError(reason)
    done: list[Module] = [
        read_dense_module(folder, path) if kind == "Dense" else "normalize"
        for kind, path in modules
        if kind in ("Dense", "Normalize")
    ]
    skipped: dict[str, tuple[str, ...]] = {QUERY: (), DOCUMENT: ()}
    if _MASK in kinds:
        skipped = _skipped(folder / dict(modules)[_MASK])
    if form == "PyLate":  # which masks and scales by itself
        words = _words(folder / MAIN_CONFIG, main, "skiplist_words")
        skipped[DOCUMENT] += tuple(string.punctuation) if words is None else words
        done.append("normalize")
    prompts, _, similarity, _ = read_main(folder / MAIN_CONFIG)
    prompts, markers = _with_prefixes(folder / MAIN_CONFIG, main, prompts)
    query_length, document_length, fill = _lengths(folder / modules[0][1], main)
    if fill is not None and _MASK not in kinds and form != "PyLate":
        raise CheckpointError("it has a query_expansion, and its modules have no MultiVectorMask")
    name = next((each for each in _DOCUMENT_NAMES if each in prompts), "")
    texts = {QUERY: prompts.get(QUERY, ""), DOCUMENT: prompts.get(name, "")}
    return MultiVectorSettings(
        form,
        query=TextSettings(texts[QUERY], query_length, skipped[QUERY], fill),
        document=TextSettings(texts[DOCUMENT], document_length, skipped[DOCUMENT]),
        prompts={**texts, **prompts},
        markers=markers,
        modules=tuple(done),
        dense={m: dense_weights(folder / m.path) for m in done if isinstance(m, DenseModule)},
        similarity="meanmaxsim" if similarity == "meanmaxsim" else "maxsim",
    )


def _with_prefixes(
    path: Path, main: Mapping[str, Any], prompts: Mapping[str, str]
) -> tuple[dict[str, str], tuple[tuple[str, ...], ...]]:
    """The prompts behind PyLate's prefixes, and what these may be as single tokens."""
    made, markers = dict(prompts), []
    for side, key in _PREFIXES.items():
        prefix = main.get(key) or ""
        if not isinstance(prefix, str):
            raise wrong_value(path, key, prefix, "a text")
        if key in main:
            made[side] = prefix + made.get(side, "").removeprefix(prefix)
            markers.append((prefix, *prefix.split()[:1]))
    return made, tuple(each for each in markers if each[1:])


def _skipped(folder: Path) -> dict[str, tuple[str, ...]]:
    """The words without a vector, by side, as the config of a MultiVectorMask has them."""
    path = folder / "config.json"
    values = read_json_object(path) if path.is_file() else {}
    words = _words(path, values, "skiplist_words") or ()
    tasks = values.get("skiplist_tasks")
    tasks = [DOCUMENT] if tasks is None else [tasks] if isinstance(tasks, str) else tasks
    if not isinstance(tasks, list) or not {QUERY, DOCUMENT} >= {*map(str, tasks)}:
        raise wrong_value(path, "skiplist_tasks", tasks, "a list of 'query' and 'document'")
    return {side: words if side in tasks else () for side in (QUERY, DOCUMENT)}


def _words(path: Path, values: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    words = values.get(key)
    if words is None:
        return None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise wrong_value(path, key, words, "a list of words")
    return tuple(words)


def _lengths(folder: Path, main: Mapping[str, Any]) -> tuple[int | None, int | None, Fill | None]:
    """The longest query and document, and the expansion; `folder` has the Transformer."""
    path, most = transformer_config(folder), read_transformer(folder)[0]
    stated = read_json_object(path) if path.is_file() else {}
    values = {n: main[n] for n in ("query_length", "document_length") if main.get(n) is not None}
    if "query_expansion" in main:
        values["query_expansion"] = main["query_expansion"]
    elif _PYLATE & main.keys() and main.get("do_query_expansion") is not False:
        length = values.pop("query_length", _CLASSIC_LENGTH)
        attends = main.get("attend_to_expansion_tokens", main.get("attend_to_mask_tokens"))
        made = {"strategy": "fixed", "attend": bool(attends), "length": length}
        values["query_expansion"] = made
    values |= stated
    query, document = (
        None if values.get(name) is None else count_of(path, values, name, "tokens")
        for name in ("query_length", "document_length")
    )
    fill, fixed = _fill(path, values.get("query_expansion"))
    if fill is not None:
        if query is not None and query < fill.length:
            raise wrong_value(
                path, "query_length", query, f"at least {fill.length}, as its expansion"
            )
        query = fill.length if fixed else query
    return query or most, document or most, fill


def _fill(path: Path, expansion: Any) -> tuple[Fill | None, bool]:
    """The expansion of queries, and whether longer ones are cut to its length."""
    if expansion is None:
        return None, False
    keys = {"strategy", "attend", "token", "length"}
    if not isinstance(expansion, dict) or not keys >= expansion.keys():
        raise wrong_value(
            path, "query_expansion", expansion, f"an object of {', '.join(sorted(keys))}"
        )
    strategy, token = expansion.get("strategy"), expansion.get("token")
    if strategy not in ("fixed", "min"):
        raise wrong_value(path, "query_expansion.strategy", strategy, "'fixed', 'min'")
    if token is not None and not isinstance(token, str):
        raise wrong_value(path, "query_expansion.token", token, "a token")
    length = count_of(path, expansion, "length", "tokens")
    attended = flag_of(path, expansion, "attend", default=False)
    return Fill(length, token, attended), strategy == "fixed"


def _read_stanford(folder: Path, weights: WeightFiles) -> MultiVectorSettings:
    """A folder of Stanford's ColBERT; a setting that it does not state has ColBERT's value."""
    path = folder / METADATA
    values = read_json_object(path) if path.is_file() else {}
    for key, allowed in _FOLLOWED_OF_STANFORD.items():
        if values.get(key, allowed[0]) not in allowed:
            raise wrong_value(path, key, values[key], ", ".join(map(repr, allowed)))
    shape = weights.reader.shapes().get(PROJECTION, ())
    if len(shape) != 2:
        raise CheckpointError(f"{weights.path} has no {PROJECTION} of two dimensions")
    projection = DenseModule("", shape[1], shape[0], "linear", has_bias=False)
    query, document = (
        None if values.get(key) is None else count_of(path, values, key, "tokens")
        for key in ("query_maxlen", "doc_maxlen")
    )
    attended = flag_of(path, values, "attend_to_mask_tokens", default=False)
    skips = flag_of(path, values, "mask_punctuation", default=True)
    texts = {
        side: f"{values.get(key) or usual} "
        for side, key, usual in (
            (QUERY, "query_token_id", "[unused0]"),
            (DOCUMENT, "doc_token_id", "[unused1]"),
        )
    }
    fill = Fill(query or _CLASSIC_LENGTH, None, attended)
    most = read_transformer(folder)[0]
    return MultiVectorSettings(
        STANFORD,
        query=TextSettings(texts[QUERY], fill.length, (), fill),
        document=TextSettings(texts[DOCUMENT], document or most, tuple(string.punctuation) * skips),
        prompts=texts,
        markers=tuple((text, text.strip()) for text in texts.values()),
        modules=(projection, "normalize"),
        dense={projection: weights.path},
        files=(path,) if path.is_file() else (),
    )


def read_bge_m3(
    folder: Path, weights: WeightFiles, linears: Mapping[DenseModule, Path]
) -> MultiVectorSettings | None:
    """As `read_multi_vector`, for a folder with colbert_linear.pt; as FlagEmbedding's M3 model.

    `linears` are the linear layers beside the weights.
    """
    module = next((each for each in linears if each.path == COLBERT_LINEAR), None)
    if module is None:
        return None
    problem = next(module_problems(weights.root, "Transformer", "", _FOLLOWED), None)
    try:
        prompts, name, _, _ = read_main(folder / MAIN_CONFIG)
        most = read_transformer(weights.root)[0]
    except CheckpointError as error:
        problem = str(error)
    if problem is not None:
        return MultiVectorSettings(BGE_M3, unsupported=problem)
    default = "" if name is None else prompts[name]
    prompts = {QUERY: default, DOCUMENT: default, **prompts}
    return MultiVectorSettings(
        BGE_M3,
        query=TextSettings(prompts[QUERY], most, skip_first=True),
        document=TextSettings(default, most, skip_first=True),
        prompts=prompts,
        modules=(module, "normalize"),
        similarity="meanmaxsim",
    )
