"""Prompts: what is done to each text before it is tokenised, as sentence-transformers does it."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.modules.multi_vector import QUERY
from bert_features.checkpoints.pooling import auto_text_changes, late_interaction
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import uses_auto_pooling
from bert_features.errors import ConfigError, InputError
from bert_features.readers.input_example import InputExample

Examples = Callable[[], Iterable[InputExample]]


class QueryPrompt(str):
    """The prompt that makes texts queries, where late interaction computes these in another way."""

    __slots__ = ()


class Prompts:
    """The prompts of a checkpoint, and whether its texts are lower-cased.

    The default prompt is the one of the settings. Without it, prompt and lower-casing come from
    a folder that sentence-transformers wrote; they apply where an output has pooling `auto`.
    """

    def __init__(
        self, config: ExtractConfig, checkpoint: Checkpoint, tokenizer_lower_cases: bool
    ) -> None:
        outputs = config.outputs
        settings = checkpoint.sentence_transformers
        self._checkpoint = checkpoint.name
        self.named = {} if settings is None else dict(settings.prompts)
        if (late := late_interaction(checkpoint, outputs)) is not None:
            self.named = {**late.prompts, QUERY: QueryPrompt(late.prompts[QUERY])}
        self._auto = uses_auto_pooling(outputs)
        self._word_level = any(output.level == "word" for output in outputs)
        self._counted = settings is None or settings.include_prompt
        changes = auto_text_changes(
            checkpoint, outputs, tokenizer_lower_cases=tokenizer_lower_cases
        )
        self._default, self._lower_cases = changes.prompt, changes.lower_cases
        if config.prompt is not None:
            self._default = self.choose(config.prompt)

    def of_queries(self) -> str | None:
        """The prompt `query`, if the checkpoint has it and the outputs can have a prompt."""
        return None if self._word_level else self.named.get("query")

    def choose(self, prompt: str) -> str:
        """The prompt of a name, or the text itself.

        Raises ConfigError for a word that is no name: as a text it would join the first of each.
        """
        if prompt in self.named:
            return self.named[prompt]
        if prompt.replace("-", "_").isidentifier():
            raise ConfigError(
                f"prompt is '{prompt}', which is not a prompt of {self._checkpoint} (it has: "
                f"{self._known}); name one of these, or end a text of your own with a space"
            )
        return prompt

    @property
    def _known(self) -> str:
        return ", ".join(map(repr, self.named)) or "none"

    def find(self, prompt: str | None, name: str | None) -> str | None:
        """The prompt that a caller asks for: as text, or by the name of one of the checkpoint's.

        Raises ConfigError if both are given, or there is no such name.
        """
        if name is None:
            return prompt
        if prompt is not None:
            raise ConfigError("prompt and prompt_name are both set; leave one of them out")
        if name not in self.named:
            raise ConfigError(
                f"prompt_name is {name!r}; the prompts of {self._checkpoint}: {self._known}"
            )
        return self.named[name]

    def check_default(self) -> None:
        """Refuses a default prompt that the outputs cannot have; raises ConfigError."""
        self._check(self._default)

    def metadata(self) -> dict[str, Any]:
        """What is done to each text by default, for the metadata of a run, as far as it applies.

        `prompt` is the default prompt, `lower_cased_first` true, and `task` `query`.
        """
        done = {"prompt": self._default, "lower_cased_first": self._lower_cases}
        done["task"] = isinstance(self._default, QueryPrompt) and QUERY
        return {key: value for key, value in done.items() if value}

    def put_before(self, examples: Examples, prompt: str | None) -> Examples:
        """The examples with a prompt before each first text: empty for none, None for the default.

        Raises ConfigError if the outputs cannot have a prompt, or an example that is read came as
        words.
        """
        prompt = self._default if prompt is None else prompt
        self._check(prompt)
        is_query = isinstance(prompt, QueryPrompt)
        if not prompt and not self._lower_cases and not is_query:
            return examples
        change = functools.partial(
            _prepare, prompt=prompt, lower_case=self._lower_cases, is_query=is_query
        )
        return lambda: map(change, examples())

    def _check(self, prompt: str) -> None:
        if prompt and self._word_level:
            raise ConfigError(
                f"the prompt {prompt!r} would add words to each text; outputs of level 'word' "
                "take no prompt"
            )
        if prompt and self._auto and not self._counted:
            raise ConfigError(
                f"{self._checkpoint} leaves the tokens of a prompt out when it pools, which is not "
                "supported; pass prompt='', or choose a pooling yourself"
            )


def _prepare(
    example: InputExample, *, prompt: str, lower_case: bool, is_query: bool
) -> InputExample:
    if prompt and example.words_a is not None:
        raise ConfigError(
            f"example {example.unique_id!r} came as words; a prompt {prompt!r} needs texts"
        )
    changed = replace(
        example,
        text_a=prompt + example.text_a,
        prompt=example.prompt + len(prompt),
        is_query=is_query or example.is_query,
    )
    if not lower_case:
        return changed
    texts = changed.text_a, example.text_b or ""
    if example.spans and any(len(_lower(text)) != len(text) for text in texts):
        raise InputError(
            f"example {example.unique_id!r} has a letter that becomes two in lower case (such as "
            "İ), so its spans would move; replace it"
        )
    return replace(
        changed,
        text_a=_lower(changed.text_a),
        text_b=None if example.text_b is None else _lower(example.text_b),
        words_a=None if example.words_a is None else tuple(map(_lower, example.words_a)),
        words_b=None if example.words_b is None else tuple(map(_lower, example.words_b)),
    )


def _lower(text: str) -> str:
    # By the character, as the `tokenizers` library does it: str.lower() looks at a sigma's place.
    return "".join(map(str.lower, text))
