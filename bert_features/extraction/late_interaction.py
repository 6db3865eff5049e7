"""What a checkpoint for late interaction does to documents and queries, by its tokenizer's ids."""

from bert_features.batches.queries_documents import QueriesAndDocuments, RowRules
from bert_features.checkpoints.modules import multi_vector
from bert_features.checkpoints.modules.multi_vector import MultiVectorSettings, TextSettings
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError, ConfigError
from bert_features.text.tokenizer import Tokenizer
from bert_features.text.vocabulary import UNK


def find_markers(settings: MultiVectorSettings, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of the markers that prompts begin with.

    A marker that the vocabulary lacks is text. One that the tokenizer makes a single piece by
    itself needs no help.
    """
    known = [next((t for t in texts if t in tokenizer.vocab), "") for texts in settings.markers]
    return tuple(tokenizer.vocab[t] for t in known if t and tokenizer.tokenize(t) != [t])


def find_sides(
    settings: MultiVectorSettings,
    tokenizer: Tokenizer,
    *,
    document_length: int,
    max_seq_length: int,
    packed: bool,
) -> QueriesAndDocuments:
    """The two sides.

    Args:
      settings: what the checkpoint's files say.
      tokenizer: its tokenizer.
      document_length: tokens of the longest document.
      max_seq_length: tokens of the longest row.
      packed: whether rows are packed.

    Raises:
      ConfigError: `max_seq_length` is shorter than queries are filled to.
      CheckpointError: the vocabulary lacks the token that fills them.
    """
    query, fill = settings.query, settings.query.fill
    length = min(query.length or max_seq_length, max_seq_length)
    side = RowRules(length, _ids(query, tokenizer))
    if fill is not None:
        if fill.length > max_seq_length:
            raise ConfigError(
                f"max_seq_length is {max_seq_length}; queries of this checkpoint have at least "
                f"{fill.length} tokens: pass no less"
            )
        side = RowRules(
            length, side.skip_ids, fill.length, _fill_id(fill, tokenizer), fill.attended
        )
    document = RowRules(document_length, _ids(settings.document, tokenizer))
    return QueriesAndDocuments(document, side, packed)


def _ids(texts: TextSettings, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of skipped words that are single pieces, the others are not skipped; and of [CLS]."""
    unknown, vocab = tokenizer.frame.unknown_id, tokenizer.vocab
    words_by_id = {vocab[word]: word for word in texts.skip_words if word in vocab}
    ids = tuple(number for number, word in words_by_id.items() if number != unknown or word == UNK)
    return (*ids, *[tokenizer.frame.cls_id] * texts.skip_first)


def _fill_id(fill: multi_vector.Fill, tokenizer: Tokenizer) -> int:
    number = tokenizer.frame.mask_id if fill.token is None else tokenizer.vocab.get(fill.token)
    if number is None and fill.token is None:
        number = tokenizer.frame.sep_id
    if number is None:
        raise CheckpointError(
            f"queries are filled with the token {shown(fill.token)}, which the vocabulary lacks; "
            "the files are of different checkpoints"
        )
    return number
