"""pooling='auto': the vectors that sentence-transformers computes with the same folder."""

import json

import numpy as np
import pytest

from bert_features import ExtractConfig, FeatureExtractor, extract, nearest, plan, read_features
from bert_features.errors import CheckpointError, ConfigError
from bert_features.extraction.checks import check_input_and_checkpoint
from bert_features.extraction.feature_store import FeatureStore
from bert_features.formats.manifest import Manifest
from tests.reference import numpy_outputs
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.sentence_transformers_folder import write_linked, write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

WEIGHTS = random_weights(TOY)
TOKENIZER = ReferenceTokenizer.from_tokens(TOY_VOCAB, lower=True)
# The form of GELU is that of Hugging Face's checkpoints.
ENCODER = NumpyEncoder(TOY.model_copy(update={"hidden_act": "gelu_erf"}), WEIGHTS)
AUTO = {"level": "sequence", "pooling": "auto", "do_lower_case": True, "batch_size": 4}
TEXTS = ["Is this Jacksonville?", "", "the a b", "not a jackson, is it? No."]
OUR_NAMES = {"mean_sqrt_len_tokens": "sqrt_len_mean"}


@pytest.fixture
def folder(tmp_path):
    """A toy checkpoint, to which a test adds sentence-transformers' settings."""
    return write_directory(tmp_path / "toy", TOY, TOY_VOCAB, WEIGHTS)


def reference(text, modes=("mean",), *, normalize=False, length=24, layer=-1):
    """The vector of a text by NumPy loops, in float64."""
    cls, sep = (TOKENIZER.vocab[name] for name in ("[CLS]", "[SEP]"))
    ids = np.array([[cls, *TOKENIZER.ids(text)[: length - 2], sep]])
    state = ENCODER(ids, np.ones_like(ids), np.zeros_like(ids))[layer][0]
    special = np.isin(ids[0], [cls, sep])
    parts = [
        numpy_outputs.pool_sequence(state, special, OUR_NAMES.get(mode, mode)) for mode in modes
    ]
    return numpy_outputs.finish(np.concatenate(parts), {"normalize": normalize})


def close(got, wanted):
    np.testing.assert_allclose(got, np.stack(wanted), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("modes", "normalize"),
    [(["max"], True), (["cls", "max", "mean", "mean_sqrt_len_tokens"], False)],
)
def test_poolings_side_by_side_and_normalized(folder, modes, normalize):
    write_settings(folder, modes=modes, normalize=normalize)
    vectors = FeatureExtractor.from_checkpoint(folder, **AUTO).encode(TEXTS)
    assert vectors.shape == (4, 8 * len(modes))
    close(vectors, [reference(text, modes, normalize=normalize) for text in TEXTS])


def test_without_a_length_of_its_own_it_is_the_number_of_positions(folder):
    extractor = FeatureExtractor.from_checkpoint(write_settings(folder), **AUTO)
    assert extractor.config.max_seq_length == TOY.max_position_embeddings


def test_what_the_user_sets_stays(folder):
    write_settings(folder, length=6, normalize=True)
    extractor = FeatureExtractor.from_checkpoint(
        folder, **AUTO, max_seq_length=10, normalize=False, layers=[0]
    )
    close(extractor.encode(TEXTS), [reference(text, length=10, layer=1) for text in TEXTS])
    # Another pooling leaves the folder's settings aside.
    settings = AUTO | {"pooling": "mean", "layers": [-1], "max_seq_length": 10}
    assert not FeatureExtractor.from_checkpoint(folder, **settings).outputs[0].normalize


def test_other_checkpoints_are_pooled_by_the_mean_of_the_last_layer(folder):
    extractor = FeatureExtractor.from_checkpoint(folder, **AUTO, max_seq_length=24)
    assert [output.name for output in extractor.outputs] == ["features"]
    close(extractor.encode(TEXTS), [reference(text) for text in TEXTS])


