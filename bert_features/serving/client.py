"""Client: the features of texts from a `bert-features serve`, with the calls of bert-as-service."""

import json
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import ValidationError

from bert_features import __version__
from bert_features.config.levels import LEVELS
from bert_features.config.recipe import Recipe
from bert_features.errors import ConfigError, OutputError, ServiceError
from bert_features.extraction.encoding import check_spans, collect
from bert_features.extraction.similarity import EncodesByPrompt
from bert_features.formats import read_features
from bert_features.formats.arrow_layout import METADATA_KEY, convert_from_arrow, schema_of
from bert_features.formats.canaries import compare_recipes
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord
from bert_features.readers.text import notice_separator
from bert_features.serving.connection import Connection, in_thread
from bert_features.serving.messages import Info
from bert_features.serving.parts import RequestPart, cut, kind_of

logger = logging.getLogger("bert_features")

# Requests of a client that are under way at a time.
IN_FLIGHT = 4
_JSON, _ARROW = "application/json", "application/vnd.apache.arrow.stream"
_LOST = "tokens_lost"
# The fields of a feature that its values have.
_SHAPE = ("name", "level", "width", "dtype")
_MAX_INFO_BYTES = 1 << 20
# The most bytes of an answer, beside its vectors: tokens and words of a request of 8 MiB.
_MAX_REST_BYTES = 256 << 20

Texts = Sequence[str] | Sequence[tuple[str, str]] | Sequence[Sequence[str]]


