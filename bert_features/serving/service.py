"""Service: what a replica does with a request, whatever form its answer takes."""

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePath
from typing import Any, TypeVar

from bert_features import __version__
from bert_features.batches.pieces import Pieces, find_pieces
from bert_features.batches.words import WordSplit
from bert_features.checkpoints.sources.minilm import MINILM
from bert_features.config.features import ITEM_SIZES, OutputSpec
from bert_features.config.levels import LEVELS
from bert_features.config.output_specs import has_spans
from bert_features.config.serve_settings import ServeSettings
from bert_features.extraction.canaries import compute_canaries
from bert_features.extraction.pipeline import Pipeline
from bert_features.extraction.preparation import Preparation
from bert_features.formats.records import FeatureBatch
from bert_features.readers.examples import add_spans
from bert_features.readers.input_example import InputExample
from bert_features.serving.catalog import Catalog
from bert_features.serving.engine import Engine
from bert_features.serving.failures import RequestError
from bert_features.serving.messages import Feature, FeaturesRequest, Info, Output
from bert_features.serving.metrics import ServiceMetrics
from bert_features.serving.queue import Queue
from bert_features.text.tokenizer import utf8

logger = logging.getLogger("bert_features.serve")

_MINILM_IS = "all-MiniLM-L6-v2, the embedded model; not Google's BERT"
_T = TypeVar("_T")
# The share of the time limit that what waits may take to compute. A request beyond it is refused
# at once, rather than computed in vain. The oldest request has half of the device, so one may take
# twice the time of what waits before it.
_MOST_WAITING = 0.25
# Answers under way may hold as many times the bytes of the largest one.
_ANSWERS_UNDER_WAY = 4
# Bytes of text for each token that a request may have: texts have about 4. A word of 8 MiB is one
# token, and takes the tokenizer many seconds.
_BYTES_PER_TOKEN = 16
_WARNING_SECONDS = 60.0  # between two warnings of texts that are cut