def test_named_outputs_may_leave_their_pooling_to_the_checkpoint(folder):
    write_settings(folder, modes=["cls", "mean"], normalize=True, length=8)
    extractor = FeatureExtractor.from_checkpoint(
        folder,
        outputs=[{"name": "t"}, {"name": "s", "level": "sequence", "pooling": "auto"}],
        layers=[0],
        do_lower_case=True,
        batch_size=4,
    )
    wanted = [reference(t, ["cls", "mean"], normalize=True, length=8) for t in TEXTS]
    close(extractor.encode(TEXTS, "s"), wanted)


def test_prompts(folder):
    prompts = {"query": "this is ", "empty": ""}
    write_settings(folder, prompts=prompts, default_prompt_name="query")
    extractor = FeatureExtractor.from_checkpoint(folder, **AUTO)
    assert extractor.prompts == prompts
    prompted, plain = ([reference(p + t) for t in TEXTS] for p in ("this is ", ""))
    close(extractor.encode(TEXTS), prompted)
    close(extractor.encode(TEXTS, prompt_name="empty"), plain)
    close(extractor.encode(TEXTS, prompt=""), plain)
    close(extractor.encode(TEXTS, prompt="the "), [reference("the " + t) for t in TEXTS])
    close([record.features["features"] for record in extractor(TEXTS)], prompted)
    with pytest.raises(ConfigError, match="prompt_name"):
        extractor.encode(TEXTS, prompt_name="x")
    with pytest.raises(ConfigError, match="example 0 came as words"):
        extractor.encode([["a", "b"]])


@pytest.mark.parametrize(
    ("prompts", "of_query", "of_document"),
    [
        ({"query": "this is ", "passage": "the ", "corpus": "a "}, "this is ", "the "),
        ({"document": "the ", "passage": "a "}, "", "the "),
        ({"query": "this is ", "clustering": "a "}, "this is ", ""),
    ],
)
def test_queries_and_documents_have_their_prompts(folder, prompts, of_query, of_document):
    """As in sentence-transformers; without a prompt of the name they are as in `encode`."""
    write_settings(folder, prompts=prompts)
    extractor = FeatureExtractor.from_checkpoint(folder, **AUTO)
    queries = extractor.encode_query(TEXTS)
    close(queries, [reference(of_query + text) for text in TEXTS])
    close(extractor.encode_document(TEXTS[0], "features"), reference(of_document + TEXTS[0]))
    close(extractor.encode_query(TEXTS, prompt="the "), [reference("the " + t) for t in TEXTS])
    name = next(iter(prompts))
    close(
        extractor.encode_document(TEXTS, prompt_name=name),
        [reference(prompts[name] + text) for text in TEXTS],
    )


def test_a_file_is_prompted_as_texts_are(folder, tmp_path, monkeypatch):
    write_settings(folder, prompts={"query": "this is "}, default_prompt_name="query")
    config = ExtractConfig.of({"checkpoint": str(folder), **AUTO})
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    extract(config, tmp_path / "in.txt", tmp_path / "out.npz")
    values, _ = read_features(tmp_path / "out.npz").ragged("features")
    close(values, [reference("this is " + text) for text in TEXTS])
    pieces = sum(len(TOKENIZER.ids("this is " + text)) + 2 for text in TEXTS)
    assert plan(config, tmp_path / "in.txt").tokens == pieces
    # Texts that the cache has lost are computed apart; they are not prompted twice.
    cached = ExtractConfig.of({"checkpoint": str(folder), **AUTO, "cache": str(tmp_path / "cache")})
    extract(cached, tmp_path / "in.txt", tmp_path / "out.npz", overwrite=True)
    monkeypatch.setattr(FeatureStore, "fetch", lambda store, keys: {})
    extract(cached, tmp_path / "in.txt", tmp_path / "out.npz", overwrite=True)
    close(read_features(tmp_path / "out.npz").ragged("features")[0], values)


