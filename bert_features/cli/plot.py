"""bert-features plot: pictures of layers, and a probe that compares them."""

import contextlib
import functools
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import app, command, file_option, input_option, output_option
from bert_features.cli.help import CommandGroup
from bert_features.cli.progress import Heartbeat, describe_seconds
from bert_features.cli.settings import as_option, takes_settings
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import FIELD_NAMES
from bert_features.config.layers import ALL, parse_layers
from bert_features.config.settings import shown
from bert_features.errors import ConfigError, InputError
from bert_features.files import Role, check_apart, check_target, real_target, replacing
from bert_features.monitor.run import Pace
from bert_features.plots.settings import INPUT_SETTINGS, MODEL_SETTINGS, WORD_SETTINGS
from bert_features.probe.settings import FOLDS, MAX_EXAMPLES, PROBE_SETTINGS

if TYPE_CHECKING:
    from bert_features.plots.charts import Chart
    from bert_features.plots.labelled import Labelled
    from bert_features.plots.model import Layer
    from bert_features.probe.scores import Score

_MAX_TEXTS = 2

# Not a Path, which would make one slash of the two in an address.
OutputOption = Annotated[
    str,
    file_option(
        "--output",
        "-o",
        help="File to write: .png, .svg, or .html for an interactive report in a single file.",
    ),
]
OverwriteOption = Annotated[bool, file_option("--overwrite", help="Replace an existing file.")]
LayerOption = Annotated[
    str | None,
    output_option(
        "--layer",
        help="Layer to show: -L to L-1, or embeddings; by default the last, in a histogram all. An "
        ".html file has all, and begins with this one.",
    ),
]
LayersOption = Annotated[
    str | None,
    output_option(
        "--layers",
        help="Layers to compare, as --layers=embeddings,0,-1; by default the embeddings and every "
        "block.",
    ),
]


kinds = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
app.add_typer(kinds, name="plot", help="Draws what layers compute, and compares them by a probe.")
_kind = functools.partial(command, group=kinds)


@_kind("plot histogram 'They sat by the river bank.' --token bank -o bank.png")
@takes_settings(*MODEL_SETTINGS)
def histogram(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text that has the token.")],
    output: OutputOption,
    token: Annotated[str, input_option(help="Piece of the text, as bank, ##ing or [CLS].")],
    settings: ExtractConfig,
    occurrence: Annotated[
        int, input_option(metavar="N", help="Number of the piece among equal ones, from 1.")
    ] = 1,
    layer: LayerOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draws the values of one token at one layer, or at each."""
    with _drawing(output, overwrite=overwrite) as draw:
        from bert_features.plots.histogram import token_histogram

        draw(token_histogram(settings, text, token, occurrence=occurrence, layer=_layer(layer)))


@_kind("plot similarity 'A dog barked.' 'The cat ran off.' -o tokens.html")
@takes_settings(*MODEL_SETTINGS)
def similarity(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT [TEXT]", help="One text, or two to compare.")
    ],
    output: OutputOption,
    settings: ExtractConfig,
    layer: LayerOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draws the cosine of each pair of tokens as a heat map."""
    if len(texts) > _MAX_TEXTS:
        raise InputError(f"{len(texts)} texts for a heat map; pass one text, or two")

    with _drawing(output, overwrite=overwrite) as draw:
        from bert_features.plots.similarity import compare_tokens

        draw(compare_tokens(settings, texts, _layer(layer)))


@_kind("plot attention 'A dog barked at the cat.' -o heads.html")
@takes_settings(*MODEL_SETTINGS, *WORD_SETTINGS)
def attention(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT [TEXT]", help="One text, or the two of a pair.")
    ],
    output: OutputOption,
    settings: ExtractConfig,
    layers: Annotated[
        str | None,
        output_option(help="Layers, as --layers=0,-1; by default the last, in an .html file all."),
    ] = None,
    heads: Annotated[
        str, output_option(help="Heads, as 0,5; or all, or the mean or max of all.")
    ] = "all",
    level: Annotated[
        Literal["token", "word"], output_option(help="Rows and columns: tokens or words.")
    ] = "token",
    overwrite: OverwriteOption = False,
) -> None:
    """Draws what attends to what: small maps of the heads of a layer, or one head large.

    One layer and one head, or their mean, make a large map.
    """
    if len(texts) > _MAX_TEXTS:
        raise InputError(f"{len(texts)} texts; pass one text, or the two of a pair")

    with _drawing(output, overwrite=overwrite) as draw:
        from bert_features.plots.attention import show_attention

        pair = texts[0] if len(texts) == 1 else (texts[0], texts[1])
        chosen = _layers(layers)
        draw(show_attention(settings, pair, layers=chosen, heads=heads, level=level))


