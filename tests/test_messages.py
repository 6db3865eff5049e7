"""tests/data/messages.txt: what each `>>>` line of it says when it is refused, word by word.

It is the one place that fixes the words of messages; other tests look for the name of a setting or
of a file. A new line needs its `>>>` alone. After a change of words write the rest again, and read
what changed:

    UPDATE_MESSAGES=1 python -m pytest tests/test_messages.py
"""

import dataclasses
import difflib
import itertools
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_features import (
    BertEncoder,
    BertFeatures,
    BertTextInput,
    Client,
    FeatureExtractor,
    Padded,
    convert_examples_to_features,
    extract,
    get_features,
    model_fn_builder,
    read_features,
    shuffle_features,
)
from bert_features.batches.bucketing import resolve_buckets
from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.tokenizer import make_tokenizer
from bert_features.config.bert_config import BertConfig
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import InputFormat
from bert_features.config.outputs import OutputConfig
from bert_features.config.ray_settings import RaySettings
from bert_features.config.serve_settings import Limits, ServeSettings
from bert_features.config.shards import Shard
from bert_features.errors import BertFeaturesError
from bert_features.export.savedmodel import export_savedmodel
from bert_features.extraction.similarity import compute_similarity
from bert_features.formats.records import Feature, FeatureBatch
from bert_features.neighbors.nearest import nearest
from bert_features.readers.examples import read_examples
from bert_features.serving.compare import compare
from tests.cli.command_line import run as run_command
from tests.formats.feature_files import make_batch, write
from tests.readers.inputs import json_lines, with_ids, write_parquet
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

MESSAGES = Path(__file__).parent / "data" / "messages.txt"
QUICK = (
    "# Settings of a run",
    "# Config files",
    "# Input files",
    "# Features files",
    "# The service",
)


def read(content, name="in.txt", **settings):
    """Reads a file of this content; a dict has the columns of a Parquet file."""
    if isinstance(content, dict):
        write_parquet(Path(), content, name)
    else:
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_examples(name, InputFormat(**settings)))


def plan(**settings):
    """Resolves settings for a checkpoint of 3 layers, 2 heads, width 8 and 24 positions."""
    config = ExtractConfig(**settings)
    config.row_length(TOY, "toy")
    return config.plan_outputs(TOY)


def write_to(output, inputs="words.txt", *, settings=(), **how):
    """Extracts the features of the toy checkpoint."""
    given = {"checkpoint": "toy", "do_lower_case": True, "layers": -1, "max_seq_length": 8}
    given = {name: value for name, value in (given | dict(settings)).items() if value is not None}
    before = set(Path().rglob("*"))
    try:
        return extract(ExtractConfig(**given), inputs, output, **how)
    finally:
        assert set(Path().rglob("*")) == before


def config(model_type="bert", **values):
    """Reads the values of a config.json."""
    values = {"vocab_size": 30, "model_type": model_type, **values}
    return BertConfig.from_dict(values, family="huggingface")


def load(text):
    """Reads a file of settings."""
    Path("c.toml").write_text(text)
    return ExtractConfig.load("c.toml")


def changed(change=None, **files):
    """Finds and reads the toy checkpoint after a change of its config, or of other files.

    A file is called by its name with `_` for the dot; None removes it.
    """
    shutil.rmtree("changed", ignore_errors=True)
    folder = Path(shutil.copytree("toy", "changed"))
    values = json.loads((folder / "config.json").read_text()) | (change or {})
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in values.items() if value is not None})
    )
    for name, content in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_text(content)
    checkpoint = find_checkpoint(folder)
    make_tokenizer(checkpoint, True)
    return FeatureExtractor.from_checkpoint(folder, do_lower_case=True, layers=-1)


class Extractors:
    """`of(**settings)`: an extractor of the toy checkpoint, made once for the same settings."""

    def __init__(self):
        self._made = {}

    def of(self, **settings):
        settings = {"do_lower_case": True, "max_seq_length": 8, "layers": -1} | settings
        settings = {name: value for name, value in settings.items() if value is not None}
        key = repr(settings)
        self._made[key] = self._made.get(key) or FeatureExtractor.from_checkpoint("toy", **settings)
        return self._made[key]


class CommandError(Exception):
    """A command's exit status, and the line that it wrote to standard error."""


