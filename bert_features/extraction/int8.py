"""The arithmetic in int8: the texts that its ranges come from, and its errors on texts of a run.

The texts never change, so a checkpoint has the same vectors in every run, service and process,
whatever is computed. They are of many kinds and scripts; ranges of 600 lines of the judged corpus
are hardly better (benchmarks/diary.md).
"""

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from bert_features.batches.input_fn import TextInputFn
from bert_features.batches.long_text import MIN_SEQ_LENGTH, LongText
from bert_features.checkpoints.read import view_weights
from bert_features.encoder.forms import traced_for
from bert_features.encoder.int8 import exact_products
from bert_features.encoder.step import MODEL_INPUTS, DeviceStep
from bert_features.readers.input_example import InputExample

if TYPE_CHECKING:
    from bert_features.extraction.preparation import Preparation

logger = logging.getLogger("bert_features")

_TEXTS = (
    '"Well," she said, "I don\'t know (and neither do you) what happened on 12/03/1998; do you?"',
    "http://www.example.com/index.html?id=42 and mail to someone@example.org -- or call +1 (555) "
    "010-9999!",
    "Q: How much is 3.14 * 2? A: $6.28, i.e. about 6; see pp. 17-23 of [4].",
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG...",
    "yes",
    "The patient was given 5 mg/kg of the drug every 8 hours; temperature fell from 39.5 °C to "
    "37 °C.",
    "def f(x): return x ** 2 + 1  # a parabola",
    "In 1815, Napoleon's army was defeated at Waterloo by Wellington & Blücher, a Prussian "
    "general.",
    "- Item one: eggs, milk, bread; item two: 3 x 500 g of flour.",
    "!!! ??? ... ,,, ;;; ::: --- ___ *** /// ((( )))",
    "_" * 60,
    "= " * 30 + "- " * 30,
    "Stocks fell 2.3% on Tuesday after the Fed's chairman said that rates might rise again "
    '"soon".',
    "我们在北京的一家餐馆里吃饭。 これは日本語の文章です。 이것은 한국어 문장입니다.",
    "Die Würde des Menschen ist unantastbar. L'État, c'est moi. ¿Qué hora es? Não sei.",
    "Все люди рождаются свободными. جميع الناس أحرار. सभी मनुष्य स्वतंत्र हैं। Όλοι οι άνθρωποι.",
    "To be, or not to be: that is the question; whether 'tis nobler in the mind to suffer the "
    "slings and arrows of outrageous fortune, or to take arms against a sea of troubles, and by "
    "opposing end them.",
    "Let G be a finite group of order p^n; then its centre Z(G) is not trivial.",
    "I love this phone!! Best purchase ever :) 5/5 stars, would buy again <3",
    "The Senate voted 51 to 49. President Biden signed the bill, H.R. 1319, on Thursday, March 11, "
    "2021.",
    "cells, proteins, and enzymes; photosynthesis; mitochondria; deoxyribonucleic acid (DNA)",
    "He ran.",
)

# Texts of a run whose errors are found, and their characters: some 1,000 tokens.
_JUDGED, _JUDGED_CHARACTERS = 32, 4000
_BATCH_TOKENS = 512
_LENGTH = 128  # of the rows that ranges come from
# It is worth a warning if 1 % of the tokens have a lower cosine: MiniLM has 0.993.
_GOOD = 0.98


def calibration_batches(preparation: "Preparation") -> Iterator[dict[str, np.ndarray]]:
    """The batches that ranges come from, for `DeviceStep`; a checkpoint always has the same."""
    examples = [InputExample(i, text) for i, text in enumerate(_TEXTS)]
    length = min(_LENGTH, preparation.checkpoint.config.positions)
    input_fn = TextInputFn(
        lambda: examples,
        preparation.tokenizer,
        buckets=range(MIN_SEQ_LENGTH, length + 1),
        megabatch_tokens=_BATCH_TOKENS * len(examples),
        long_text=LongText("truncate", length),
    )
    return _batches(input_fn)


def log_errors(
    model: DeviceStep, preparation: "Preparation", examples: Iterable[InputExample]
) -> Iterator[InputExample]:
    """Logs how far a step in int8 is from float32 on the first examples; gives all examples."""
    examples = iter(examples)
    head = list(_first(examples))
    low = {}
    for number, errors in enumerate(errors_by_layer(model, preparation, head), 1):
        low[number] = np.percentile(errors, 1)
        logger.info(
            "int8 after layer %d: cosine to float32 %.4f on average, 1%% of the tokens below %.4f, "
            "the lowest %.4f (the first %d texts)",
            *(number, errors.mean(), low[number], errors.min(), len(head)),
        )
    worst = min(low, key=low.__getitem__, default=0)
    if low and low[worst] < _GOOD:
        logger.warning(
            "int8 is inexact for %s: after layer %d 1%% of the tokens have a cosine to float32 "
            "below %.3f; take precision float32 or bfloat16, or see what it does to your task",
            *(preparation.checkpoint.name, worst, low[worst]),
        )
    return itertools.chain(head, examples)


def errors_by_layer(
    model: DeviceStep, preparation: "Preparation", examples: list[InputExample]
) -> list[np.ndarray]:
    """For each layer the cosines of the tokens' vectors to those in float32, float64 [tokens]."""
    # The rows of the run, whatever its outputs and what it does with long texts.
    input_fn = TextInputFn(
        preparation.prompts.put_before(lambda: examples, None),
        preparation.tokenizer,
        buckets=preparation.buckets,
        megabatch_tokens=preparation.megabatch_tokens,
        long_text=LongText("truncate", preparation.long_text.seq_length),
        sides=preparation.sides,
    )
    batches = list(_batches(input_fn))
    encoder, weights = model.encoder, view_weights(preparation.checkpoint)
    # Not in a graph, whose trace takes longer than these few texts.
    with traced_for("cpu"):
        rough = [encoder(batch) for batch in batches]
    by_layer: list[list[np.ndarray]] = [[] for _ in range(encoder.num_blocks)]
    with exact_products(encoder, weights):
        for batch, states in zip(batches, rough, strict=True):
            real = batch["input_mask"] > 0
            exact = encoder(batch)["encoder_outputs"]
            pairs = zip(by_layer, states["encoder_outputs"], exact, strict=True)
            for cosines, *pair in pairs:
                a, b = (np.array(vectors, np.float64)[real] for vectors in pair)
                lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
                cosines.append((a * b).sum(axis=-1) / np.maximum(lengths, np.finfo(float).tiny))
    return [np.concatenate(cosines) for cosines in by_layer if cosines]


def _first(examples: Iterator[InputExample]) -> Iterator[InputExample]:
    characters = 0
    for example in itertools.islice(examples, _JUDGED):
        yield example
        characters += len(example.text_a) + len(example.text_b or "")
        if characters > _JUDGED_CHARACTERS:
            break


def _batches(input_fn: TextInputFn) -> Iterator[dict[str, np.ndarray]]:
    for columns in input_fn.batches({"batch_tokens": _BATCH_TOKENS}):
        yield {name: columns[name] for name in MODEL_INPUTS}
