"""FeatureExtractor: a checkpoint ready to turn texts into features, in the order of the input."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import FIELD_NAMES, InputFormat
from bert_features.config.kinds import KINDS
from bert_features.config.output_specs import has_words
from bert_features.config.poolings import LOOKUP
from bert_features.config.settings import shown
from bert_features.errors import ConfigError
from bert_features.extraction.counts import Counts
from bert_features.extraction.encoding import check_spans, choose_output, collect, progress_bar
from bert_features.extraction.pipeline import Pipeline
from bert_features.extraction.similarity import EncodesByPrompt, similarity_of_texts
from bert_features.formats.records import FeatureBatch, FeatureRecord
from bert_features.formats.sparse import to_csr
from bert_features.monitor.interruption import interruptible
from bert_features.readers.examples import Table, Texts, examples_of_texts
from bert_features.readers.input_example import InputExample

# Settings without a meaning for texts in memory, which may be a table with fields.
_FILE_SETTINGS = {"input_format", *InputFormat.model_fields} - {*FIELD_NAMES}
_FILE_SETTINGS.remove("format")  # of the output


class FeatureExtractor(EncodesByPrompt, Pipeline):
    """A checkpoint made ready to turn texts into features.

    Copies share its weights. Pickled, it is its settings, from which it is made again.

    Args:
      config: the settings; the settings of the output file are not used here.
      runtime: the runtime, if started already; by default the one of the settings.
      checkpoint: the checkpoint of the settings, if it has been found already.

    Attributes:
      preparation: the settings, resolved against their checkpoint.
      config: the settings; `max_seq_length` is resolved against the checkpoint.
      checkpoint: the checkpoint.
      outputs: the outputs, resolved against the checkpoint.
      tokenizer: the checkpoint's tokenizer.
      prompts: the checkpoint's prompts, by the names that `encode` takes.
      devices: the devices that compute.
      precision: precision of the arithmetic, `float32`, `bfloat16` or `int8`.
      pieces: the vocabulary, an array of str.

    Raises:
      CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
      ConfigError: a setting does not fit the checkpoint, or the wanted device is absent.
    """

    @classmethod
    def from_checkpoint(cls, checkpoint: str | Path = "minilm", **settings: Any) -> Self:
        """Makes an extractor for a checkpoint.

        Args:
          checkpoint: `minilm` (the embedded all-MiniLM-L6-v2, not Google's BERT), a directory, a
            TF1 checkpoint prefix or a .safetensors file.
          **settings: any other setting of `ExtractConfig`: layers, combine, max_seq_length, …

        Raises:
          CheckpointError: the checkpoint is not usable.
          ConfigError: an unknown setting, or a value that is not allowed.
        """
        config = ExtractConfig.of({"checkpoint": str(checkpoint), **settings})
        for name in sorted(_FILE_SETTINGS & settings.keys()):
            if settings[name] is not None:
                raise ConfigError(
                    f"{name} is {shown(settings[name])}, which is for files that extract() reads; "
                    "leave it out"
                )
        return cls(config)

    from_pretrained = from_checkpoint  # the name in transformers

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return copy.copy(self)

    __sklearn_clone__ = __deepcopy__

    def __reduce__(self) -> tuple[object, ...]:
        names = [output.name for output in self.outputs]
        return _make_again, (type(self), self.config, names)

    def __repr__(self) -> str:
        outputs = ", ".join(output.describe() for output in self.outputs)
        name, devices = self.checkpoint.name, f"{self.devices.count} {self.devices.kind}"
        return f"<FeatureExtractor {name}: {outputs}; {self.precision} on {devices}>"

    @interruptible()
    def __call__(
        self,
        texts: Texts | Table,
        *,
        text_field: str | None = None,
        text_b_field: str | None = None,
        tokens_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        spans: Sequence[Any] | None = None,
        span_field: str | None = None,
    ) -> list[FeatureRecord]:
        """The features of texts in memory.

        Warnings are logged if truncation cuts any, if many of the tokens are [UNK], and if features
        are not finite.

        Args:
          texts: one example each: a text, a tuple of two texts for a pair, a list of words, or an
            `InputExample`. Or a table (pandas, polars, Arrow, a Hugging Face Dataset) with the
            names of its columns; of a pandas Series the index holds the ids.
          text_field: column of the texts of a table; by default as in the settings.
          text_b_field: column of the second texts of pairs; by default `text_b` if there is one.
          tokens_field: column of lists of words, instead of `text_field`.
          id_field: column of the ids; by default `id` if there is one.
          label_field: column of the labels of words, a list for each text; by default as in the
            settings.
          spans: for outputs of level 'span' the spans of each text: a list of (begin, end), (begin,
            end, label) or (begin, end, label, type_id), in characters, type_id 1 for a second text.
          span_field: column of the spans of a table; by default as in the settings.

        Returns:
          For each text, in order, its features by name, [tokens, D], [words, D] or [D]; its tokens
          ([CLS] and [SEP] included), their ids and their places if a feature has level 'token'; its
          words, their places and their labels, if there are any, if a feature has level 'word';
          and its spans in `units`.

        Raises:
          ConfigError: a shard is set, which is a share of a file; or a column is named, and `texts`
            is no table.
          InputError: `texts` is a single string, contains something other than texts, or is a table
            whose columns are not named or do not fit.
        """
        stream = examples_of_texts(
            texts,
            self.config.input_settings(),
            text_field=text_field,
            text_b_field=text_b_field,
            tokens_field=tokens_field,
            id_field=id_field,
            label_field=label_field,
            spans=spans,
            span_field=span_field,
        )
        check_spans(spans, self.outputs)
        if label_field is not None and not has_words(self.outputs):
            raise ConfigError(
                f"label_field is {label_field!r}, and no output has level 'word'; leave it out"
            )
        examples = list(stream)  # a wrong one is found before the rest
        batches = self.with_labels_of(examples)._batches_in_memory(examples)
        records = [record for batch in batches for record in batch.records(self.outputs)]
        return self.preparation.with_offsets(records, examples)

    @interruptible()
    def encode(
        self,
        texts: Texts | Table | str | InputExample,
        output: str | None = None,
        *,
        ragged: bool = False,
        text_field: str | None = None,
        text_b_field: str | None = None,
        tokens_field: str | None = None,
        spans: Sequence[Any] | None = None,
        span_field: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        show_progress: bool = False,
        **unknown: Any,
    ) -> Any:
        """The vectors of texts in memory as NumPy arrays; warnings are logged as in a call.

        Args:
          texts: as in a call, but their ids are not read; or a single text. Texts of an iterator
            are taken one by one, so that only their vectors are in memory.
          output: name of the output to return; not needed if there is only one.
          ragged: return the vectors of tokens or words without padding.
          text_field: column of the texts of a table, as in a call.
          text_b_field: column of the second texts of pairs.
          tokens_field: column of lists of words, instead of `text_field`.
          spans: the spans of each text, as in a call; of a single text its own.
          span_field: column of the spans of a table.
          prompt: a text to put before each text; an empty one for none.
          prompt_name: the name of one of the checkpoint's prompts, instead of `prompt`. By default
            the default prompt of the checkpoint, if an output has pooling `auto`, else none.
          show_progress: show a progress bar on standard error.
          **unknown: is refused, with what to use instead.

        Returns:
          By the level of the output, in the order of the texts and in the dtype of the output:
          `sequence`: [N, D]. `token` ([CLS] and [SEP] included), `word` and `span`: `Padded(values
          [N, S, D], mask [N, S])`, or with `ragged` `Ragged(values [T, D], row_splits [N + 1])`. Of
          a single text its own array, [D], [S, D] or of attention [D, S, S]. Of kind `sparse` a
          `scipy.sparse.csr_matrix` [N, V], also of a single text.

        Raises:
          ConfigError: there are several outputs and `output` is None, or there is none of that
            name; the prompt is unknown or does not fit the outputs; a shard is set; a keyword is
            unknown.
          InputError: `texts` contains something other than texts.
          MissingExtraError: SciPy, which sparse vectors need, is not installed.
        """
        self.refuse(unknown)
        chosen = choose_output(self.outputs, output)
        prompt = self.preparation.prompts.find(prompt, prompt_name)
        single = isinstance(texts, str | InputExample)
        stream = examples_of_texts(
            texts,
            self.config.input_settings(),
            text_field=text_field,
            text_b_field=text_b_field,
            tokens_field=tokens_field,
            with_ids=False,
            spans=None if spans is None else [spans] if single else spans,
            span_field=span_field,
        )
        check_spans(spans, self.outputs)
        # A wrong one is found before anything is computed.
        examples = list(stream) if isinstance(texts, Sized | InputExample) else stream
        with progress_bar(examples, shown=show_progress) as progress:
            batches = self._batches_in_memory(examples, prompt, progress)
            if chosen.max_units:
                return to_csr(batches, chosen, self.checkpoint.config.vocab_size)
            count = len(examples) if isinstance(examples, list) else None
            return collect(batches, chosen, single=single, ragged=ragged, count=count)

    def _batches_in_memory(
        self,
        examples: Iterable[InputExample],
        prompt: str | None = None,
        progress: Callable[[Counts], None] | None = None,
    ) -> Iterator[FeatureBatch]:
        """As `batches`; refuses a shard."""
        if self.config.shard is not None:
            raise ConfigError(
                f"shard is {self.config.shard!r}, which is for files that extract() reads; with "
                "texts in memory, pass only the texts to compute"
            )
        threads = not (isinstance(examples, list) and self.preparation.fit_one_batch(examples))
        return self.batches(lambda: examples, progress=progress, prompt=prompt, threads=threads)

    @property
    def prompts(self) -> dict[str, str]:
        """The checkpoint's prompts by name."""
        return self.preparation.prompts.named

    def encode_query(self, texts: Any, output: str | None = None, **arguments: Any) -> Any:
        """The vectors of queries: `encode` with the checkpoint's prompt `query`, if it has one.

        Sparse ones are a look-up where the checkpoint has weights for it, and the output no pooling
        of its own. The arguments are as in `encode`; a `prompt` or `prompt_name` is taken instead.
        """
        lookup = self.of_queries(choose_output(self.outputs, output).name)
        return super(FeatureExtractor, lookup).encode_query(texts, output, **arguments)

    def of_queries(self, output: str) -> Self:
        """The extractor for queries of an output: another where they are a look-up, else this."""
        stated = self.checkpoint.sparse
        names = [each.name for each in self.outputs if each.max_units]
        if output not in names or stated is None or stated.table is None:
            return self
        (sparse,) = (o for o in self.config.outputs if KINDS[o.kind].follows_checkpoint)
        if sparse.pooling is not None:
            return self
        if "_lookup" not in vars(self):
            lookup = sparse.model_copy(update={"pooling": LOOKUP})
            config = self.config.model_copy(update={"outputs": (lookup,)})
            runtime = self.preparation.runtime
            self._lookup = type(self)(config, runtime=runtime, checkpoint=self.checkpoint)
        return self._lookup

    def similarity(self, a: Any, b: Any = None, *, function: str | None = None) -> np.ndarray:
        """The similarity of each text of `a` with each of `b`; both are what `encode` gives.

        Args:
          a: vectors, [N, D] or [D]; a sparse matrix, [N, V]; or multi-vectors of queries, `Padded`,
            `Ragged`, or [S, D] if this makes no other output, which MaxSim compares.
          b: the same of M texts, for multi-vectors documents; by default `a` itself.
          function: `cosine`, or `dot` for the plain product, which sparse vectors have; by default
            what the checkpoint records, else `cosine`.

        Returns:
          float32 [N, M]; 0 for the cosine of a zero vector, and for a text without vectors.

        Raises:
          ConfigError: the function, or the one that the checkpoint records, does not fit; the
            vectors have other shapes, or are of two kinds or widths.
        """
        late = [KINDS[output.kind].search == "maxsim" for output in self.outputs]
        return similarity_of_texts(a, b, self.checkpoint, late, function)


def _make_again(
    make: type[FeatureExtractor], config: ExtractConfig, outputs: Sequence[str]
) -> FeatureExtractor:
    """The extractor of these settings with these outputs."""
    extractor = make(config)
    if [output.name for output in extractor.outputs] == list(outputs):
        return extractor
    return extractor.with_outputs(outputs)
