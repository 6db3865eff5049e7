"""What an encoder computes for one batch, every layer of it.

Shape legend: `B` batch, `S` sequence, `H` hidden, `L` blocks, `A` heads, `M`
MAX_PACKED_TEXTS.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_features.encoder.types import Tensor
from bert_features.errors import ConfigError


@dataclass(frozen=True)
class EncoderOutputs:
    """The outputs of a `BertEncoder`, by name and by number.

    The encoder itself returns a plain dict, because Keras takes no other structure through
    functional models and exports; `from_dict` and `as_dict` convert.

    Attributes:
      embedding_output: [B, S, H], the sum below the first block.
      encoder_outputs: L of [B, S, H], the output of each block.
      pooled_output: [B, H], or [B, M, H] of packed rows; None without a pooler.
      attention: the weights of attention [B, A, S, S] of the layers that were asked for.
    """

    embedding_output: Tensor
    encoder_outputs: Sequence[Tensor]
    pooled_output: Tensor | None = None
    attention: Sequence[Tensor] = ()

    @classmethod
    def from_dict(cls, encoded: Mapping[str, Any]) -> "EncoderOutputs":
        """Takes what a `BertEncoder` returned."""
        return cls(
            encoded["embedding_output"],
            encoded["encoder_outputs"],
            encoded.get("pooled_output"),
            encoded.get("attention", ()),
        )

    def as_dict(self) -> dict[str, Any]:
        """The outputs by name; `pooled_output` only with a pooler."""
        encoded = {
            "embedding_output": self.embedding_output,
            "encoder_outputs": list(self.encoder_outputs),
            "sequence_output": self.sequence_output,
        }
        if self.pooled_output is not None:
            encoded["pooled_output"] = self.pooled_output
        if self.attention:
            encoded["attention"] = list(self.attention)
        return encoded

    @property
    def states(self) -> list[Tensor]:
        """1 + L of [B, S, H]: the sum below the first block, then the output of each block."""
        return [self.embedding_output, *self.encoder_outputs]

    @property
    def sequence_output(self) -> Tensor:
        """[B, S, H], the highest state."""
        return self.states[-1]

    def state(self, number: int) -> Tensor:
        """One of the states, [B, S, H]; raises ConfigError if there is no such state."""
        blocks = len(self.encoder_outputs)
        if not 0 <= number <= blocks:
            raise ConfigError(
                f"state {number} is outside [0, {blocks}]: this encoder computed {blocks} blocks"
            )
        return self.states[number]