class Client(EncodesByPrompt):
    """A client of `bert-features serve`; several threads may share it.

    It asks the service for its outputs and limits at once, so that a wrong address is an error
    here. Many texts are cut into requests below these limits, and several requests are under way
    at a time, over connections that are used again. Use it in a `with` statement, or call `close`.

    Args:
      url: the address of the service.
      token: its token, if it has one.
      timeout: seconds that one request may take; a request that takes longer is an error.
      retries: how often a request is sent again if its connection is lost, if a proxy answers for
        a service that is gone, or if the service is busy; it says how long to wait.
      expect: a features file or folder that the vectors will be compared with: its path, or what
        has a `recipe`.

    Raises:
      ConfigError: an argument is not allowed.
      OutputError: the features file cannot be read.
      ServiceError: nothing answers at the address, something else answers, the token is wrong, the
        service is of a version that does not fit, or its vectors cannot be compared with what is
        expected.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        timeout: float = 90.0,
        retries: int = 5,
        expect: Any = None,
        **unknown: Any,
    ) -> None:
        self.refuse(unknown)
        expected: Any = read_features(expect) if isinstance(expect, str | Path) else expect
        expected = getattr(expected, "recipe", expected)
        if not isinstance(expected, Recipe | None):
            raise ConfigError(
                f"expect is of type {type(expect).__name__}; allowed: a features file or folder, "
                "or what has a recipe"
            )
        self._connection = Connection(
            url, token=token, timeout=timeout, retries=retries, connections=IN_FLIGHT
        )
        try:
            self.info()
            if expected is not None:
                self._check_recipe(expected)
        except BaseException:
            self.close()
            raise

    def encode(
        self,
        texts: str | Texts,
        outputs: str | Sequence[str] | None = None,
        *,
        is_tokenized: bool = False,
        show_tokens: bool = False,
        ragged: bool = False,
        spans: Sequence[Any] | None = None,
        prompt_name: str | None = None,
        **unknown: Any,
    ) -> Any:
        """The vectors of texts as NumPy arrays; a warning is logged if the service cuts any.

        Args:
          texts: a list of texts, or of tuples of two texts, for pairs; or a single text.
          outputs: an output of the service, by default its first; or a list of outputs.
          is_tokenized: whether each text is a list of words.
          show_tokens: whether to return the tokens too.
          ragged: return the vectors of tokens, words or spans without padding.
          spans: for outputs of level `span` the spans of each text, of a single text its own; as in
            `FeatureExtractor.encode`. By default the service makes them, if it was started with
            `--spans`.
          prompt_name: the name of a prompt of the checkpoint, see `info()["prompts"]`; by default
            its default prompt, if it has one. `encode_query` and `encode_document` choose one.
          **unknown: is refused, with what to use instead.

        Returns:
          By the level of the output, in the order of the texts and in the dtype of the output:
          `sequence`: [N, D]. `token` ([CLS] and [SEP] included), `word` and `span`: `Padded(values
          [N, S, D], mask [N, S])`, or with `ragged` `Ragged(values [T, D], row_splits [N + 1])`. Of
          a single text its own array, [D] or [S, D]. With a list of outputs, or an output of
          several features such as `all_layers`, a dict of these by the names of the features. With
          `show_tokens` a tuple of that and the tokens, a list for each text.

        Raises:
          ConfigError: the service has no such output, or `is_tokenized` or `spans` does not fit.
          InputError: `texts` contains something other than texts, or a span is outside of its text.
          ServiceError: the service refuses the texts, does not answer in time, or is gone.
        """
        self.refuse(unknown)
        single = isinstance(texts, str)
        features, names = self._choose(outputs)
        call = _Call(self._connection, self._info, features, names, show_tokens, prompt_name)
        per_text = [spans] if single and spans is not None else spans
        batches = self._compute(texts, call, is_tokenized, per_text)
        arrays = {
            feature.name: collect(batches, feature, single=single, ragged=ragged)
            for feature in features
        }
        by_name = len(arrays) > 1 or not (outputs is None or isinstance(outputs, str))
        vectors = arrays if by_name else arrays[features[0].name]
        if not show_tokens:
            return vectors
        tokens = [list(row.tokens or ()) for batch in batches for row in batch.records(())]
        return vectors, tokens[0] if single else tokens

    def features(
        self,
        texts: str | Texts,
        outputs: str | Sequence[str] | None = None,
        *,
        is_tokenized: bool = False,
        spans: Sequence[Any] | None = None,
        prompt_name: str | None = None,
    ) -> list[FeatureRecord]:
        """The features of texts, with their tokens, words and spans; see `encode`.

        Returns:
          For each text, in order, what `FeatureExtractor` returns for it, and always its tokens.
          `unique_id` is its number, from 0.
        """
        features, names = self._choose(outputs)
        call = _Call(self._connection, self._info, features, names, True, prompt_name)
        batches = self._compute(texts, call, is_tokenized, spans)
        return [record for batch in batches for record in batch.records(features)]

    @property
    def prompts(self) -> list[str]:
        """The names of the checkpoint's prompts."""
        return self._info.prompts

    @property
    def recipe(self) -> Recipe:
        """How the vectors of the service are made, see `bert_features.compare`."""
        return Recipe.from_json(self._connection.url, self._info.recipe)

    def _check_recipe(self, expected: Recipe) -> None:
        url, recipe = self._connection.url, self.recipe
        try:
            comparisons = compare_recipes(expected, recipe)
        except OutputError as error:  # they have nothing in common
            raise ServiceError(f"the vectors of {url} are not those expected: {error}") from error
        for difference in comparisons:
            if not difference.may_be_compared:
                name = f"{expected.name} ({difference.feature})"
                raise ServiceError(f"the vectors of {url} and of {name}: {difference}")

    def info(self) -> dict[str, Any]:
        """What the service reports: its model, outputs and limits, as /v1/info has them.

        Raises:
          ServiceError: the service does not answer, or is of a version that does not fit.
        """
        body = self._connection.request("/v1/info", accept=_JSON, max_bytes=_MAX_INFO_BYTES)
        try:
            self._info = Info.model_validate_json(body)
        except ValidationError as error:
            raise ServiceError(
                f"what {self._connection.url} reports about itself is not what this version of "
                f"bert_features, {__version__}, expects; install the version of the service here"
            ) from error
        reported: dict[str, Any] = json.loads(body)
        return reported

    def close(self) -> None:
        """Closes the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        outputs = ", ".join(output.name for output in self._info.outputs)
        return f"<Client of {self._connection.url}: {self._info.model}; outputs {outputs}>"

    def _choose(
        self, outputs: str | Sequence[str] | None
    ) -> tuple[tuple[Feature, ...], tuple[str, ...]]:
        """The features of some outputs, and the names of the outputs."""
        by_name = {output.name: output.features for output in self._info.outputs}
        chosen = self._info.outputs[0].name if outputs is None else outputs
        names = (chosen,) if isinstance(chosen, str | bool) else tuple(chosen)
        for number, name in enumerate(names):
            if name not in by_name or name in names[:number]:
                raise ConfigError(f"output is {name!r}; allowed: each of {', '.join(by_name)} once")
        if not names:
            raise ConfigError(f"outputs is empty; allowed: {', '.join(by_name)}")
        features = (feature for name in names for feature in by_name[name])
        return tuple(
            Feature(
                *(f.name, tuple(f.layers), "none", f.width, f.dtype, f.level, f.pooling),
                kind=f.kind,
                heads=tuple(f.heads),
            )
            for f in features
        ), names

    def _compute(
        self, texts: Sequence[Any], call: "_Call", is_tokenized: bool, spans: Sequence[Any] | None
    ) -> list[FeatureBatch]:
        if self._connection.is_closed:
            raise ServiceError("the client is closed; make another one")
        check_spans(spans, call.features)
        is_list = isinstance(texts, Iterable) and not isinstance(texts, str | bytes)
        texts = list(texts) if is_list else [texts]
        kind = kind_of(texts, is_tokenized=is_tokenized)
        notice_separator([text for text in texts if isinstance(text, str)])
        parts = cut(texts, kind, call.features, call.info, spans=spans)
        batches = [batch for batches in call.answers(parts) for batch in batches]
        if lost := sum(int(batch.counts[_LOST].sum()) for batch in batches):
            logger.warning("the service has cut texts that are too long: %d tokens are lost", lost)
        return batches


@dataclass
class _Call:
    """What the requests of a call share."""

    connection: Connection
    info: Info
    features: tuple[Feature, ...]
    names: tuple[str, ...]
    with_tokens: bool
    prompt_name: str | None
    # Once set, nothing more is sent.
    stop: threading.Event = field(default_factory=threading.Event)

    def answers(self, parts: Iterable[RequestPart]) -> Iterator[list[FeatureBatch]]:
        """The answers in the order of the parts; a few are under way at a time."""
        under_way: deque[Future[list[FeatureBatch]]] = deque()
        try:
            for part in parts:
                under_way.append(in_thread(self._send, part))
                if len(under_way) == IN_FLIGHT:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            self.stop.set()

    def _send(self, part: RequestPart) -> list[FeatureBatch]:
        """The answer for some texts; in halves if the service finds them too large."""
        try:
            answer = self.connection.request(
                "/v1/features",
                accept=_ARROW,
                # float32 holds what is bfloat16 in the service.
                max_bytes=2 * self.info.limits.answer_bytes + _MAX_REST_BYTES,
                body=part.body(self.names, tokens=self.with_tokens, prompt_name=self.prompt_name),
                stop=self.stop,
            )
        except ServiceError as error:
            if error.status == 413 and len(part.encoded) > 1:
                return [answer for half in part.halves() for answer in self._send(half)]
            raise part.renumbered(error) from error
        return [self._parse(answer, part)]

    def _parse(self, answer: bytes, part: RequestPart) -> FeatureBatch:
        """The features in an answer, an Arrow stream."""
        import pyarrow as pa

        url = self.connection.url
        try:
            table = pa.ipc.open_stream(answer).read_all()
            table.validate(full=True)
            described = json.loads(table.schema.metadata[METADATA_KEY])["features"]
            if [[f[key] for key in _SHAPE] for f in described] != [
                [getattr(f, key) for key in _SHAPE] for f in self.features
            ]:
                raise ServiceError(f"the outputs of {url} have changed; make another client")
            tokens = LEVELS["token"].columns if self.with_tokens else ()
            columns = dict.fromkeys([*schema_of(self.features, "int").names, *tokens])
            lost = table[_LOST].to_numpy()
            table = table.select(list(columns))
            if any(_has_nulls(column.combine_chunks()) for column in table.columns):
                raise ValueError("a value is null")
            batch = convert_from_arrow(table, self.features)
        except ServiceError:
            raise
        except Exception as error:  # damaged bytes make parsers raise almost anything
            raise ServiceError(
                f"the answer of {url} is damaged, or of a version that does not fit "
                f"{__version__} ({type(error).__name__}); try again, or install its version here"
            ) from error
        count = len(batch)
        if count != len(part.encoded):
            raise ServiceError(
                f"{url} answered for {count} texts, and {len(part.encoded)} were sent; see its log"
            )
        numbers = np.arange(part.start, part.start + count)
        return replace(batch, unique_ids=numbers, counts={_LOST: lost})


def _has_nulls(array: Any) -> bool:
    """Whether an Arrow array, or one of the lists in it, has a null, which NumPy makes a NaN."""
    if array.null_count or not hasattr(array, "flatten"):
        return bool(array.null_count)
    return _has_nulls(array.flatten())