@_kind("plot word bank lines.tsv --label-field sense -o bank.svg")
@takes_settings(
    *MODEL_SETTINGS, *INPUT_SETTINGS, "label_field", *WORD_SETTINGS, shown=["label_field"]
)
def word(
    word: Annotated[str, typer.Argument(metavar="WORD", help="Word to look for.")],
    output: OutputOption,
    settings: ExtractConfig,
    input_path: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="File of texts.")
    ] = None,
    text: Annotated[
        list[str] | None,
        input_option(help="Text with the word, instead of a file. May be given several times."),
    ] = None,
    layer: LayerOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draws how alike a word is in different texts, layer by layer.

    With labels, such as the senses of the word, pairs of the same label and of different labels are
    drawn apart.
    """
    with _drawing(output, overwrite=overwrite, read=input_path) as draw:
        from bert_features.plots.word import compare_word

        lines = _texts_of_word(input_path, text, settings)
        draw(compare_word(settings, word, lines, _layer(layer)))


@_kind("plot scatter labelled.csv --label-field topic -o topics.png")
@takes_settings(*MODEL_SETTINGS, *INPUT_SETTINGS, "label_field", shown=["label_field"])
def scatter(
    input_path: Annotated[
        str,
        typer.Argument(metavar="FILE", help="File of labelled texts; see --label-field."),
    ],
    output: OutputOption,
    settings: ExtractConfig,
    layers: LayersOption = None,
    pooling: Annotated[str, output_option(help="Poolings, separated by commas.")] = "mean,cls",
    method: Annotated[
        str,
        output_option(
            help="Projections, separated by commas: pca, tsne (slower), umap (needs umap-learn)."
        ),
    ] = "pca",
    overwrite: OverwriteOption = False,
) -> None:
    """Draws labelled texts as points, by layer and pooling."""
    with _drawing(output, overwrite=overwrite, read=input_path) as draw:
        from bert_features.plots.labelled import read_labelled
        from bert_features.plots.scatter import scatter_texts

        labelled = read_labelled(input_path, settings)
        draw(
            scatter_texts(
                settings,
                labelled,
                layers=_layers(layers),
                poolings=pooling.split(","),
                methods=method.split(","),
                report=draw.report,
            )
        )


@_kind("plot probe sentences.conllu --label-field upos -o probe.png")
@takes_settings(
    *MODEL_SETTINGS, *INPUT_SETTINGS, *PROBE_SETTINGS, shown=["label_field", "span_field"]
)
def probe(
    input_path: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="File of texts with labels of texts, words or spans; or a features file with "
            "several layers and labels of words or spans.",
        ),
    ],
    output: OutputOption,
    settings: ExtractConfig,
    test: Annotated[
        str | None,
        input_option(
            metavar="FILE",
            help="File of other examples to score, of the same kind; by default the examples are "
            "scored by cross-validation.",
        ),
    ] = None,
    max_examples: Annotated[
        int,
        input_option(
            min=2,
            metavar="N",
            help="Most examples; of a larger file whole texts are drawn at random.",
        ),
    ] = MAX_EXAMPLES,
    layers: LayersOption = None,
    pooling: Annotated[
        str | None,
        output_option(
            help="Poolings, separated by commas, the preferred one first; by default mean, of "
            "texts mean,cls,max, of a features file all."
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            min=2, metavar="N", help="Folds of the cross-validation, or parts of the test examples."
        ),
    ] = FOLDS,
    score: Annotated[
        Literal["accuracy", "balanced_accuracy", "macro_f1"],
        typer.Option(help="Score; all but accuracy give each label the same weight."),
    ] = "accuracy",
    report: Annotated[
        str | None,
        file_option(
            metavar="FILE", help="JSON file for every number, the settings and the versions."
        ),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Recommends a layer by a linear classifier, with control labels, baselines and code length.

    Prints the scores of each layer with their standard errors, and the command to extract with the
    recommended one.
    """
    with _drawing(output, overwrite=overwrite, read=input_path, test=test, report=report) as draw:
        from bert_features.probe.examples import Texts, find_origin
        from bert_features.probe.report import probe as run

        chosen = _layers(layers), pooling.split(",") if pooling else None
        origins = [find_origin(each, settings, *chosen) for each in (input_path, test) if each]
        result = run(
            *origins, folds=folds, metric=score, max_examples=max_examples, report=draw.report
        )
        draw(result)
        if report is not None:
            written = json.dumps(result.report(), indent=1) + "\n"
            with replacing(Path(report), overwrite=overwrite) as new:
                new.write_text(written, encoding="utf-8")
    advice = result.advice
    print(f"\n{table(result.table())}\n\n{advice.sentence}")
    if advice.choice is not None and isinstance(origins[0], Texts):
        command = _extract_command(input_path, settings, origins[0].level, advice.choice)
        print(f"\n{command}")


