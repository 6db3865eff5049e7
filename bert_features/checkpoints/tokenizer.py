"""The tokenizer of a checkpoint: its file, which must belong to the weights, and its casing."""

import functools
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.weights.encoder_check import check_encoder
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError, ConfigError
from bert_features.text import tokenizer_files
from bert_features.text.frame import special_pieces
from bert_features.text.json_model import JsonModel
from bert_features.text.sentencepiece_model import SentencePieceModel
from bert_features.text.tokenizer_files import TokenizerFile, WordPieceFile, read_tokenizer
from bert_features.text.vocabulary import UNK

if TYPE_CHECKING:
    from bert_features.text.tokenizer import Tokenizer

logger = logging.getLogger("bert_features")


def check_casing(checkpoint: Checkpoint, do_lower_case: bool) -> None:
    """Refuses a casing that contradicts the checkpoint's; raises CheckpointError."""
    if checkpoint.do_lower_case is None or checkpoint.do_lower_case == do_lower_case:
        return
    asked, casing = ("lower-casing", "cased") if do_lower_case else ("keeping case", "uncased")
    raise CheckpointError(
        f"{asked} contradicts {checkpoint.name}, which is {casing} ({checkpoint.casing_evidence}); "
        f"pass do_lower_case={not do_lower_case} or leave the setting out"
    )


def check_vocab(file: TokenizerFile, config: BertConfig, path: str | Path) -> None:
    """Refuses a vocabulary that does not belong to the checkpoint; raises CheckpointError.

    It is larger than the embedding table, or a special piece is missing. Many tables are larger:
    they are rounded up, or have rows for pieces to come.
    """
    tokens, rows = file.tokens, config.vocab_size
    if isinstance(file, WordPieceFile):
        first, last, pad, _ = special_pieces(file.model_type)
        if missing := [token for token in (pad, UNK, first, last) if token not in tokens]:
            raise CheckpointError(
                f"the vocabulary {path} lacks {', '.join(missing)}; pass the one that belongs to it"
            )
    if len(tokens) > rows:
        raise CheckpointError(
            f"the vocabulary {path} has {len(tokens)} pieces, but the checkpoint's embedding table "
            f"has {rows} rows; pass the {Path(path).name} that belongs to it"
        )
    padding = config.pad_token_id
    if config.position_offset and padding is not None and padding != file.frame.pad_id:
        raise CheckpointError(
            f"pad_token_id is {padding} in the checkpoint's config, and the padding of {path} is "
            f"{file.frame.pad_id}; this family counts positions by it: correct pad_token_id"
        )
    if len(tokens) < rows:
        _report_spare_rows(str(path), rows - len(tokens))


@functools.cache  # once, although a run checks several times
def _report_spare_rows(path: str, spare: int) -> None:
    logger.info("the embedding table has %d rows more than %s; they are not used", spare, path)


def file_of(checkpoint: Checkpoint, path: Path) -> TokenizerFile:
    """What the file of a checkpoint's tokenizer holds; errors are those of `read_tokenizer`.

    A run asks three times. Only a `tokenizer.json` is read again, as its values take up to 100 MB.
    """
    kept: dict[Path, TokenizerFile] = vars(checkpoint).setdefault("_tokenizers", {})
    file = kept.get(path) or read_tokenizer(path, checkpoint.config.model_type)
    if not isinstance(file, JsonModel):
        kept[path] = file
    return file


def checked_vocabulary(checkpoint: Checkpoint) -> tuple[Path, TokenizerFile]:
    """The file of a checkpoint's tokenizer, which belongs to it, and what it holds.

    Raises CheckpointError if there is none or it does not fit, and errors of `read_tokenizer`.
    """
    path = checkpoint.vocab_file
    if path is None:
        others = ", ".join(tokenizer_files.NAMES[1:])
        raise CheckpointError(
            f"there is no vocab.txt beside {checkpoint.weights_path}, nor {others}; pass vocab_file"
        )
    file = file_of(checkpoint, path)
    if len(file.tokens) > checkpoint.config.vocab_size:
        # Its error says so if the config's vocab_size is the wrong one.
        check_encoder(checkpoint.weights, checkpoint.config)
    check_vocab(file, checkpoint.config, path)
    return path, file


def resolve_vocabulary(
    checkpoint: Checkpoint, do_lower_case: bool | None = None
) -> tuple[TokenizerFile, bool]:
    """What the file of a checkpoint's tokenizer holds, and whether to lower-case; both checked.

    Raises:
      CheckpointError: there is no vocabulary, it does not fit the checkpoint, or `do_lower_case`
        contradicts it.
      ConfigError: `do_lower_case` is None and the checkpoint does not record its casing.
    """
    _, file = checked_vocabulary(checkpoint)
    if do_lower_case is None:
        do_lower_case = checkpoint.do_lower_case
    if do_lower_case is None:
        raise ConfigError(
            f"the casing of {checkpoint.name} is unknown; pass do_lower_case=True or "
            "do_lower_case=False"
        )
    check_casing(checkpoint, do_lower_case)
    return file, do_lower_case


def make_tokenizer(checkpoint: Checkpoint, do_lower_case: bool | None = None) -> "Tokenizer":
    """Makes the tokenizer of a checkpoint; arguments and errors are `resolve_vocabulary`'s."""
    return tokenizer_of(*resolve_vocabulary(checkpoint, do_lower_case), checkpoint.config)


def tokenizer_of(
    file: TokenizerFile, do_lower_case: bool, config: BertConfig | None = None
) -> "Tokenizer":
    """Makes the tokenizer of a file; all tokens have type 0 if the config has not two types."""
    tokenizer: Tokenizer
    if isinstance(file, SentencePieceModel):
        from bert_features.text.sentencepiece import SentencePieceTokenizer

        tokenizer = SentencePieceTokenizer(file, do_lower_case=do_lower_case)
    elif isinstance(file, JsonModel):
        from bert_features.text.json_tokenizer import JsonTokenizer

        tokenizer = JsonTokenizer(file.with_case(do_lower_case), do_lower_case=do_lower_case)
    else:
        from bert_features.text.tokenization import FullTokenizer

        tokenizer = FullTokenizer(
            file.tokens, do_lower_case, model_type=file.model_type, **file.rules
        )
    untyped = isinstance(file, WordPieceFile) and not file.has_types
    if untyped or (config is not None and config.type_vocab_size < 2):
        tokenizer.frame = replace(tokenizer.frame, has_types=False)
    return tokenizer
