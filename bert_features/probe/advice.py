"""Which layer and pooling scores speak for, in one sentence.

Dimensions: `F` folds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_features.config.layers import EMBEDDINGS
from bert_features.plots.model import layer_name
from bert_features.probe.scores import METRICS, Score, Scores

# Differences that would come by chance more often than this do not count.
_SIGNIFICANCE = 0.05
_EMBEDDINGS_WIN = (
    " The embeddings lie below layer 0 and contain no context: the words alone, or their places, "
    "predict these labels, so counts of words may do as well, without BERT."
)


def differ(better: np.ndarray, worse: np.ndarray | float, comparisons: int = 1) -> bool:
    """Whether scores of folds, float [F], differ from others, or a constant, by more than chance.

    It is the t-test for cross-validation by Nadeau and Bengio (2003): folds share most of their
    training examples, so their scores vary less than independent ones would. The best of several
    scores is compared as often, by Bonferroni's correction.
    """
    from scipy.special import stdtrit

    differences = np.asarray(better - worse)
    count, mean = len(differences), float(differences.mean())
    variance = float(differences.var(ddof=1)) * (1 / count + 1 / (count - 1))
    if variance <= 1e-18:
        return abs(mean) > 1e-9
    limit = float(stdtrit(count - 1, 1 - _SIGNIFICANCE / 2 / comparisons))
    return abs(mean) / math.sqrt(variance) > limit


@dataclass(frozen=True)
class Advice:
    """The layer and pooling to use.

    Attributes:
      choice: the one to use, the first score within one standard error of the highest; None if
        none carries more than chance.
      sentence: both, for a reader.
    """

    best: Score
    choice: Score | None
    sentence: str


def advise(results: Scores) -> Advice:
    """Chooses a layer and a pooling by the one-standard-error rule.

    The scores are in order: by layer from the lowest, and by pooling from the simplest.
    """
    scores = results.scores
    # The first of equal scores is the simplest; sums of folds differ in their last digits.
    best = max(scores, key=lambda score: round(score.mean, 9))
    by_name = {name: folds[best.metric] for name, folds in results.baselines.items()}
    named = " and ".join(f"{folds.mean():.3f} ({name})" for name, folds in by_name.items())
    level = f"The score is {METRICS[best.metric]}; baselines have {named}."
    if (mix := results.mix) is not None:
        level += (
            f" A learned mix of the layers has {mix.probe[mix.metric].mean():.3f}; its mean layer "
            f"is {mix.expected_layers.mean():.1f}."
        )

    def beats(baseline: np.ndarray) -> bool:
        gain = best.mean > baseline.mean()
        return bool(gain) and differ(best.folds, baseline, len(scores))

    if not beats(by_name["majority"]):
        sentence = (
            f"No layer carries more than chance with {len(best.folds)} folds: the highest score is "
            f"{best.describe()}. {level} A linear classifier cannot read these labels, or there "
            "are too few examples."
        )
        return Advice(best, None, sentence)
    choice = next(s for s in scores if s.mean >= best.mean - best.error - 1e-9)
    reason = "the highest score"
    if choice is not best:
        gain = "needs fewer layers" if choice.layer != best.layer else "has a simpler pooling"
        reason = f"within one standard error of the highest, {best.describe()}, and {gain}"
    sentence = f"Use {choice.describe()}: {reason}.{_doubt(scores, best, choice)} {level}"
    sentence += _selectivity(scores, best, choice)
    if worse := [name for name, folds in by_name.items() if not beats(folds)]:
        sentence += f" No layer is distinguishably better than {worse[0]}."
    elif choice.layer == EMBEDDINGS:
        sentence += _EMBEDDINGS_WIN
    return Advice(best, choice, sentence)


def _selectivity(scores: Sequence[Score], best: Score, choice: Score) -> str:
    """Names the score of the highest selectivity, unless it is named already, and weighs both."""
    peak = max((choice, best, *scores), key=lambda score: round(score.selectivity.mean(), 3))
    if peak is choice or peak is best:
        return ""
    return (
        " Selectivity, what the score exceeds that of random labels by, is "
        f"{choice.selectivity.mean():.3f} there and highest at {layer_name(peak.layer)}, "
        f"{peak.pooling}: {peak.selectivity.mean():.3f}. Weigh the score to predict these labels, "
        "selectivity to say what the layer itself knows."
    )


def _doubt(scores: Sequence[Score], best: Score, choice: Score) -> str:
    """Names the simplest score that chance alone may keep from the best; empty if it is chosen."""
    simplest = next(s for s in scores if s is best or not differ(best.folds, s.folds))
    folds = len(best.folds)
    before = [score is choice for score in scores].index(True)
    if not any(score is simplest for score in scores[:before]):
        return f" Every simpler one is distinguishably lower ({folds} folds)." if before else ""
    return (
        f" With {folds} folds even {simplest.describe()} is not distinguishable from the highest; "
        "more texts would show whether it is as good."
    )