@dataclass(frozen=True)
class Answer:
    """The features of the texts of a request.

    Attributes:
      features: the features that were asked for, in the order of the request.
      pieces: the pieces of the texts, with their places if the request wants tokens.
      prompts: for each text, characters of a prompt that was put before it.
    """

    features: tuple[OutputSpec, ...]
    results: FeatureBatch
    pieces: Pieces
    prompts: Sequence[int]
    with_tokens: bool
    preparation: Preparation

    @property
    def tokens(self) -> int:
        """Tokens that were computed, [CLS] and [SEP] included."""
        return len(self.results.columns["token_ids"])

    @property
    def tokens_lost(self) -> int:
        """Tokens that truncation cut off."""
        return int(self.results.counts["tokens_lost"].sum())

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer in any form: not every form and client shows what was lost."""
        return {"X-Tokens-Lost": str(self.tokens_lost)}


class Service:
    """Takes requests, refuses those beyond the limits, and computes the others.

    Args:
      extractor: its outputs have names, see `catalog.config_to_serve`.
      settings: the limits.

    Attributes:
      bytes_under_way: what the answers may take that their clients do not have yet.
      prompts: the names of the checkpoint's prompts.
    """

    def __init__(self, extractor: Pipeline, settings: ServeSettings) -> None:
        self.extractor = extractor
        self.settings = settings
        self.model = PurePath(extractor.checkpoint.name).name or extractor.checkpoint.name
        layers = extractor.checkpoint.config.num_hidden_layers
        self.catalog = Catalog.of(extractor.config, extractor.outputs, layers)
        self.metrics = ServiceMetrics()
        self._engine = Engine(
            extractor,
            queue=Queue(settings.limits.queued_tokens, self.metrics.queued_tokens.set),
            noted=self.metrics.note_load,
        )
        self._preparation_of = functools.lru_cache(extractor.preparation.with_outputs)
        self._pool = ThreadPoolExecutor(2, "answers")
        self.prompts = list(extractor.preparation.prompts.named)
        self.bytes_under_way = 0
        self._next_warning = -math.inf
        extractor.canaries = compute_canaries(extractor, few=True)
        self._recipe = extractor.recipe.to_json()
        for number, specs in enumerate(self.catalog.outputs.values()):
            self._engine.warm_up(specs, many=number == 0)  # the default

    async def compute(self, request: FeaturesRequest, until: ExitStack) -> Answer:
        """Computes the texts of a request; `until` is closed when the answer has been sent.

        The caller bounds the time. Raises RequestError for what is beyond a limit or the queue,
        ConfigError for a prompt that is unknown or does not fit, and what computing raises.
        """
        features = self.catalog.find(request.outputs)
        field, examples = texts_of(request)
        if request.spans is not None and not has_spans(features):
            names = [f.name for f in self.extractor.outputs if has_spans([f])]
            raise RequestError(
                "invalid_request",
                f"spans is for outputs of level 'span', here: {', '.join(names) or 'none'}",
                param="spans",
            )
        limits = self.settings.limits
        if len(examples) > limits.texts:
            raise RequestError(
                "too_large",
                f"the request has {len(examples)} texts; allowed: at most {limits.texts}",
            )
        sizes = (len(utf8(e.text_a)) + len(utf8(e.text_b or "")) for e in examples)
        _check_total(sizes, _BYTES_PER_TOKEN * limits.tokens, "bytes of text", field)
        preparation = self._preparation(features)

        def tokenize() -> tuple[list[InputExample], Pieces]:
            prompts = preparation.prompts
            prompt = prompts.find(None, request.prompt_name)
            prompted = list(prompts.put_before(lambda: examples, prompt)())
            options: Any = {"with_places": request.tokens, "mask_id": preparation.mask_id}
            return prompted, find_pieces(self.extractor.tokenizer, prompted, **options)

        prompted, pieces = await self.in_thread(tokenize)
        tokens = self._check_tokens(pieces, field, preparation)
        self._check_answer(features, examples, tokens, until)
        results = await self._wait(prompted, tokens, features)
        prompts = [len(p.text_a) - len(e.text_a) for p, e in zip(prompted, examples, strict=True)]
        return Answer(features, results, pieces, prompts, request.tokens, preparation)

    def _preparation(self, features: Sequence[OutputSpec]) -> Preparation:
        """The settings of features: the longest row and the prompt are theirs."""
        return self._preparation_of(tuple(feature.name for feature in features))

    def _check_tokens(self, pieces: Pieces, field: str, preparation: Preparation) -> list[int]:
        _check_total(pieces.tokens, self.settings.limits.tokens, "tokens", field)
        longest = preparation.max_seq_length
        for i, count in enumerate(pieces.tokens):
            if preparation.long_text.policy == "error" and count > longest:
                raise RequestError(
                    "invalid_request",
                    f"{field}[{i}] has {count} tokens; allowed: at most {longest}",
                    param=f"{field}[{i}]",
                )
        return pieces.tokens

    def _check_answer(
        self,
        features: Sequence[OutputSpec],
        examples: Sequence[InputExample],
        tokens: Sequence[int],
        until: ExitStack,
    ) -> None:
        """Takes memory for an answer until a stack is closed; the bounds are known before."""
        split = self.extractor.config.word_split
        # Words have vectors even if they have no tokens, or if their tokens were cut off.
        words = (max(n, _known_words(e, split)) for e, n in zip(examples, tokens, strict=True))
        preparation = self._preparation(features)
        longest = max(tokens) if preparation.in_windows else preparation.max_seq_length
        kept = [min(count, longest) for count in tokens]
        units = {"token": kept, "word": [*words], "sequence": [1] * len(examples)}
        units["span"] = [
            n if e.spans is None else len(e.spans) for e, n in zip(examples, tokens, strict=True)
        ]
        sides = preparation.sides
        least = 0 if sides is None else sides.query.fill_length
        units["vector"] = [max(count, least) for count in kept]
        vectors = {
            level: sum(map(row.count, kept if row.axes == 2 else units[row.unit]))
            for level, row in LEVELS.items()
            if row.unit in units
        }
        most = {
            f.name: vectors.get(
                f.level,
                sum(min(n, f.max_units) if f.weighs_tokens else f.max_units for n in kept),
            )
            for f in features
        }
        size = sum(f.width * ITEM_SIZES[f.dtype] * most[f.name] for f in features)
        limit = self.settings.limits.answer_bytes
        if size > limit:
            raise RequestError(
                "too_large",
                f"the vectors of the answer would take {size} bytes; allowed: at most {limit}. "
                "Send fewer texts, or ask for fewer outputs",
                param="outputs",
            )
        if self.bytes_under_way and self.bytes_under_way + size > _ANSWERS_UNDER_WAY * limit:
            raise self.overloaded("the answers being sent take too much memory")
        self.bytes_under_way += size
        until.callback(self._leave, size)

    def _leave(self, size: int) -> None:
        self.bytes_under_way -= size

    def overloaded(self, reason: str) -> RequestError:
        """The refusal of a request because there are too many."""
        headers = {"Retry-After": str(max(1, round(self._engine.seconds_queued)))}
        return RequestError("overloaded", f"{reason}; try again later", headers=headers)

    async def _wait(
        self, examples: list[InputExample], tokens: Sequence[int], features: Sequence[OutputSpec]
    ) -> FeatureBatch:
        if self._engine.seconds_queued > _MOST_WAITING * self.settings.limits.seconds:
            raise self.overloaded("the waiting requests take more than a quarter of the time limit")
        job = self._engine.submit(examples, tokens, features)
        if job is None:
            raise self.overloaded(f"{self._engine.queue.tokens} tokens wait to be computed")
        try:
            return await asyncio.wrap_future(job.answer)
        finally:
            job.answer.cancel()

    def warn_of_loss(self, answer: Answer) -> None:
        """Logs that texts were cut, at most once a minute."""
        now = time.monotonic()
        if not answer.tokens_lost or now < self._next_warning:
            return
        self._next_warning = now + _WARNING_SECONDS
        lost, length = answer.results.counts["tokens_lost"], answer.preparation.max_seq_length
        logger.warning(
            "%d of %d texts of a request did not fit %d tokens and lost %d tokens; send shorter "
            "ones%s (logged at most once a minute)",
            *((lost > 0).sum(), len(lost), length, lost.sum()),
            "" if answer.preparation.in_windows else ", or start with --long-text window",
        )

    async def in_thread(self, function: Callable[[], _T]) -> _T:
        """Calls a function in a thread, so that other requests continue meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def info(self) -> Info:
        """The body of GET /v1/info."""
        config = self.extractor.checkpoint.config
        lengths = {
            name: self._preparation(specs).max_seq_length
            for name, specs in self.catalog.outputs.items()
        }
        name = self.extractor.checkpoint.name
        return Info(
            model=self.model,
            description=_MINILM_IS if name == MINILM else name,
            layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            max_seq_length=max(lengths.values()),
            long_text=self.extractor.config.long_text,
            outputs=[
                Output(
                    name=name,
                    features=[Feature.model_validate(spec) for spec in specs],
                    max_seq_length=lengths[name],
                )
                for name, specs in self.catalog.outputs.items()
            ],
            prompts=self.prompts,
            limits=self.settings.limits,
            replicas=self.settings.replicas,
            device=self.extractor.device,
            version=__version__,
            recipe=self._recipe,
        )

    @property
    def is_alive(self) -> bool:
        """Whether it computes what it is asked for."""
        return self._engine.is_alive