def run(line):
    """Runs a command; its refusal is raised, with what it said beside one line and what it left."""
    before = set(Path().rglob("*"))
    result = run_command(*shlex.split(line))
    said = [each for each in result.stderr.splitlines() if not each.startswith("running on")]
    left = sorted(map(str, set(Path().rglob("*")) - before))
    raise CommandError(f"{result.exit_code}, {' | '.join(said)}" + f" LEFT {left}" * bool(left))


def extraction(options, content="a b\n"):
    """Runs `extract` on a file of this content, with a ledger."""
    Path("in.txt").write_bytes(content.encode() if isinstance(content, str) else content)
    defaults = "--checkpoint toy --uncased --layers=-1 --max-seq-length 16 --ledger l"
    run(f"extract in.txt -o o.parquet {defaults} {options}")


def export_to(folder, **settings):
    """Exports the toy checkpoint."""
    settings = {"signature": "text", "do_lower_case": True} | settings
    export_savedmodel(folder, checkpoint="toy", **settings)


def prepare():
    """The files that the lines use, in the working folder."""
    write_directory(Path("toy"), TOY, TOY_VOCAB, random_weights(TOY))
    shutil.copytree(MESSAGES.parent / "masked_lm", "masked_lm")
    Path("words.txt").write_text("is this\nit\n")
    Path("old.npz").write_text("precious")
    Path("empty").mkdir()
    vectors = np.eye(3, 4, dtype=np.float32)
    feature = Feature("text", (-1,), "none", 4, "float32", "sequence", "mean")
    shutil.copy(MESSAGES.parent / "topics.csv", "topics.csv")
    write(Path("f.npz"), "npz", (feature,), FeatureBatch(np.arange(3), {"text": vectors}))
    both = (feature, dataclasses.replace(feature, name="piece", level="token", pooling="none"))
    write(Path("two.npz"), "npz", both, make_batch(both, [1, 2]))


NAMES = {
    each.__name__: each
    for each in (
        *(ExtractConfig, InputFormat, OutputConfig, RaySettings, Limits, ServeSettings, Shard),
        *(FeatureExtractor, Client, Padded, compare, read_examples, read_features, nearest),
        shuffle_features,
        *(compute_similarity, get_features, resolve_buckets, find_checkpoint, json_lines, with_ids),
        *(BertConfig, BertEncoder, BertFeatures, BertTextInput, model_fn_builder, convert),
        *(convert_examples_to_features, read, plan, config, load, changed, write_to),
        *(export_to, run, extraction),
    )
}
NAMES |= {"np": np, "TOY": TOY, "TOY_VOCAB": TOY_VOCAB}
NAMES["LAST"] = {"name": "last", "layers": [-1]}
NAMES["TWO"] = {
    "layers": None,
    "outputs": [{"name": n, "layers": -1, "level": n} for n in ("token", "word")],
}


def sections():
    """Heading -> its lines, in the order of the page."""
    heading, *parts = re.split(r"^(?=# )", MESSAGES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert not heading
    return {part.splitlines()[0]: part.rstrip() for part in parts}


def render(section, folder):
    """A section with the message of each `>>>` line below it."""
    names = {**NAMES, "of": Extractors().of}
    lines = []
    for line in section.splitlines():
        if line.startswith(("#", ">>> ")):
            lines.append(line)
        if line.startswith(">>> "):
            try:
                said = f"NOT REFUSED: {eval(line[4:], names)!r}"
            except (BertFeaturesError, CommandError) as error:
                said = f"{type(error).__name__}: {error}"
            lines += re.sub(rf"{re.escape(str(folder))}/?", "/WORK/", said).splitlines()
    return "\n".join(lines)


@pytest.mark.parametrize(
    "heading",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in sections()],
)
def test_the_words_of_messages(heading, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare()
    page = sections()
    now = render(page[heading], tmp_path)
    wrong = re.compile("NOT REFUSED|CommandError: 0|CommandError.* LEFT ")
    said = now.splitlines()
    assert [pair for pair in itertools.pairwise(said) if wrong.match(pair[1])] == []
    if "UPDATE_MESSAGES" in os.environ:
        page[heading] = now
        MESSAGES.write_text("\n\n".join(page.values()) + "\n", encoding="utf-8")
    elif now != page[heading]:
        lines = difflib.unified_diff(page[heading].splitlines(), now.splitlines(), n=1, lineterm="")
        pytest.fail("\n".join(lines))
