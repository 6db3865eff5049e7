"""Model: a checkpoint whose layers a figure shows; all its vectors come from one pass.

A layer is an entry of LAYERS: `embeddings`, or the number of a block from 0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.sources.minilm import MINILM
from bert_features.checkpoints.tokenizer import resolve_vocabulary
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.layers import EMBEDDINGS, resolve_layers
from bert_features.config.outputs import OutputConfig
from bert_features.config.settings import shown
from bert_features.errors import ConfigError
from bert_features.extraction.checks import check_input_and_checkpoint
from bert_features.formats.records import FeatureRecord
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.plots.settings import INPUT_SETTINGS, MODEL_SETTINGS, WORD_SETTINGS
from bert_features.readers.examples import examples_of_texts
from bert_features.readers.input_example import InputExample

Layer = int | str
# A layer and a pooling, which tokens do not have.
_Pair = TypeVar("_Pair", bound=tuple[Layer, str | None])
# Takes what is counted (`texts`, `panels`), how many are done and how many there are.
Report = Callable[[str, int, int], None]
_USED = (*MODEL_SETTINGS, *INPUT_SETTINGS, *WORD_SETTINGS)


@dataclass(frozen=True)
class Model:
    """A checkpoint, and the settings to run it with.

    Attributes:
      settings: the settings of the user; the settings of outputs are not used.
      checkpoint: the checkpoint; its weights are read by `extract`.
    """

    settings: ExtractConfig
    checkpoint: Checkpoint
    is_uncased: bool

    @classmethod
    def find(cls, settings: ExtractConfig) -> "Model":
        """Finds the checkpoint of the settings; without TensorFlow, unless only that can read it.

        Raises:
          CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
          ConfigError: a setting does not fit the checkpoint.
        """
        names = settings.model_fields_set.intersection(_USED)
        used = {name: getattr(settings, name) for name in names}
        # The default layers need four; which layers are wanted is checked by `layers`.
        level = {"level": "word"} if names.intersection(WORD_SETTINGS) else {}
        config = ExtractConfig.of({**used, **level, "layers": (-1,)})
        checkpoint = check_input_and_checkpoint(config)
        if checkpoint is None:
            import_tensorflow(config.runtime, config.device)
            checkpoint = find_checkpoint(config.checkpoint, **config.checkpoint_options())
        return cls(config, checkpoint, resolve_vocabulary(checkpoint, config.do_lower_case)[1])

    @property
    def title(self) -> str:
        """Its name without the folder it is in, and its layers."""
        return title_of(self.checkpoint.name, self.checkpoint.config.num_hidden_layers)

    def layers(self, entries: Sequence[Layer] | None = None) -> tuple[Layer, ...]:
        """Layers by their numbers from 0, the lowest first; by default all of them.

        Raises ConfigError if an entry is out of range, or a layer is named twice.
        """
        count = self.checkpoint.config.num_hidden_layers
        states = sorted(resolve_layers(entries or (EMBEDDINGS, *range(count)), count))
        return tuple(EMBEDDINGS if state == 0 else state - 1 for state in states)

    def extract(
        self,
        texts: Sequence[str | InputExample],
        outputs: Sequence[OutputConfig],
        report: Report = lambda unit, done, total: None,
    ) -> list[FeatureRecord]:
        """The features of texts, one record for each, from one pass."""
        from bert_features.extraction.pipeline import Pipeline

        config = self.settings.model_copy(update={"outputs": tuple(outputs)})
        extractor = Pipeline(config, checkpoint=self.checkpoint)
        examples = list(examples_of_texts(texts, config.input_settings()))
        batches = extractor.batches(
            lambda: examples,
            progress=lambda counts: report("texts", counts.examples, len(examples)),
        )
        return [record for batch in batches for record in batch.records(extractor.features())]

    def vectors(
        self,
        texts: Sequence[str | InputExample],
        level: str,
        pairs: Sequence[_Pair],
        report: Report = lambda unit, done, total: None,
    ) -> Iterator[tuple[FeatureRecord, dict[_Pair, np.ndarray]]]:
        """The record of each text, and its vectors by layer and pooling; from one pass."""
        outputs = {}
        for pair in pairs:
            layer, pooling = pair
            name = f"{pooling or 'layer'}_{layer}"
            settings = {"name": name, "layers": [layer], "level": level}
            pooled = {} if pooling is None else {"pooling": pooling}
            outputs[pair] = OutputConfig.of({**settings, **pooled})
        for record in self.extract(texts, list(outputs.values()), report):
            yield record, {pair: record.features[str(o.name)] for pair, o in outputs.items()}


def title_of(checkpoint: str, layers: int) -> str:
    """The name of a checkpoint without the folder it is in, and its layers."""
    name = Path(checkpoint).name if Path(checkpoint).exists() else checkpoint
    if checkpoint == MINILM:
        name = "minilm (all-MiniLM-L6-v2, not Google's BERT)"
    return f"{name}, {layers} layers (0 to {layers - 1})"


def layer_name(layer: Layer) -> str:
    """A layer as titles name it: `layer 3`, `embeddings`."""
    return layer if isinstance(layer, str) else f"layer {layer}"


def layer_place(layer: Layer) -> int:
    """The place of a layer on an axis: its number, -1 for the embeddings."""
    return -1 if isinstance(layer, str) else layer


def check_names(setting: str, received: Sequence[str], allowed: Iterable[str]) -> None:
    """Refuses names that are unknown or occur twice in a setting; raises ConfigError."""
    if len(set(received)) < len(received) or not set(received).issubset(allowed):
        raise ConfigError(
            f"{setting} is {shown(','.join(received))}; allowed: each of {', '.join(allowed)} once"
        )


def choose_layer(model: Model, layer: Layer | None) -> Layer:
    """The layer of a picture, by default the last; raises ConfigError if it is out of range."""
    return model.layers([-1 if layer is None else layer])[0]


def token_vectors(
    model: Model, texts: Sequence[str]
) -> list[tuple[tuple[str, ...], Mapping[Layer, Any]]]:
    """The tokens of each text, and at every layer their vectors, float32 [tokens, H]."""
    records = model.vectors(texts, "token", [(layer, None) for layer in model.layers()])
    return [
        (record.tokens or (), {layer: values for (layer, _), values in vectors.items()})
        for record, vectors in records
    ]
