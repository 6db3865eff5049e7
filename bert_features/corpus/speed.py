"""measure_speed(): how fast a run would compute on this machine."""

import itertools
import time

from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.inputs import Inputs, find_inputs
from bert_features.extraction.counts import Counts
from bert_features.extraction.pipeline import Pipeline
from bert_features.readers import registry
from bert_features.readers.contents import no_examples
from bert_features.readers.examples import source_of_input

_FEWEST, _MOST = 64, 1024  # examples
_SECONDS = 2.0


def measure_speed(config: ExtractConfig, input_path: Inputs) -> float:
    """Tokens per second that `extract` would compute here, padding not counted.

    It computes the first 64 examples, or up to 1,024 if they take less than 2 seconds. Each is
    computed twice, as the first time traces or compiles the step. Writing is not measured.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    inputs = find_inputs(input_path)
    extractor = Pipeline(config)
    sources = (source_of_input(extractor.config, path) for path in inputs)
    examples = itertools.chain.from_iterable(map(registry.read, sources))
    sample = list(itertools.islice(examples, _FEWEST))
    if not sample:
        raise no_examples(", ".join(map(str, inputs)))
    while True:
        extractor.compute(sample, Counts(), few=False)
        counts, began = Counts(), time.monotonic()
        extractor.compute(sample, counts, few=False)
        seconds = time.monotonic() - began
        more = list(itertools.islice(examples, min(len(sample) * 3, _MOST - len(sample))))
        if seconds > _SECONDS or not more:
            return counts.tokens / seconds
        sample += more
