"""The two forms of attention in `verify`: on a TPU that is made up, with a clock that it moves."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_features.cli.verify import _speeds
from bert_features.config.extract_config import ExtractConfig
from bert_features.runtime import jax as jax_runtime
from bert_features.runtime.base import Started
from bert_features.runtime.tensorflow import TensorFlowRuntime
from bert_features.verify import attention, checks
from bert_features.verify import run as run_module
from bert_features.verify.attention import time_steps
from bert_features.verify.checks import TEXTS
from bert_features.verify.report import Check, Report, Timing
from tests.toy import TOY
from tests.verify.reports import verify_toy


class Chip:
    """Computes one batch after the other; its time is that of the last batch that it has begun."""

    def __init__(self, seconds):
        self.now = 0.0
        self.seconds = seconds
        self.order = []


class Step:
    in_flight = 3

    def __init__(self, chip, form):
        self.chip, self.form, self.started = chip, form, 0

    def __call__(self, batch):
        ids = batch["input_word_ids"]
        assert (ids.dtype, ids.max() < 7, batch["input_mask"].min()) == (np.int32, True, 1)
        self.chip.order.append((self.form, ids.shape))
        self.chip.batch = batch
        seconds = self.chip.seconds[self.form]
        if seconds is None:
            raise RuntimeError("the kernel does not compile")

        def wait():
            self.chip.now += seconds
            return {}

        return Started(wait)


def timings(seconds, lengths, count=1, **packed):
    chip = Chip(seconds)
    steps = {form: Step(chip, form) for form in seconds}
    clock = {"clock": lambda: chip.now}
    return list(time_steps(steps, lengths, devices=count, vocabulary=7, **clock, **packed)), chip


def test_the_time_of_a_batch_by_each_form():
    (short, long), chip = timings({"xla": 0.5, "pallas": 0.25}, [64, 512], count=2)
    assert (short.length, short.rows) == (64, 512)
    assert (long.length, long.rows) == (512, 64)
    for timing in (short, long):
        assert timing.seconds == {"xla": 0.5, "pallas": 0.25}
        assert timing.tokens_per_second("pallas") == 2 * 16384 / 0.25
        assert timing.gain == 2.0
    # One batch of each form before the clock counts, then 20 in each of three rounds.
    assert chip.order.count(("xla", (512, 64))) == 1 + 3 * 20
    assert [form for form, _ in chip.order[:2]] == ["xla", "pallas"]


def test_where_runs_pack_their_rows_packed_rows_are_timed(monkeypatch):
    made, step = [], SimpleNamespace(step=None, weights=[])
    monkeypatch.setattr(attention, "read_weights", lambda checkpoint: None)
    monkeypatch.setattr(attention, "DeviceStep", lambda *given, **named: made.append(named) or step)
    runtime = SimpleNamespace(compile=lambda step, weights: None)
    monkeypatch.setattr(jax_runtime, "JaxRuntime", lambda kind, form: runtime)
    monkeypatch.setattr(attention, "time_steps", lambda *given, **named: [(given, named)])
    devices = SimpleNamespace(count=4)
    extractor = SimpleNamespace(checkpoint=SimpleNamespace(config=TOY), devices=devices)
    positions = TOY.max_position_embeddings
    for packed in (True, False):
        (((steps, lengths), named),) = attention.time_on(extractor, "float32", packed=packed)
        assert (list(steps), named["devices"]) == (["xla", "pallas"], 4)
        assert list(lengths) == ([128] if packed else [positions])
        assert named["packed_positions"] == (positions if packed else None)
    assert [each["packed"] for each in made] == [True, False]


def test_packed_rows_have_several_texts():
    _, chip = timings({"xla": 0.5}, [8], packed_positions=6)
    assert chip.batch["text_numbers"][0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert chip.batch["position_ids"][-1].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    _, chip = timings({"xla": 0.5}, [8], packed_positions=3)
    assert chip.batch["position_ids"][0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_a_form_that_fails_has_no_time():
    ((timing),), _ = timings({"xla": 0.5, "pallas": None}, [64])
    assert timing.seconds == {"xla": 0.5, "pallas": None}
    assert timing.tokens_per_second("pallas") is timing.gain is None


def report(*seconds, outcome="pass"):
    check = Check("attention", "bfloat16", outcome, "", "cosine", 1.0, 0.999)
    found = [
        Timing(n, 16384 // n, dict(zip(("xla", "pallas"), s, strict=True))) for n, s in seconds
    ]
    return Report("minilm", "tpu", 1, "jax", (check,), tuple(found))


def test_the_faster_form_and_how_to_ask_for_it():
    assert _speeds(report((128, (0.016384, 0.032768)), (512, (0.032768, 0.016384)))) == [
        "tokens/s by form of attention:",
        "length        xla     pallas\n   128  1,000,000    500,000\n   512    500,000  1,000,000",
        "pallas is faster for rows of 512 tokens, up to 2.00 times: pass --attention pallas to "
        "extract for them",
        "",
    ]


@pytest.mark.parametrize(
    ("seconds", "outcome", "advice"),
    [
        ((0.1, 0.2), "pass", "xla is faster, and is the default: there is nothing to set"),
        ((0.2, 0.1), "fail", "attention by pallas is wrong here: in extract keep --attention xla"),
        (
            (0.2, None),
            "pass",
            "attention by pallas does not run here: in extract keep",
        ),
    ],
)
def test_where_xla_stays(seconds, outcome, advice):
    assert _speeds(report((512, seconds), outcome=outcome))[-2].startswith(advice)


def test_elsewhere_nothing_is_timed():
    assert _speeds(report()) == []


@pytest.mark.usefixtures("alone")
def test_a_tpu_with_jax_is_timed_in_the_precision_of_runs(toy, monkeypatch):
    timed = []

    def time_on(extractor, precision, *, packed):
        timed.append((precision, packed))
        return iter([Timing(64, 256, {"xla": 0.5, "pallas": 0.25})])

    monkeypatch.setattr(run_module.attention, "time_on", time_on)
    monkeypatch.setattr(run_module, "CHECKS", {})
    assert verify_toy(toy).timings == ()
    monkeypatch.setattr(run_module, "has_both_forms", lambda extractor: True)
    on_tpu = {"auto": "bfloat16", "float32": "float32", "bfloat16": "bfloat16"}
    monkeypatch.setattr(TensorFlowRuntime, "choose_precision", lambda runtime, p: on_tpu[p])
    found = verify_toy(toy, precisions=("float32", "bfloat16"))
    assert timed == [("bfloat16", True)]
    (timing,) = found.as_dict()["timings"]
    assert timing == {"length": 64, "rows": 256, "seconds": {"xla": 0.5, "pallas": 0.25}}
    verify_toy(toy, packing=False)
    assert timed[1] == ("float32", False)


@pytest.mark.parametrize(("mine", "other"), [("auto", "pallas"), ("pallas", "xla")])
def test_the_numbers_of_both_forms_are_compared(monkeypatch, mine, other):
    states = {text: np.full((2, 3, 4), 1.0 + i) for i, text in enumerate(TEXTS)}
    asked = []

    class Extractor:
        def __init__(self, config):
            asked.append(config.attention)

        def __call__(self, texts):
            return [
                SimpleNamespace(features=dict(enumerate(states.get(text, states[TEXTS[0]]))))
                for text in texts
            ]

    monkeypatch.setattr(checks, "FeatureExtractor", Extractor)
    here = SimpleNamespace(
        devices=SimpleNamespace(kind="tpu"),
        preparation=SimpleNamespace(runtime=SimpleNamespace(name="jax"), buckets=(8, 32)),
        config=ExtractConfig.of({"attention": mine}),
    )
    wrong = {TEXTS[1]: 1e-3}
    subject = SimpleNamespace(
        extractor=here,
        compute=lambda *texts: [states.get(t, states[TEXTS[0]]) + wrong.get(t, 0) for t in texts],
    )
    comparison = checks.CHECKS["attention"](subject)
    assert asked == [other]
    assert len(comparison.expected) == len(comparison.received) == 2 * (1 + len(TEXTS))
    assert comparison.measure("deviation") == pytest.approx(1e-3 / (1 + 2.001))