@pytest.mark.parametrize(("given", "put"), [("document", "the "), ("", "")])
def test_the_prompt_of_a_run_is_a_name_or_a_text(folder, tmp_path, given, put):
    prompts = {"document": "the ", "query": "this is "}
    write_settings(folder, prompts=prompts, default_prompt_name="query")
    config = ExtractConfig.of({"checkpoint": str(folder), **AUTO, "prompt": given})
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    extract(config, tmp_path / "in.txt", f"{tmp_path / 'out'}/")
    file = read_features(tmp_path / "out")
    close(file.ragged("features")[0], [reference(put + text) for text in TEXTS])
    assert file.recipe.texts.get("prompt", "") == put
    assert Manifest.read(tmp_path / "out").recipe.settings.get("prompt") == given


def test_the_prompt_of_a_run_decides_about_the_cache(folder, tmp_path):
    write_settings(folder, prompts={"document": "the "})
    (tmp_path / "in.txt").write_text("b\n")
    config = {"checkpoint": str(folder), **AUTO, "cache": str(tmp_path / "cache")}
    reused = []
    for prompt in (None, "document", "the "):
        given = ExtractConfig.of({**config, "prompt": prompt})
        summary = extract(given, tmp_path / "in.txt", tmp_path / "out.npz", overwrite=True)
        reused.append(summary.counts.examples_from_cache)
    assert reused == [0, 0, 1]


def test_a_prompt_applies_to_other_poolings_too(folder):
    settings = {"level": "sequence", "pooling": "max", "do_lower_case": True, "prompt": "the "}
    extractor = FeatureExtractor.from_checkpoint(folder, **settings, max_seq_length=24, layers=[-1])
    close(extractor.encode(TEXTS), [reference("the " + text, ["max"]) for text in TEXTS])


def test_neighbors_of_a_query_with_the_prompt_of_queries(folder, tmp_path):
    """The file has the prompt of documents, its neighbors are asked for with that of queries."""
    write_settings(folder, prompts={"document": "the ", "query": "this is "})
    config = ExtractConfig.of({"checkpoint": str(folder), **AUTO, "prompt": "document"})
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    path = tmp_path / "out.npz"
    extract(config, tmp_path / "in.txt", path)
    for prompt, put in ((None, "this is "), ("document", "the "), ("", ""), ("a ", "a ")):
        hits = nearest(path, "is it jacksonville", prompt=prompt)
        found = {hit.record: hit.similarity for hit in hits}
        query = reference(f"{put}is it jacksonville")
        texts = np.stack([reference("the " + text) for text in TEXTS])
        lengths = np.linalg.norm(texts, axis=1) * np.linalg.norm(query)
        close([found[i] for i in range(len(TEXTS))], texts @ query / lengths)


def test_a_prompt_that_does_not_count_is_refused(folder):
    write_settings(folder, prompts={"query": "this "}, include_prompt=False)
    extractor = FeatureExtractor.from_checkpoint(folder, **AUTO)
    close(extractor.encode(TEXTS), [reference(text) for text in TEXTS])
    with pytest.raises(ConfigError, match="tokens of a prompt"):
        extractor.encode(TEXTS, prompt_name="query")


def test_a_default_prompt_that_does_not_fit_is_refused_at_once(folder, tmp_path):
    write_settings(folder, prompts={"q": "this "}, default_prompt_name="q", include_prompt=False)
    (tmp_path / "in.txt").write_text("a\n")
    config = ExtractConfig.of({"checkpoint": str(folder), **AUTO})
    with pytest.raises(ConfigError, match="tokens of a prompt"):
        check_input_and_checkpoint(config, tmp_path / "in.txt")
    words = [{"level": "sequence", "pooling": "auto"}, {"name": "w", "level": "word"}]
    settings = {"checkpoint": str(folder), "do_lower_case": True, "layers": [-1]}
    config = ExtractConfig.of({**settings, "outputs": words})
    with pytest.raises(ConfigError, match=r"level 'word' .* prompt"):
        check_input_and_checkpoint(config, tmp_path / "in.txt")


