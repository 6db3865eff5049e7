"""bert-features fill: prints the likeliest pieces for each [MASK] of texts."""

import math
from typing import Annotated

import typer

from bert_features.cli.command import command
from bert_features.cli.settings import takes_settings
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import InputError

_CHECKPOINT = ("checkpoint", "config_file", "vocab_file", "do_lower_case", "hidden_act")


@command("fill 'The [MASK] sat.' --checkpoint bert-base-uncased --top-k 3")
@takes_settings(*_CHECKPOINT, "device", "runtime", "precision", config=False)
def fill(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="Texts with [MASK], of RoBERTa with <mask>, for example: 'The [MASK] sat'.",
        ),
    ],
    settings: ExtractConfig,
    top_k: Annotated[int, typer.Option(min=1, help="Number of pieces for each [MASK].")] = 5,
) -> None:
    """Prints the likeliest pieces for each [MASK] of texts.

    All [MASK]s of a text are masked at the same time, and filled each by itself, by the masked-LM
    head. The embedded minilm has none; pass --checkpoint bert-base-uncased, or another model that
    was not fine-tuned. Logarithms are natural.
    """
    from bert_features.extraction.checks import check_input_and_checkpoint
    from bert_features.extraction.extractor import FeatureExtractor

    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    output = {"kind": "masked_lm", "name": "fill", "top_k": top_k}
    config = ExtractConfig.of({**given, "outputs": [output]})
    extractor = FeatureExtractor(config, checkpoint=check_input_and_checkpoint(config))
    pieces = dict(enumerate(extractor.tokenizer.tokens))
    mask = pieces[extractor.preparation.mask_id or 0]
    for text in texts:
        if mask not in text:
            raise InputError(f"{text!r} has no {mask}; write {mask} where a word is missing")
    for text, record in zip(texts, extractor(texts), strict=True):
        masks = [place for place, token in enumerate(record.tokens or ()) if token == mask]
        if lost := text.count(mask) - len(masks):
            raise InputError(f"{lost} {mask} of {text[:40]!r}… were cut off; pass a shorter text")
        print(text)
        for number, place in enumerate(masks, 1):
            if len(masks) > 1:
                print(f"\n{mask} {number} of {len(masks)}")
            ids, values = (record.features[name][place].tolist() for name in ("fill_ids", "fill"))
            rows = [
                # ModernBERT's table of words has rows beyond its pieces.
                (pieces.get(i, f"id {i}"), f"{math.exp(value):.2%}", f"{value:.3f}")
                for i, value in zip(ids, values, strict=True)
            ]
            print(table(rows, head=("piece", "probability", "log-probability"), right=(1, 2)))
        print()
