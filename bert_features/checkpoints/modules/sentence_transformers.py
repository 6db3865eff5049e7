"""The settings of a folder that sentence-transformers wrote: modules, pooling, length, prompts.

Read without that package. The files, as its `modules/pooling.py` and `modules/transformer.py` have
them:
  modules.json                       the modules in order, with the folder of each
  PATH/sentence_bert_config.json     of the Transformer; PATH is "" or 0_Transformer. Older folders
                                     have roberta, xlm-roberta, … for bert in this name
  1_Pooling/config.json              of the Pooling
  2_Dense/config.json                of a Dense, whose weights are beside it
  config_sentence_transformers.json  prompts, similarity and the number of values to keep
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

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
from bert_features.checkpoints.modules.sparse import (
    move_transformer,
    read_routes,
    read_sparse,
)
from bert_features.checkpoints.weights.file_names import (
    DENSE_WEIGHTS,
    LINEARS,
    MAIN_CONFIG,
    MODULES,
    ROUTER_CONFIG,
    TRANSFORMER_CONFIGS,
)
from bert_features.checkpoints.weights.weight_readers import open_weights, read_floats, some
from bert_features.config.json_files import read_json, read_json_object
from bert_features.config.poolings import DenseModule, Module, SparsePooling
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

# Its weights; a kernel is [out, in] there, here [in, out].
_STORED = {"kernel": "linear.weight", "bias": "linear.bias", "residual": "residual.weight"}

# Switches of a Pooling's config -> mode, in the order in which its vectors are put side by side.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_SUPPORTED = ("cls", "max", "mean", "mean_sqrt_len_tokens")
# Settings of modules and the values that are followed, see `module_problems`.
_FOLLOWED: dict[str, Any] = {
    **COMMON,
    **dict.fromkeys((*_SWITCHES, "pooling_mode", "include_prompt", "do_lower_case"), ...),
    **dict.fromkeys(("embedding_dimension", "word_embedding_dimension"), ...),
    **dict.fromkeys(("module_input_name", "module_output_name"), ("sentence_embedding",)),
    "Transformer.module_output_name": ("token_embeddings",),
}
# transformers writes int(1e30) for a tokenizer without a limit.
_NO_LIMIT = 10**9


@dataclass(frozen=True)
class SentenceTransformersSettings:
    """How sentence-transformers makes one vector of a text with this checkpoint.

    Attributes:
      transformer_path: folder of the weights and the vocabulary below the main one; may be empty.
      pooling_modes: poolings of the token vectors; the vectors of several stand side by side.
      include_prompt: whether the tokens of a prompt count when the text is pooled.
      modules: what is done to the pooled vector after that.
      normalize: whether the vector is scaled to length 1 at the end.
      dim: number of values to keep of the vector at the very end; None for all.
      max_seq_length: longest sequence in tokens, [CLS] and [SEP] included; None stands for the
        checkpoint's number of positions, which also bounds any other value.
      do_lower_case: whether a text is lower-cased before the tokenizer sees it, which strips no
        accents; the casing of the tokenizer is another setting.
      prompts: name -> text that is put before each text.
      default_prompt_name: the prompt that is used where none is asked for.
      similarity: how vectors are compared: `cosine`, `dot`, `euclidean`, `manhattan`; None if the
        folder does not say.
      sparse: how it makes sparse vectors; None if its vectors are others.
      sparse_problem: why sparse vectors cannot be computed here; None if they can.
      unsupported: why the vectors of sentence-transformers cannot be computed here; None if they
        can. The other settings are then what could be read.
      files: the files that hold these settings, and the weights of the Dense modules.
      dense: the file of the weights of each Dense module, and of the table of `sparse`.
      tables: the weights of that table, float32 [V].
    """

    transformer_path: str
    pooling_modes: tuple[str, ...]
    include_prompt: bool = True
    modules: tuple[Module, ...] = ()
    normalize: bool = False
    dim: int | None = None
    max_seq_length: int | None = None
    do_lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict, hash=False)
    default_prompt_name: str | None = None
    similarity: str | None = None
    sparse: SparsePooling | None = None
    sparse_problem: str | None = None
    unsupported: str | None = None
    files: tuple[Path, ...] = ()
    dense: Mapping[DenseModule, Path] = field(default_factory=dict, hash=False)
    tables: Mapping[DenseModule, np.ndarray] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def default_prompt(self) -> str:
        """The text that is put before each text where no prompt is asked for; may be empty."""
        return "" if self.default_prompt_name is None else self.prompts[self.default_prompt_name]

    def row_length(self, positions: int) -> int:
        """The tokens of the longest row, for a checkpoint with this number of positions."""
        return min(self.max_seq_length or positions, positions)

    def check_supported(self) -> None:
        """Refuses settings that cannot be followed, for `unsupported`; raises CheckpointError."""
        if self.unsupported is not None:
            raise CheckpointError(
                f"sentence-transformers' own vectors are unavailable: {self.unsupported}; choose a "
                f"pooling yourself{', or kind sparse' if self.sparse else ''}"
            )


def read_sentence_transformers(directory: str | Path) -> SentenceTransformersSettings | None:
    """Reads the settings of a folder that sentence-transformers wrote.

    They are None without a `modules.json` in it; raises CheckpointError if that is damaged. Any
    other problem, such as a value that is not allowed or a module that does not exist here, is no
    error: see `unsupported`.
    """
    folder = Path(directory)
    if not (folder / MODULES).is_file():
        return None
    modules, queries = read_routes(
        folder, read_modules(read_json(folder / MODULES), folder / MODULES)
    )
    path = path_of_transformer(modules)
    try:
        settings = _read_settings(folder, modules)
    except CheckpointError as error:  # the weights need none of the other files
        settings = SentenceTransformersSettings(path, (), unsupported=str(error))
    try:
        read = read_sparse(folder, modules, queries)
    except CheckpointError as error:
        settings = replace(settings, sparse_problem=str(error))
    else:
        sparse, table_files, tables = read or (None, {}, {})
        dense = {**settings.dense, **table_files}
        settings = replace(settings, sparse=sparse, dense=dense, tables=tables)
    paths = [folder / MODULES, folder / MAIN_CONFIG, transformer_config(folder / path)]
    paths += [folder / ROUTER_CONFIG] if queries else []
    others = [path for kind, path in (*modules, *queries) if kind != "Transformer"]
    paths += [folder / path / "config.json" for path in others]
    files = [path for path in paths if path.is_file()]
    return replace(settings, files=(*files, *settings.dense.values()))


def write_settings(
    settings: SentenceTransformersSettings,
    folder: Path,
    weights: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Writes the settings into another folder, which holds the encoder's weights itself.

    Reading it gives the same settings and the same `unsupported`. The Dense modules have their own
    weights, or those among `weights`, by canonical name; weights of other modules are not copied.
    Raises CheckpointError if a file is no longer as it was read.
    """
    from safetensors.numpy import save_file

    root, lengths = settings.files[0].parent, folder / TRANSFORMER_CONFIGS[0]
    dense = read_dense(settings, settings.dense) | dict(weights or {})
    for module in settings.dense:
        (place := folder / module.path).mkdir(parents=True, exist_ok=True)
        tensors = {_stored(name): np.ascontiguousarray(dense[name].T) for name in module.shapes}
        if module in settings.tables:
            tensors = {"weight": settings.tables[module]}
        save_file(tensors, place / DENSE_WEIGHTS[0], metadata={"format": "pt"})
    for path in set(settings.files) - {*settings.dense.values()}:
        new = lengths if path.name in TRANSFORMER_CONFIGS else folder / path.relative_to(root)
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, new)
    if (router := folder / ROUTER_CONFIG).is_file():
        move_transformer(router, settings.transformer_path)
    modules = read_json(root / MODULES)
    for module, (kind, _) in zip(modules, read_modules(modules, root / MODULES), strict=True):
        module["path"] = "" if kind == "Transformer" else module["path"]
    (folder / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    if settings.max_seq_length is not None:  # the tokenizer's file, which is not copied, may say it
        values = read_json_object(lengths) if lengths.is_file() else {}
        values["max_seq_length"] = settings.max_seq_length
        lengths.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


class HasDense(Protocol):
    """What knows the weights of each Dense module."""

    @property
    def dense(self) -> Mapping[DenseModule, Path]:
        """Module -> file."""
        ...

    @property
    def tables(self) -> Mapping[DenseModule, np.ndarray]:
        """Module -> its weights, float32 [V], of those that are read already."""
        ...


def read_dense(source: HasDense | None, modules: Iterable[DenseModule]) -> dict[str, np.ndarray]:
    """The weights of some of the Dense modules of `source`, float32 by canonical name.

    Raises CheckpointError if a file is damaged, or does not hold what its module needs.
    """
    weights: dict[str, np.ndarray] = {}
    for module in modules:
        assert source is not None  # modules come from it
        if module in source.tables:
            weights |= dict.fromkeys(module.shapes, source.tables[module][:, None])
            continue
        path = source.dense[module]
        begin = "linear." if path.name in LINEARS else ""  # whose files name the layer
        stored = {name: _stored(name).removeprefix(begin) for name in module.shapes}
        expected = {stored[name]: shape[::-1] for name, shape in module.shapes.items()}
        reader = open_weights(path, "safetensors")
        received = dict(reader.shapes())
        if not module.path:  # a file that also holds the encoder
            received = {name: shape for name, shape in received.items() if name in expected}
        if received != expected:
            held = some([f"{name} {shape}" for name, shape in received.items()])
            raise CheckpointError(f"{path} holds {held}; its config needs {expected}")
        for name in module.shapes:
            weights[name] = read_floats(reader, stored[name], path).T
    return weights


def _stored(name: str) -> str:
    """The name in a Dense module's own file of a weight, by its canonical name."""
    return _STORED[name.rpartition("/")[2]]


def _read_settings(folder: Path, modules: list[tuple[str, str]]) -> SentenceTransformersSettings:
    problem, after = next(_problems(folder, modules), None), list[Module]()
    modes, include_prompt = ["mean"], True
    if problem is None:
        modes, include_prompt = _read_pooling(folder / modules[1][1] / "config.json")
        for kind, path in modules[2:]:
            after.append(read_dense_module(folder, path) if kind == "Dense" else "normalize")
    normalize = after[-1:] == ["normalize"]
    prompts, default, similarity, dim = read_main(folder / MAIN_CONFIG)
    transformer = path_of_transformer(modules)
    max_seq_length, do_lower_case = read_transformer(folder / transformer)
    return SentenceTransformersSettings(
        transformer_path=transformer,
        pooling_modes=tuple(modes),
        include_prompt=include_prompt,
        modules=tuple(after[:-1] if normalize else after),
        normalize=normalize,
        dim=dim,
        max_seq_length=max_seq_length,
        do_lower_case=do_lower_case,
        prompts=prompts,
        default_prompt_name=default,
        similarity=similarity,
        unsupported=problem,
        dense={m: dense_weights(folder / m.path) for m in after if isinstance(m, DenseModule)},
    )


def _problems(folder: Path, modules: list[tuple[str, str]]) -> Iterator[str]:
    """Why the modules or their settings are not followed; each holds only if none is before it."""
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or not {"Dense", "Normalize"} >= {*kinds[2:]}:
        allowed = "Transformer and Pooling, then Dense or Normalize"
        yield f"its modules are {', '.join(kinds)}, not {allowed}"
    for kind, path in modules:
        yield from module_problems(folder, kind, path, _FOLLOWED)
        if kind == "Pooling" and (
            others := {*_read_pooling(folder / path / "config.json")[0]} - {*_SUPPORTED}
        ):
            yield f"its pooling_mode is {', '.join(sorted(others))}"


def path_of_transformer(modules: list[tuple[str, str]]) -> str:
    """The folder of the weights below the main one, by class and folder of each module."""
    return next((path for kind, path in modules if kind == "Transformer"), "")


def _read_pooling(path: Path) -> tuple[list[str], bool]:
    """The modes of a Pooling, in the order of their vectors; and whether prompts count."""
    values = read_json_object(path)
    include_prompt = flag_of(path, values, "include_prompt", default=True)
    stated = values.get("pooling_mode")
    if stated is not None:
        modes = [stated] if isinstance(stated, str) else stated
        names = [*_SWITCHES.values()]
        allowed = isinstance(modes, list) and modes and all(mode in names for mode in modes)
        if not allowed or len({*modes}) < len(modes):
            each = f"one or several of {', '.join(names)}, each once"
            raise wrong_value(path, "pooling_mode", stated, each)
        return modes, include_prompt
    on = [mode for key, mode in _SWITCHES.items() if flag_of(path, values, key, default=False)]
    return on or ["mean"], include_prompt


def read_transformer(folder: Path) -> tuple[int | None, bool]:
    """The longest sequence, None if it is not stated; and whether texts are lower-cased."""
    path, tokenizer = transformer_config(folder), folder / "tokenizer_config.json"
    values = read_json_object(path) if path.is_file() else {}
    length = _length(path, values, "max_seq_length")
    if length is None and tokenizer.is_file():
        length = _length(tokenizer, read_json_object(tokenizer), "model_max_length")
    return length, flag_of(path, values, "do_lower_case", default=False)


def read_main(path: Path) -> tuple[dict[str, str], str | None, str | None, int | None]:
    """The prompts, the name of the default one, the similarity, and the values to keep."""
    values = read_json_object(path) if path.is_file() else {}
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(t, str) for t in prompts.values()):
        raise wrong_value(path, "prompts", prompts, "an object of texts by name")
    name, similarity = values.get("default_prompt_name"), values.get("similarity_fn_name")
    if name is not None and (not isinstance(name, str) or name not in prompts):
        names = ", ".join(map(shown, [*prompts][:10]))
        raise wrong_value(path, "default_prompt_name", name, names or "no name, without prompts")
    if similarity is not None and not isinstance(similarity, str):
        raise wrong_value(path, "similarity_fn_name", similarity, "a name, such as cosine")
    dim = None if values.get("truncate_dim") is None else count_of(path, values, "truncate_dim")
    return prompts, name, similarity, dim


def _length(path: Path, values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    if value is None or (isinstance(value, int | float) and value >= _NO_LIMIT):
        return None
    return count_of(path, values, key, "tokens", 3)