def test_texts_are_lower_cased_without_losing_accents(folder):
    write_settings(folder, do_lower_case=True)
    extractor = FeatureExtractor.from_checkpoint(folder, **AUTO | {"do_lower_case": False})
    plain, accented, unknown = extractor.encode(["IS THE a", "is THÉ a", "is zzz a"])
    close(plain, reference("is the a"))
    close(accented, unknown)  # with its accent the word is not in the vocabulary


def test_the_similarity_is_the_folders(folder):
    write_settings(folder, similarity="dot")
    extractor = FeatureExtractor.from_checkpoint(folder, **AUTO)
    assert extractor.similarity([3.0, 4.0], [1.0, 2.0]) == 11.0
    assert extractor.similarity([3.0, 4.0], [6.0, 8.0], function="cosine") == pytest.approx(1.0)


def test_a_similarity_that_is_not_here_is_refused_unless_another_is_passed(folder):
    extractor = FeatureExtractor.from_checkpoint(
        write_settings(folder, similarity="euclidean"), **AUTO
    )
    message = "toy records the similarity function 'euclidean', .*'cosine' or function='dot'"
    with pytest.raises(ConfigError, match=message):
        extractor.similarity([3.0, 4.0])
    assert extractor.similarity([3.0, 4.0], function="dot") == 25.0


def test_the_metadata_record_what_was_done_to_the_texts(folder):
    write_settings(
        folder, do_lower_case=True, prompts={"query": "this is "}, default_prompt_name="query"
    )
    cased = AUTO | {"do_lower_case": False}
    texts = FeatureExtractor.from_checkpoint(folder, **cased).recipe.texts
    assert (texts["prompt"], texts["lower_cased_first"]) == ("this is ", True)
    # The tokenizer of an uncased checkpoint lower-cases by itself.
    assert "lower_cased_first" not in FeatureExtractor.from_checkpoint(folder, **AUTO).recipe.texts
    plain = cased | {"pooling": "mean", "layers": [-1], "max_seq_length": 20}
    texts = FeatureExtractor.from_checkpoint(folder, **plain).recipe.texts
    assert not {"prompt", "lower_cased_first"} & texts.keys()


def test_a_pooling_that_is_not_here_is_refused_only_if_it_is_asked_for(folder):
    write_settings(folder, modes=["weightedmean"])
    with pytest.raises(CheckpointError, match="weightedmean"):
        FeatureExtractor.from_checkpoint(folder, **AUTO)
    settings = AUTO | {"pooling": "mean", "layers": [-1], "max_seq_length": 20}
    assert FeatureExtractor.from_checkpoint(folder, **settings).encode(TEXTS).shape == (4, 8)


GOLDEN = "sentence_transformers_8.npz"


@pytest.mark.slow
def test_the_vectors_are_those_that_sentence_transformers_computed(data, minilm_dir, tmp_path):
    """tests/data/README.md says how the file was made."""
    with np.load(data / GOLDEN) as golden:
        texts, cases = golden["texts"].tolist(), json.loads(str(golden["cases"]))
        assert len(texts) == 8
        del cases["mean_unit"]  # the next test has it
        assert len(cases) == 4
        for name, case in cases.items():
            folder = write_linked(tmp_path / name, minilm_dir, **case)
            extractor = FeatureExtractor.from_checkpoint(folder, level="sequence", pooling="auto")
            np.testing.assert_allclose(extractor.encode(texts), golden[name], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_embedded_model_gives_the_vectors_that_it_was_trained_for(data, minilm_dir):
    with np.load(data / GOLDEN) as golden:
        extractor = FeatureExtractor.from_checkpoint("minilm", level="sequence", pooling="auto")
        assert extractor.config.max_seq_length == 256
        vectors = extractor.encode(golden["texts"].tolist())
        np.testing.assert_allclose(vectors, golden["mean_unit"], rtol=0, atol=1e-5)
