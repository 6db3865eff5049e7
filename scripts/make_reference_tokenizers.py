"""Makes tests/data/tokenizers: small tokenizers of four families, and what their own code does.

    bash scripts/make_reference_tokenizers.sh

Each tokenizer is trained on the texts of tests/data, in the form in which the family publishes it:

- `albert/spiece.model`: SentencePiece, trained with the options of google-research/albert.
- `xlm_roberta/sentencepiece.bpe.model`: SentencePiece, whose ids transformers shifts as fairseq.
- `roberta/tokenizer.json`: byte-level BPE; transformers' tokenizer in Python reads the same merges.
- `modernbert/tokenizer.json`: byte-level BPE after NFC, with runs of blanks as tokens.

`golden.npz` has the ids of lines and pairs for each family, by the family's own rule: for ALBERT
`preprocess_text` and `encode_pieces` of google-research/albert, restated here around sentencepiece,
which transformers' tokenizer in Python must give too; for XLM-R and RoBERTa transformers' tokenizer
in Python; for ModernBERT `tokenizers`. Offsets are those of transformers' fast tokenizer where it
has the same ids, else -1: prints how many lines that leaves out.

`camembert.json` has the ids that transformers' CamemBERT gives some lines and pairs with XLM-R's
file, and XLM-R's ids of special tokens that are typed in a text, by sentencepiece as in fairseq.
"""

import io
import json
import tarfile
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import transformers
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers.convert_slow_tokenizer import convert_slow_tokenizer

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
TARGET = DATA / "tokenizers"
PIECES = 1000
PAIRS = 60

# Where tokenizers go different ways: blanks, marks, case, numbers, quotes, rare characters.
ODD_LINES = [
    "",
    " ",
    " \t\n  ",
    "a",
    "  two  blanks \t and\na line ",
    "In 1948, 217, and 10,000, and 3,5.",
    "x1,y2, ,3, 4,5,",
    "Ångström and A\u030angstro\u0308m, café and cafe\u0301",
    "ΟΔΥΣΣΕΥΣ Σ ΑΣ ΣΑΣ. İstanbul ıI",
    "ﬁ ﬂ ½ ² № ™ Ⅳ ㎏ ﷺ",
    "日本国憲法 第一章",
    "中",
    "한국어 세계인권선언",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 e\u200db",
    "مرحبا بالعالم 123 שלום עולם",
    "\u202eright to left\u202c",
    "a\u00a0b\u2003c\u3000d\u2028e\u0085f\x1fg",
    "zero\u200bwidth\ufeffmark",
    "'quoted' \"double\" “curly” ‘single’ -- – — …",
    "don't it's we'll I'M",
    "(a)[b]{c}<d>",
    "▁ under▁bar ▁▁",
    "nice     runs          of blanks",
    "https://example.org/a?b=c&d=%20 user@example.org",
    "\u0301alone at the beginning",
    "word\u0301\u0302\u0303s",
]
TYPED = ["a <s> b", "<s>", "the </s><mask> <unk>,<pad>"]


def main() -> None:
    """Makes the tokenizers and the file of what they give."""
    lines = [*ODD_LINES, *_lines("udhr_300.txt"), *_lines("english.txt")[:60]]
    # Where text_b is empty, this package has no pair, as google-research/bert.
    plain = [line for line in lines if line.strip() and "Σ" not in line]
    pairs = list(zip(plain[:PAIRS], reversed(plain[-PAIRS:]), strict=True))
    TARGET.mkdir(exist_ok=True)
    arrays: dict[str, Any] = {"texts": json.dumps(lines), "pairs": json.dumps(pairs)}
    with tempfile.TemporaryDirectory() as folder:
        for family, make in FAMILIES.items():
            ids_of, pair_of, fast = make(Path(folder, family))
            arrays |= _golden(family, lines, pairs, ids_of, pair_of, fast)
        write_camembert(Path(folder, "xlm_roberta", "sentencepiece.bpe.model"), pairs)
        with tarfile.open(TARGET / "files.tar.xz", "w:xz") as archive:
            for path in sorted(Path(folder).glob("*/*")):
                member = tarfile.TarInfo(f"{path.parent.name}/{path.name}")
                member.size = path.stat().st_size
                archive.addfile(member, io.BytesIO(path.read_bytes()))
    np.savez_compressed(TARGET / "golden.npz", **arrays)