def _check_total(sizes: Iterable[int], limit: int, unit: str, field: str) -> None:
    """Refuses the first text with which the sizes of the texts are beyond a limit."""
    for i, total in enumerate(accumulate(sizes)):
        if total > limit:
            raise RequestError(
                "too_large",
                f"with {field}[{i}] the request has {total} {unit}; allowed: at most {limit}",
                param=f"{field}[{i}]",
            )


def texts_of(request: FeaturesRequest) -> tuple[str, list[InputExample]]:
    """The field of a request that holds its texts, and these as examples.

    Raises RequestError if not exactly one of texts, pairs and words is given.
    """
    fields = [name for name in _EXAMPLE_OF if getattr(request, name) is not None]
    if len(fields) != 1:
        raise RequestError(
            "invalid_request",
            f"the request has {' and '.join(fields) or 'none of them'}; allowed: exactly one of "
            "texts, pairs and words",
            param=fields[0] if fields else "texts",
        )
    (field,) = fields
    examples = [_EXAMPLE_OF[field](i, text) for i, text in enumerate(getattr(request, field))]
    return field, examples if request.spans is None else [*add_spans(examples, request.spans)]


_EXAMPLE_OF: dict[str, Callable[[int, Any], InputExample]] = {
    "texts": InputExample,
    "pairs": lambda number, pair: InputExample(number, *pair),
    "words": InputExample.from_words,
}


def _known_words(example: InputExample, split: WordSplit) -> int:
    """The words that are known before tokens are."""
    if example.words_a is not None:
        return len(example.words_a)
    if split == "bert":
        return 0
    return len(example.text_a.split()) + len((example.text_b or "").split())
