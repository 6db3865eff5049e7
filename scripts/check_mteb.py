"""Runs the recipe for mteb in docs/recipes.md, and compares it with mteb's class for the same job.

    bash scripts/check_mteb.sh [--sts FILE]

Three tasks, none of which downloads anything: the recipe's own, a search whose queries and
documents have different prompts, and the STS benchmark if its file is there. Each runs with the
recipe's class and with mteb's `SentenceTransformerEncoderWrapper` around a model that
sentence-transformers made of the embedded all-MiniLM-L6-v2 (not Google's BERT). Checks that each
text got its prompt, that its vector is that of sentence-transformers within 1e-5, and that the
scores agree. Exit status 1 if something differs.
"""

import argparse
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from check_sentence_transformers import write_folder
from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval

from bert_features import FeatureExtractor

ROOT = Path(__file__).resolve().parents[1]
LARGE_DATA = Path(os.environ.get("BERT_FEATURES_LARGE_DATA", ROOT.parent / "shared" / "data"))
NAME = "sentence-transformers/all-MiniLM-L6-v2"
PROMPTS = {"query": "query: ", "document": "passage: ", "STS": "alike: "}
CASE = {"modes": ["mean"], "normalize": True, "length": 256}
TOLERANCE = 1e-5
SCORE_TOLERANCE = 1e-4  # of vectors that differ by the last bits a few ranks may differ


def run_recipe() -> tuple[dict[str, Any], str, str]:
    """The names of the recipe, what it printed, and what the page says."""
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    section = page.partition(" Scores with mteb\n")[2]
    (_, code), (_, printed) = re.findall(r"^```(python|text)\n(.*?)^```$", section, re.M | re.S)[:2]
    names: dict[str, Any] = {"__name__": "recipe"}
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, "docs/recipes.md", "exec"), names)
    return names, output.getvalue(), printed


class Search(AbsTaskRetrieval):
    """Three queries and six documents."""

    metadata = mteb.TaskMetadata(
        name="Search",
        description="Three queries and six documents",
        dataset={"path": "none", "revision": "1"},
        type="Retrieval",
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )
    queries = ("Who got a loan?", "Which animal is in the water?", "When does the tram stop?")
    documents = (
        "The bank lent her the money.",
        "The heron stood in the river.",
        "Its trams run until midnight.",
        "He plays the violin.",
        "The river bank was steep.",
        "A bank robber was seen fishing.",
    )

    def load_data(self, **_: Any) -> None:
        """Query i is answered by document i."""
        queries = [{"id": f"q{i}", "text": text} for i, text in enumerate(self.queries)]
        corpus = [
            {"id": f"d{i}", "text": text, "title": ""} for i, text in enumerate(self.documents)
        ]
        split = {
            "queries": Dataset.from_list(queries),
            "corpus": Dataset.from_list(corpus),
            "relevant_docs": {f"q{i}": {f"d{i}": 1} for i in range(len(queries))},
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


def sts_benchmark(pairs: Any, path: Path) -> Any:
    """The recipe's task with the pairs of a file of the STS benchmark."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return type(
        "STSBenchmark",
        (pairs,),
        {
            "metadata": pairs.metadata.model_copy(update={"name": "STS benchmark, local"}),
            "pairs": [(row[5], row[6], float(row[4])) for row in rows],
        },
    )()


def score(model: Any, task: Any) -> float:
    """The main score of a task."""
    (result,) = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results
    return float(result.get_score())


def recording(base: Any) -> Any:
    """The recipe's class, which also keeps its texts, what they are and their vectors."""

    class Recording(base):  # type: ignore[misc]
        def encode(self, inputs: Any, **arguments: Any) -> Any:
            batches = list(inputs)
            texts = [text for batch in batches for text in batch["text"]]
            vectors = super().encode(batches, **arguments)
            kind = arguments.get("prompt_type") or arguments["task_metadata"].type
            self.calls.append((str(kind), texts, vectors))
            return vectors

    return Recording


def check_prompts(calls: list[tuple[str, list[str], np.ndarray]], theirs: Any) -> None:
    """Raises AssertionError if a vector is not of its own prompt and text."""
    for kind, texts, vectors in calls:
        distances = {}
        for name, prompt in {**PROMPTS, "none": ""}.items():
            wanted = theirs.encode([prompt + text for text in texts], prompt="")
            distances[name] = np.abs(vectors - wanted).max(axis=1)  # of each text
        print(f"  {kind}: {len(texts)} texts, difference {distances[kind].max():.1e}", end="; ")
        others = min(values.min() for name, values in distances.items() if name != kind)
        print(f"with another prompt at least {others:.1e}")
        assert distances[kind].max() < TOLERANCE
        assert others > 100 * TOLERANCE


def compare(task: Any, ours: Any, theirs: Any) -> None:
    """Prints the scores of a task; raises AssertionError if they differ."""
    mine, other = score(ours, task), score(mteb.SentenceTransformerEncoderWrapper(theirs), task)
    print(f"{task.metadata.name}: {mine:.5f}, with sentence-transformers {other:.5f}")
    assert abs(mine - other) < SCORE_TOLERANCE


def main() -> None:
    """Runs all; raises AssertionError if something differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = LARGE_DATA / "sts_test.csv"
    parser.add_argument("--sts", type=Path, default=default, help="file of the STS benchmark")
    sts = parser.parse_args().sts
    recipe, got, printed = run_recipe()
    print(f"mteb {mteb.__version__}; the recipe printed {got!r}")
    assert got == printed, printed
    with tempfile.TemporaryDirectory() as folder:
        theirs = write_folder({**CASE, "prompts": PROMPTS}, Path(folder))
        extractor = FeatureExtractor.from_checkpoint(folder, level="sequence", pooling="auto")
        ours = recording(recipe["SentenceVectors"])(extractor, NAME)
        ours.calls = []
        for task in (recipe["Pairs"](), Search()):
            compare(task, ours, theirs)
        check_prompts(ours.calls, theirs)
    if not sts.is_file():
        print(f"the STS benchmark is left out: {sts} does not exist")
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(
            sts_benchmark(recipe["Pairs"], sts), recipe["model"], write_folder(CASE, Path(folder))
        )


if __name__ == "__main__":
    main()
