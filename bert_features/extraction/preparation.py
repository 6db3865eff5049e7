"""Preparation: the settings of a run, checked against their checkpoint; no weights yet."""

import bisect
import copy
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from bert_features.batches.bucketing import (
    DEVICE_BATCH_TOKENS,
    PACKED_LENGTH,
    PACKED_POOL_BATCHES,
    BatchShapes,
    choose_buckets,
)
from bert_features.batches.input_fn import TextInputFn
from bert_features.batches.long_text import kept_lengths
from bert_features.batches.pieces import find_pieces, offsets_of
from bert_features.batches.queries_documents import QueriesAndDocuments
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.pooling import auto_pooling, late_interaction
from bert_features.checkpoints.tokenizer import make_tokenizer
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import ITEM_SIZES, OutputSpec
from bert_features.config.kinds import masks_rows, needs
from bert_features.config.output_specs import (
    attention_tokens,
    has_spans,
    has_words,
    output_names,
    outputs_on_device,
    scale_file,
)
from bert_features.config.shards import AUTO, Shard
from bert_features.errors import ConfigError, check_process
from bert_features.extraction.checks import (
    check_kinds,
    check_lengths,
    document_length,
    packs,
    row_length,
)
from bert_features.extraction.late_interaction import find_markers, find_sides
from bert_features.extraction.prompts import Prompts
from bert_features.files import locate
from bert_features.formats.records import FeatureRecord
from bert_features.machine.hardware import cores
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample
from bert_features.readers.sentences import SENTENCES, chunks_of, with_sentences
from bert_features.runtime.base import Runtime
from bert_features.runtime.start import make_runtime

logger = logging.getLogger("bert_features")

if TYPE_CHECKING:
    from bert_features.encoder.step import Precision

# Tokens of a batch on a CPU, for each core: more take as long each (benchmarks/diary.md).
_CORE_BATCH_TOKENS, _MAX_CPU_BATCH_TOKENS = 512, 2048
# What a batch costs there beside its tokens: as much as 12 tokens, and 19 where its shape is new;
# in bfloat16, where a token takes less time, more.
_CPU_BATCH_COST, _BFLOAT16_BATCH_COST = 30, 80
# Tokens of a uniform batch: masked rows fill it up, the fewer the smaller it is.
_UNIFORM_CPU_BATCH_TOKENS = 512
# Tokens of a batch of few texts, whose lengths differ more (benchmarks/diary.md).
_FEW_CPU_BATCH_TOKENS = 256
# Enough to sort by length. Where vectors are small, more would only hold results back.
_MAX_MEGABATCH_TOKENS = 1 << 20
_MAX_PACKED_MEGABATCH_BYTES = 2 << 30  # of features, where a megabatch grows to fill packed batches
# Characters of a text that is tokenized in some milliseconds.
_MAX_SHORT_TEXT = 1 << 15
_CALL_EXAMPLES = 512  # whose tokens are placed by one call of the tokenizer
_MAX_SPECIAL_TOKENS = 3  # of a row: [CLS] and two [SEP]s