@_kind("plot cka first.parquet second.parquet -o cka.png")
def cka(
    a: Annotated[str, typer.Argument(metavar="A", help="Features file or folder.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another, of the same texts.")],
    output: OutputOption,
    overwrite: OverwriteOption = False,
) -> None:
    """Draws the linear CKA of each layer of a features file with each layer of another.

    Beside it, as the null, the rows of the second are permuted.
    """
    with _drawing(output, overwrite=overwrite) as draw:
        from bert_features.plots.cka import compare_layers

        draw(compare_layers(a, b, draw.report))


@dataclass
class _Drawing:
    """Writes a figure, and logs now and then how far its making is."""

    output: str
    overwrite: bool
    heartbeat: Heartbeat
    paces: dict[str, Pace] = field(default_factory=dict)

    def __call__(self, chart: "Chart") -> None:
        from bert_features.plots.charts import write_chart

        self.heartbeat.doing = "writing the figure"
        write_chart(chart, self.output, overwrite=self.overwrite)
        print(f"{self.output}: {chart.caption}")

    def report(self, unit: str, done: int, total: int) -> None:
        """Notes how many texts, panels or scores are done."""
        seconds = self.paces.setdefault(unit, Pace()).note(done, total, done).seconds_left
        left = "" if seconds is None else f", {describe_seconds(seconds)} left"
        self.heartbeat.doing = f"making the figure: {done:,} of {total:,} {unit}{left}"


@contextlib.contextmanager
def _drawing(
    output: str,
    *,
    overwrite: bool,
    read: str | None = None,
    test: str | None = None,
    report: str | None = None,
) -> Iterator[_Drawing]:
    """Gives what writes a figure; a file that cannot be written is refused first."""
    from bert_features.plots.charts import check_chart

    paths = {"the input": read, "the test": test}
    roles: list[Role] = [(role, path) for role, path in paths.items() if path not in (None, "-")]
    check_chart(output, overwrite=overwrite, read=roles)
    if report is not None:
        check_apart(roles, [("the figure", output), ("the report", report)])
        check_target(real_target(report), overwrite=overwrite)
    with Heartbeat("making the figure") as heartbeat:
        yield _Drawing(output, overwrite, heartbeat)


def _extract_command(path: str, settings: ExtractConfig, level: str, choice: "Score") -> str:
    """The command that extracts with a layer and a pooling from the same texts and model."""
    words = ["bert-features", "extract", path, "-o", "features.parquet", f"--layers={choice.layer}"]
    words += ["--level", level, "--pooling", choice.pooling]
    of_labels = PROBE_SETTINGS if level != "sequence" else ()  # extract keeps no labels of texts
    names = dict.fromkeys((*MODEL_SETTINGS, *INPUT_SETTINGS, *FIELD_NAMES, *of_labels))
    del names["id_field"]  # figures number the texts; the file may have no such field
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool):
            words.append(as_option(name, str(value)))
        elif value != ExtractConfig.model_fields[name].default:
            words += [as_option(name), str(value)]
    return shlex.join(words)


def _texts_of_word(
    path: str | None, texts: list[str] | None, settings: ExtractConfig
) -> "Labelled":
    from bert_features.plots.labelled import Labelled, read_labelled
    from bert_features.readers.input_example import InputExample

    if (path is None) == (not texts):
        problem = "there are no texts" if path is None else "FILE and --text are both given"
        raise ConfigError(f"{problem}; pass one of the two, FILE or --text")
    if path is not None:
        return read_labelled(path, settings)
    if (field := settings.label_field) is not None:
        raise ConfigError(
            f"--label-field is {field!r}, but texts given by --text have no labels; pass FILE"
        )
    examples = [InputExample(i, text) for i, text in enumerate(texts or ())]
    return Labelled("the texts", examples, None)


def _layers(text: str | None) -> "tuple[Layer, ...] | None":
    return None if text is None else parse_layers(text)


def _layer(text: str | None) -> "Layer | None":
    if text is None:
        return None
    entries = parse_layers(text)
    if len(entries) != 1 or ALL in entries:
        raise ConfigError(f"--layer is {shown(text)}; name one layer")
    return entries[0]
