"""bert-features plot: pictures of layers, and a probe that compares them."""

import contextlib
import functools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import app, command
from bert_features.cli.help import CommandGroup
from bert_features.cli.progress import Heartbeat, describe_seconds
from bert_features.cli.settings import as_option, takes_settings
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import FIELD_NAMES
from bert_features.config.layers import ALL, parse_layers
from bert_features.config.settings import FILES, INPUT, OUTPUTS, shown
from bert_features.errors import ConfigError, InputError
from bert_features.files import Role
from bert_features.monitor.run import Pace
from bert_features.plots.settings import INPUT_SETTINGS, MODEL_SETTINGS, WORD_SETTINGS

if TYPE_CHECKING:
    from bert_features.plots.charts import Chart
    from bert_features.plots.labelled import Labelled
    from bert_features.plots.model import Layer
    from bert_features.plots.scores import Score

_MAX_TEXTS = 2


# Not a Path, which would make one slash of the two in an address.
OutputOption = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="File to write: .png, .svg, or .html for an interactive report in a single file.",
        rich_help_panel=FILES,
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing file.", rich_help_panel=FILES)
]
LayerOption = Annotated[
    str | None,
    typer.Option(
        "--layer",
        help="Layer to show: -L to L-1, or embeddings; by default the last, in a histogram all. An "
        ".html file has all, and begins with this one.",
        show_default=False,
        rich_help_panel=OUTPUTS,
    ),
]
LayersOption = Annotated[
    str | None,
    typer.Option(
        "--layers",
        help="Layers to compare, as --layers=embeddings,0,-1; by default the embeddings and every "
        "block.",
        show_default=False,
        rich_help_panel=OUTPUTS,
    ),
]
LabelFieldOption = Annotated[
    str | None,
    typer.Option(
        "--label-field",
        help="Column or JSON field of the labels.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="File of labelled texts: csv, tsv, jsonl or Parquet.",
        show_default=False,
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
    token: Annotated[
        str, typer.Option(help="Piece of the text, as bank, ##ing or [CLS].", rich_help_panel=INPUT)
    ],
    settings: ExtractConfig,
    occurrence: Annotated[
        int,
        typer.Option(
            metavar="N", help="Number of the piece among equal ones, from 1.", rich_help_panel=INPUT
        ),
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
        typer.Option(
            help="Layers, as --layers=0,-1; by default the last, in an .html file all.",
            show_default=False,
            rich_help_panel=OUTPUTS,
        ),
    ] = None,
    heads: Annotated[
        str,
        typer.Option(
            help="Heads, as 0,5; or all, or the mean or max of all.", rich_help_panel=OUTPUTS
        ),
    ] = "all",
    level: Annotated[
        Literal["token", "word"],
        typer.Option(help="Rows and columns: tokens or words.", rich_help_panel=OUTPUTS),
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
@takes_settings(*MODEL_SETTINGS, *INPUT_SETTINGS, *WORD_SETTINGS)
def word(
    word: Annotated[str, typer.Argument(metavar="WORD", help="Word to look for.")],
    output: OutputOption,
    settings: ExtractConfig,
    input_path: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="File of texts.", show_default=False)
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Text with the word, instead of a file. May be given several times.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    label_field: LabelFieldOption = None,
    layer: LayerOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draws how alike a word is in different texts, layer by layer.

    With labels, such as the senses of the word, pairs of the same label and of different labels are
    drawn apart.
    """
    with _drawing(output, overwrite=overwrite, read=input_path) as draw:
        from bert_features.plots.word import compare_word

        lines = _texts_of_word(input_path, text, settings, label_field)
        draw(compare_word(settings, word, lines, _layer(layer)))


@_kind("plot scatter labelled.csv --label-field topic -o topics.png")
@takes_settings(*MODEL_SETTINGS, *INPUT_SETTINGS)
def scatter(
    input_path: FileArgument,
    output: OutputOption,
    settings: ExtractConfig,
    label_field: LabelFieldOption = None,
    layers: LayersOption = None,
    pooling: Annotated[
        str, typer.Option(help="Poolings, separated by commas.", rich_help_panel=OUTPUTS)
    ] = "mean,cls",
    method: Annotated[
        str,
        typer.Option(
            help="Projections, separated by commas: pca, tsne (slower), umap (needs umap-learn).",
            rich_help_panel=OUTPUTS,
        ),
    ] = "pca",
    overwrite: OverwriteOption = False,
) -> None:
    """Draws labelled texts as points, by layer and pooling."""
    with _drawing(output, overwrite=overwrite, read=input_path) as draw:
        from bert_features.plots.labelled import read_labelled
        from bert_features.plots.scatter import scatter_texts

        labelled = read_labelled(input_path, settings, label_field)
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


@_kind("plot probe labelled.csv --label-field topic -o probe.html")
@takes_settings(*MODEL_SETTINGS, *INPUT_SETTINGS)
def probe(
    input_path: FileArgument,
    output: OutputOption,
    label_field: Annotated[
        str, typer.Option(help="Column or JSON field of the labels.", rich_help_panel=INPUT)
    ],
    settings: ExtractConfig,
    layers: LayersOption = None,
    pooling: Annotated[
        str,
        typer.Option(
            help="Poolings, separated by commas, the preferred one first.", rich_help_panel=OUTPUTS
        ),
    ] = "mean,cls,max",
    folds: Annotated[
        int, typer.Option(min=2, metavar="N", help="Folds of the cross-validation.")
    ] = 5,
    score: Annotated[
        Literal["accuracy", "balanced_accuracy"],
        typer.Option(help="Score; balanced_accuracy gives each class the same weight."),
    ] = "accuracy",
    overwrite: OverwriteOption = False,
) -> None:
    """Recommends a layer and a pooling by a linear classifier.

    Prints the score of each with its standard error over the folds, and the command to extract with
    the recommended ones.
    """
    with _drawing(output, overwrite=overwrite, read=input_path) as draw:
        from bert_features.plots.labelled import read_labelled
        from bert_features.plots.probe import probe as run

        labelled = read_labelled(input_path, settings, label_field)
        result = run(
            settings,
            labelled,
            layers=_layers(layers),
            poolings=pooling.split(","),
            folds=folds,
            metric=score,
            report=draw.report,
        )
        draw(result)
    recommended = result.recommendation
    print(f"\n{table(result.table())}\n\n{recommended.sentence}")
    if recommended.choice is not None:
        print(f"\n{_extract_command(input_path, settings, recommended.choice)}")


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
def _drawing(output: str, *, overwrite: bool, read: str | None = None) -> Iterator[_Drawing]:
    """Gives what writes a figure; a file that cannot be written is refused first."""
    from bert_features.plots.charts import check_chart

    roles: list[Role] = [] if read in (None, "-") else [("the input", str(read))]
    check_chart(output, overwrite=overwrite, read=roles)
    with Heartbeat("making the figure") as heartbeat:
        yield _Drawing(output, overwrite, heartbeat)


def _extract_command(path: str, settings: ExtractConfig, choice: "Score") -> str:
    """The command that extracts with a layer and a pooling from the same texts and model."""
    words = ["bert-features", "extract", path, "-o", "features.parquet", f"--layers={choice.layer}"]
    words += ["--level", "sequence", "--pooling", choice.pooling]
    names = dict.fromkeys((*MODEL_SETTINGS, *INPUT_SETTINGS, *FIELD_NAMES))
    del names["id_field"]  # figures number the texts; the file may have no such field
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool):
            words.append(as_option(name, str(value)))
        elif value != ExtractConfig.model_fields[name].default:
            words += [as_option(name), str(value)]
    return shlex.join(words)


def _texts_of_word(
    path: str | None, texts: list[str] | None, settings: ExtractConfig, label_field: str | None
) -> "Labelled":
    from bert_features.plots.labelled import Labelled, read_labelled
    from bert_features.readers.input_example import InputExample

    if (path is None) == (not texts):
        found = "there are no texts" if path is None else "FILE and --text are both given"
        raise ConfigError(f"{found}; pass one of the two, FILE or --text")
    if path is not None:
        return read_labelled(path, settings, label_field)
    if label_field is not None:
        raise ConfigError(
            f"--label-field is {label_field!r}, but texts given by --text have no labels; pass FILE"
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