class Preparation:
    """The settings of a run, checked and resolved against their checkpoint.

    Args:
      config: the settings; the settings of the output file are not used here.
      runtime: the runtime, if started already; by default the one of the settings.
      checkpoint: the checkpoint of the settings, if it has been found already.

    Attributes:
      given: the settings as they were set.
      config: the settings; `max_seq_length` is resolved.
      outputs: the outputs, resolved.
      max_seq_length: maximum tokens of a row.
      long_text: what happens to examples that do not fit a row, for late interaction documents.
      shard: the share of the examples for this process.
      packing: whether texts share rows.
      mask_id: the id of [MASK], if [MASK] in a text is that token; else None.
      sides: what is done to documents and queries for late interaction; None without it.
      prompts: what is put before each text.
      megabatch_tokens: number of tokens sorted by length together; their features fit `buffer_mb`,
        unless that is the default and they are too few to fill packed batches.

    Raises:
      CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
      ConfigError: a setting does not fit the checkpoint.
      DeviceError: see `check_process`.
    """

    def __init__(
        self,
        config: ExtractConfig,
        *,
        runtime: Runtime | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.checkpoint = checkpoint or find_checkpoint(
            config.checkpoint, **config.checkpoint_options()
        )
        check_kinds(config)
        self.given = config
        self._resolve_length(config)
        outputs = config.plan_outputs(
            self.checkpoint.config, auto_pooling(self.checkpoint, config.outputs)
        )
        places = {o: str(locate(file)) for o in outputs if (file := scale_file(o))}
        self.outputs = tuple(replace(o, scale_from=places.get(o, o.scale_from)) for o in outputs)
        # Before the tokenizer makes its tables: a TPU must be started before TensorFlow's first op.
        self.runtime = runtime or make_runtime(config.runtime, config.device)
        self.devices = self.runtime.devices
        if config.shard == AUTO:
            self.shard = Shard(*self.runtime.process)
        else:
            self.shard = Shard() if config.shard is None else Shard.parse(config.shard)
        self.tokenizer = make_tokenizer(self.checkpoint, config.do_lower_case)
        types = self.checkpoint.config.type_vocab_size
        if config.segment and (types < 2 or not self.tokenizer.frame.has_types):
            raise ConfigError(
                f"segment is 1, and {self.checkpoint.name} has no segments; leave it out"
            )
        self.mask_id = self._find_mask_id()
        self.packing = packs(config, any_shape=self.runtime.any_shape)
        self.sides = self._find_sides()
        self.megabatch_tokens = self._megabatch_tokens()
        self.buckets = self._buckets()
        if long := [b for b in config.buckets or () if b > self.max_seq_length]:
            logger.warning("buckets has %s; rows have at most %d tokens", long, self.max_seq_length)
        self.prompts = Prompts(config, self.checkpoint, self.tokenizer.do_lower_case)

    def with_outputs(self, names: Sequence[str], *, same_rows: bool = False) -> Self:
        """The same with some of the outputs alone, and unless `same_rows` their rows and prompt.

        Raises ConfigError if there is no name, or no output of a name.
        """
        known = [output.name for output in self.outputs]
        if not names or not set(names) <= set(known):
            raise ConfigError(f"outputs are {list(names)}; allowed: at least one of {known}")
        other, count = copy.copy(self), self.checkpoint.config.num_hidden_layers
        other.outputs = tuple(output for output in self.outputs if output.name in names)
        if same_rows:
            return other
        chosen = tuple(
            output
            for output in self.given.outputs
            if not set(names).isdisjoint(output_names([output], count))
        )
        config = self.given.model_copy(update={"outputs": chosen})
        other._resolve_length(config)
        other.mask_id, other.sides = other._find_mask_id(), other._find_sides()
        other.buckets = other._buckets()
        other.megabatch_tokens = other._megabatch_tokens()
        other.prompts = Prompts(config, self.checkpoint, self.tokenizer.do_lower_case)
        vars(other).pop("shapes", None)
        return other

    def _resolve_length(self, config: ExtractConfig) -> None:
        self.max_seq_length = row_length(config, self.checkpoint)
        self.long_text = check_lengths(config, document_length(config, self.checkpoint))
        self.config = self.given.model_copy(update={"max_seq_length": self.max_seq_length})

    def _megabatch_tokens(self) -> int:
        per_token = 0
        for output in self.outputs:
            # Sequence vectors of windows wait for each other as float32.
            item_size = 4 if output.is_sequence else ITEM_SIZES[output.dtype]
            size = output.device_width * item_size
            if output.is_paired:  # of each token, with every token of its row
                size *= self.max_seq_length
            # A sequence has one vector for all its tokens; it has at least two tokens.
            per_token += size // 2 if output.has_rows else size
        tokens = min(self.config.buffer_mb * 2**20 // max(per_token, 1), _MAX_MEGABATCH_TOKENS)
        if self.packing and "buffer_mb" not in self.given.model_fields_set:
            params = self.batch_params()
            batch = params.get("batch_tokens") or params["batch_size"] * PACKED_LENGTH
            most = _MAX_PACKED_MEGABATCH_BYTES // max(per_token, 1)
            tokens = max(tokens, min(PACKED_POOL_BATCHES * batch, most))
        return max(1, tokens)

    @property
    def device_outputs(self) -> tuple[OutputSpec, ...]:
        """What the device computes for the outputs."""
        return outputs_on_device(self.outputs, in_windows=self.in_windows)

    @property
    def in_windows(self) -> bool:
        """Whether an example may have several rows."""
        return self.long_text.policy == "window" or masks_rows(self.outputs)

    def _buckets(self) -> tuple[int, ...]:
        any_shape, length = self.runtime.any_shape, self.max_seq_length
        return choose_buckets(self.config, length, any_shape=any_shape, packed=self.packing)

    def batch_params(self, *, few: bool = False) -> dict[str, int]:
        """The params of `TextInputFn`; `few` for an input of few texts."""
        batching = self.runtime.batching
        if self.config.dedupe:
            batching |= {"whole_batches": True, "uniform_batches": True}
        if self.packing:
            batching |= {"packed_batches": True}
        if self.config.batch_size is not None:
            return {"batch_size": self.config.batch_size, **batching}
        tokens = self.config.batch_tokens
        if tokens is None:
            tokens = self._default_batch_tokens(few=few)
            if most := self.attention_tokens:
                tokens = min(tokens, most * self.devices.count)
        if self.runtime.any_shape and self.config.buckets is None and not few:
            in_bfloat16 = self.config.precision == "bfloat16"
            batching |= {"batch_cost": _BFLOAT16_BATCH_COST if in_bfloat16 else _CPU_BATCH_COST}
        return {"batch_tokens": tokens, **batching}

    @property
    def attention_tokens(self) -> int | None:
        """See `config.output_specs.attention_tokens`."""
        return attention_tokens(self.outputs, self.checkpoint.config, self.max_seq_length)

    @property
    def tokens_of_batch(self) -> int:
        """Tokens of a full batch of an input of few texts."""
        params = self.batch_params(few=True)
        return params.get("batch_tokens") or params["batch_size"] * self.max_seq_length

    def _default_batch_tokens(self, *, few: bool) -> int:
        if self.devices.kind != "cpu":
            return DEVICE_BATCH_TOKENS * self.devices.count
        if self.config.dedupe:
            return _UNIFORM_CPU_BATCH_TOKENS
        if few:
            return _FEW_CPU_BATCH_TOKENS
        return min(_CORE_BATCH_TOKENS * max(cores(), 2), _MAX_CPU_BATCH_TOKENS)

    def input_fn(
        self,
        examples: Callable[[], Iterable[InputExample]],
        *,
        prompt: str | None = None,
        stages: StageClock | None = None,
    ) -> TextInputFn:
        """The examples as batches for the device.

        Raises ConfigError as `Prompts.put_before`, and DeviceError as `check_process`.
        """
        check_process()
        rule = self.config.spans or ""
        if rule.startswith(SENTENCES) and has_spans(self.outputs):
            examples = functools.partial(with_sentences, examples, rule)
        prompted = self.prompts.put_before(examples, prompt)
        return TextInputFn(
            prompted,
            self.tokenizer,
            buckets=self.buckets,
            megabatch_tokens=self.megabatch_tokens,
            long_text=self.long_text,
            words=self.config.word_split if has_words(self.outputs) else None,
            with_spans=has_spans(self.outputs),
            chunks=chunks_of(self.config.spans),
            mask_id=self.mask_id,
            scores=masks_rows(self.outputs),
            segment=self.config.segment,
            sides=self.sides,
            stages=stages,
        )

    def with_offsets(
        self, records: list[FeatureRecord], examples: Sequence[InputExample]
    ) -> list[FeatureRecord]:
        """The records of examples with the places of their tokens."""
        if not records or records[0].tokens is None:
            return records
        prompted = list(self.prompts.put_before(lambda: examples, None)())
        located = []
        for i, (record, example) in enumerate(zip(records, examples, strict=True)):
            n = i % _CALL_EXAMPLES
            if n == 0:
                some = prompted[i : i + _CALL_EXAMPLES]
                pieces = find_pieces(self.tokenizer, some, with_places=True, mask_id=self.mask_id)
            a, b = kept = pieces.lengths[2 * n : 2 * n + 2].tolist()
            if not self.in_windows or some[n].is_query:
                length = self.long_text.seq_length
                if self.sides is not None:
                    length = self.sides.side(some[n].is_query).length
                kept = kept_lengths(a, b, length, pieces.separators)
            skip = len(some[n].text_a) - len(example.text_a)
            offsets = offsets_of(pieces, n, kept, self.long_text, skip=skip)
            offsets += [None] * (len(record.tokens or ()) - len(offsets))  # [MASK]s of a query
            located.append(replace(record, offsets=tuple(offsets)))
        return located

    def _find_mask_id(self) -> int | None:
        """The id of [MASK], if the masked-LM head predicts at tokens; terms are of whole texts."""
        if not needs([output for output in self.outputs if output.level != "term"], "head"):
            return None
        mask_id = self.tokenizer.frame.mask_id
        if mask_id is None:
            raise ConfigError(
                "kind 'masked_lm' and 'score' need a vocabulary with [MASK] or <mask>; that of "
                f"{self.checkpoint.name} has neither"
            )
        return mask_id

    def _find_sides(self) -> QueriesAndDocuments | None:
        """What is done to documents and queries; the tokenizer gets their markers."""
        late = late_interaction(self.checkpoint, self.outputs)
        markers = () if late is None else find_markers(late, self.tokenizer)
        if markers != self.tokenizer.markers:
            self.tokenizer = copy.copy(self.tokenizer)
            self.tokenizer.markers = markers
        if late is None:
            return None
        return find_sides(
            late,
            self.tokenizer,
            document_length=self.long_text.seq_length,
            max_seq_length=self.max_seq_length,
            packed=self.packing,
        )

    def fit_one_batch(self, examples: Sequence[InputExample]) -> bool:
        """Whether examples surely make a single batch: a piece has at least one character."""
        sizes = [len(example.text_a) + len(example.text_b or "") for example in examples]
        longest = max(sizes, default=0) + _MAX_SPECIAL_TOKENS
        if len(sizes) == 1 and not self.in_windows:
            return longest <= _MAX_SHORT_TEXT
        shapes = self.shapes
        if masks_rows(self.outputs):  # each has many rows
            return False
        if longest > shapes.buckets[-1]:
            return False
        rows = shapes.rows[bisect.bisect_left(shapes.buckets, longest)]
        return len(sizes) <= (shapes.packed_tail(rows) if shapes.packed else rows)

    @functools.cached_property
    def precision(self) -> "Precision":
        """The precision of the arithmetic."""
        return self.runtime.choose_precision(self.config.precision)

    @functools.cached_property
    def shapes(self) -> BatchShapes:
        """The shapes that batches may have."""
        return self.input_fn(lambda: ()).shapes(self.batch_params())