def write_camembert(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Writes camembert.json, of a SentencePiece model of XLM-R's form."""
    slow = transformers.CamembertTokenizer(str(path))
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    own = [[number + 1 if number else 3 for number in model.EncodeAsIds(t)] for t in TYPED]
    values = {
        "texts": ODD_LINES,
        "ids": [_ids_of(slow)(line) for line in ODD_LINES],
        "pairs": pairs[:3],
        "pair_ids": [_pair_of(slow)(a, b)[0] for a, b in pairs[:3]],
        "specials": [slow.pad_token_id, slow.unk_token_id, slow.mask_token_id],
        "typed": TYPED,
        "typed_ids": own,
    }
    (TARGET / "camembert.json").write_text(json.dumps(values, separators=(",", ":")) + "\n")


def _lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def _golden(
    family: str,
    lines: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    ids_of: Callable[[str], list[int]],
    pair_of: Callable[[str, str], tuple[list[int], list[int]]],
    fast: Any,
) -> dict[str, np.ndarray]:
    rows, starts, sizes = [], [], []
    others = 0
    for line in lines:
        ids = ids_of(line)
        found = fast(line, add_special_tokens=False, return_offsets_mapping=True)
        offsets = found["offset_mapping"]
        if found["input_ids"] != ids:
            others += 1
            offsets = [(-1, -1)] * len(ids)
        rows.append(ids)
        starts += [start for start, _ in offsets]
        sizes += [end - start for start, end in offsets]
    print(f"{family}: {others} of {len(lines)} lines have other ids in the fast tokenizer")
    framed = [pair_of(a, b) for a, b in pairs]
    return {
        f"{family}.ids": _flat(rows, np.int16),
        f"{family}.lengths": np.array([len(row) for row in rows], np.int16),
        f"{family}.starts": np.array(starts, np.int16),
        f"{family}.sizes": np.array(sizes, np.int16),
        f"{family}.pair_ids": _flat((ids for ids, _ in framed), np.int16),
        f"{family}.pair_types": _flat((types for _, types in framed), np.int8),
        f"{family}.pair_lengths": np.array([len(ids) for ids, _ in framed], np.int16),
    }


def _flat(rows: Iterable[Sequence[int]], dtype: type[np.generic]) -> np.ndarray:
    return np.array([value for row in rows for value in row], dtype)


def _pair_of(tokenizer: Any) -> Callable[[str, str], tuple[list[int], list[int]]]:
    def pair(a: str, b: str) -> tuple[list[int], list[int]]:
        found = tokenizer(a, b, return_token_type_ids=True)
        return found["input_ids"], found["token_type_ids"]

    return pair


def _train(path: Path, **options: Any) -> sentencepiece.SentencePieceProcessor:
    path.parent.mkdir(parents=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        # English several times, so that rare characters of other languages are unknown.
        sentence_iterator=iter([*_lines("english.txt") * 6, *_lines("udhr_300.txt")]),
        model_writer=model,
        vocab_size=PIECES,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def _albert(folder: Path) -> tuple[Any, Any, Any]:
    path = folder / "spiece.model"
    model = _train(
        path,
        model_type="unigram",
        pad_id=0,
        unk_id=1,
        eos_id=-1,
        bos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=["(", ")", '"', "-", ".", "–", "£", "€", "8,", "17,"],
        character_coverage=0.98,
    )
    slow = transformers.AlbertTokenizer(str(path))

    def ids_of(text: str) -> list[int]:
        pieces = _albert_pieces(model, _albert_text(text))
        ids = [model.PieceToId(piece) for piece in pieces]
        # transformers makes quotation marks of two single ones, and no sigma final.
        if not any(part in text for part in ("''", "``", "Σ")):
            assert slow(text, add_special_tokens=False)["input_ids"] == ids, text
        return ids

    def pair_of(a: str, b: str) -> tuple[list[int], list[int]]:
        first = [2, *ids_of(a), 3]
        second = [*ids_of(b), 3]
        ids, types = first + second, [0] * len(first) + [1] * len(second)
        assert (ids, types) == _pair_of(slow)(a, b)
        return ids, types

    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')
    return ids_of, pair_of, transformers.AlbertTokenizerFast(str(path))


def _albert_text(text: str) -> str:
    """`preprocess_text` of google-research/albert, with lower case."""
    text = unicodedata.normalize("NFKD", " ".join(text.split()))
    return "".join(char for char in text if not unicodedata.combining(char)).lower()


def _albert_pieces(model: sentencepiece.SentencePieceProcessor, text: str) -> list[str]:
    """`encode_pieces` of google-research/albert: a comma after a digit is a piece of its own."""
    made = []
    for piece in model.EncodeAsPieces(text):
        if piece[-1] != "," or not piece[-2:-1].isdigit():
            made.append(piece)
            continue
        parts = model.EncodeAsPieces(piece[:-1].replace("▁", ""))
        if not piece.startswith("▁") and parts[0].startswith("▁"):
            parts = [part for part in (parts[0][1:], *parts[1:]) if part]
        made += [*parts, ","]
    return made


def _xlm_roberta(folder: Path) -> tuple[Any, Any, Any]:
    path = folder / "sentencepiece.bpe.model"
    _train(path, model_type="unigram", character_coverage=0.982)
    slow = transformers.XLMRobertaTokenizer(str(path))
    fast = transformers.XLMRobertaTokenizerFast(str(path))
    return _ids_of(slow), _pair_of(slow), fast


def _ids_of(tokenizer: Any) -> Callable[[str], list[int]]:
    return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]


def _bpe(specials: Sequence[AddedToken], normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*_lines("english.txt"), *_lines("udhr_300.txt")], trainer)
    return tokenizer


def _roberta(folder: Path) -> tuple[Any, Any, Any]:
    folder.mkdir()
    mask = AddedToken("<mask>", lstrip=True, special=True)
    trained = _bpe(["<s>", "<pad>", "</s>", "<unk>", mask])
    with tempfile.TemporaryDirectory() as other:
        files = trained.model.save(other)
        slow = transformers.RobertaTokenizer(*files, mask_token=mask)
        convert_slow_tokenizer(slow).save(str(folder / "tokenizer.json"))
    fast = transformers.RobertaTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return _ids_of(slow), _pair_of(slow), fast


def _modernbert(folder: Path) -> tuple[Any, Any, Any]:
    folder.mkdir()
    specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True, special=True)]
    tokenizer = _bpe(specials, normalizers.NFC())
    runs = [AddedToken(" " * size, normalized=True) for size in range(24, 1, -1)]
    tokenizer.add_tokens(runs)
    cls, sep = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
    )
    return _ids_of(fast), _pair_of(fast), fast


FAMILIES: dict[str, Callable[[Path], tuple[Any, Any, Any]]] = {
    "albert": _albert,
    "xlm_roberta": _xlm_roberta,
    "roberta": _roberta,
    "modernbert": _modernbert,
}

if __name__ == "__main__":
    main()
