"""Recipes and canaries: right by other ways to the same vectors, and what each change does."""

import json
import math
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_features import ExtractConfig, FeatureExtractor
from bert_features.config.features import OutputSpec
from bert_features.config.recipe import Recipe
from bert_features.errors import OutputError
from bert_features.extraction.canaries import _TEXTS
from bert_features.formats.canaries import _stored, check_numbers, compare_recipes, distance
from bert_features.formats.records import FeatureBatch
from bert_features.formats.small_vectors import quantize, restore
from tests import multi_vector, sentence_dense, sparse_encoder
from tests.recipes import make_recipe
from tests.reference.canaries import order, third

shares_steps = pytest.mark.usefixtures("kept_steps")

EXAMPLES = [a if b is None else (a, b) for a, b in _TEXTS]
TOY_SETTINGS = {"do_lower_case": True, "max_seq_length": 16, "layers": (-1,)}


def make(toy, **settings):
    return FeatureExtractor(ExtractConfig.of({"checkpoint": str(toy), **TOY_SETTINGS, **settings}))


@shares_steps
@pytest.mark.parametrize(
    "settings",
    [
        {"layers": ("embeddings", 0)},
        {"level": "word"},
        {"level": "sequence", "pooling": "cls+mean", "normalize": True},
        {"level": "sequence", "dtype": "binary"},
        {"level": "span", "spans": "4/1"},
        {"kind": "attention", "level": "word", "heads": (0, 1)},
        {"long_text": "window", "max_seq_length": 8, "prompt": "a b "},
        {"long_text": "error", "max_seq_length": 3},
        {"precision": "bfloat16"},
    ],
    ids=str,
)
def test_canaries_are_the_third_vectors_of_the_texts(toy, settings):
    extractor = make(toy, **settings)
    fits = settings.get("long_text") != "error"
    others = settings | ({} if fits else {"long_text": "truncate"})
    small = {"dtype": "float32"} if "dtype" in settings else {}
    plain = make(toy, **(others | small)) if small or not fits else extractor
    # Whatever the rule, the span is the whole text.
    spans = [[(0, len(a))] for a, _ in _TEXTS] if settings.get("level") == "span" else None
    records = plain(EXAMPLES, spans=spans)
    for output in extractor.outputs:
        wanted = np.array([third(record.features[output.name], output) for record in records])
        got = extractor.canaries[output.name]
        assert got.shape == (8, output.width)
        tolerance = 2e-2 if settings.get("precision") == "bfloat16" else 1e-5
        np.testing.assert_allclose(got, wanted[:, order(output.width)], rtol=0, atol=tolerance)


@pytest.mark.slow
def test_a_wide_vector_is_kept_in_part_which_fewer_features_only_continue(minilm_dir):
    """With more features each has fewer values, which are the first of those of one feature."""
    one = FeatureExtractor.from_checkpoint(minilm_dir, layers=(-1,))
    all_layers = FeatureExtractor.from_checkpoint(minilm_dir, layers="all")
    few, many = all_layers.canaries["layer_output_5"], one.canaries["layer_output_0"]
    assert few.shape == (8, 1024 // 6)
    assert many.shape == (8, 384)
    np.testing.assert_allclose(few, many[:, : few.shape[1]], rtol=0, atol=1e-5)
    (record,) = one(EXAMPLES[:1])
    wanted = record.features["layer_output_0"][2, order(384)]
    np.testing.assert_allclose(many[0], wanted, rtol=0, atol=1e-5)


def test_kinds_with_units_of_their_own(tmp_path):
    folder = sparse_encoder.write("splade", tmp_path / "splade")
    sparse = FeatureExtractor.from_checkpoint(folder, kind="sparse")
    weights = [record.features["sparse"] for record in sparse(EXAMPLES)]
    wanted = [[w[min(2, len(w) - 1), 0]] if len(w) else [0] for w in weights]
    np.testing.assert_allclose(sparse.canaries["sparse"], wanted, rtol=0, atol=1e-5)
    folder = multi_vector.write("classic", tmp_path / "colbert")
    late = FeatureExtractor.from_checkpoint(folder, **multi_vector.KIND)
    vectors = [record.features["multi_vector"] for record in late(EXAMPLES)]
    got = late.canaries["multi_vector"]
    wanted = np.array([v[min(2, len(v) - 1)] for v in vectors])[:, order(8)]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)
    masked = {"kind": "masked_lm", "top_k": 4}
    likely = FeatureExtractor.from_checkpoint(str(sparse_encoder.WEIGHTS), **masked)
    (name,) = likely.recipe.outputs  # the ids have none
    assert likely.canaries[name].shape == (8, 4)


@pytest.mark.slow
def test_a_default_is_the_value_that_it_stands_for(tmp_path):
    """A setting that is written out with the value of the default changes nothing."""
    folder = sparse_encoder.write("splade", tmp_path / "splade")
    for kind, top_k in (("sparse", 17), ("masked_lm", 5)):
        first, *others = [
            FeatureExtractor.from_checkpoint(folder, kind=kind, **settings).recipe
            for settings in ({}, {"top_k": top_k}, {"top_k": 3})
        ]
        same, other = (compare_recipes(first, recipe, f"{kind}")[0] for recipe in others)
        assert str(same) == "same: equal to 1e-5"
        assert re.search(r"max_units \d+ and 3$|width 5 and 3", str(other))


def test_some_outputs_have_canaries_of_their_own(toy):
    extractor = make(toy, layers=(-1, -2))
    both = extractor.canaries
    assert extractor.with_outputs(["layer_output_1"]).canaries.keys() == {"layer_output_1"}
    assert extractor.canaries is both


# What is changed, one at a time: a setting, or a file of the checkpoint, with what the comparison
# says; an empty text where the change has no effect. `test_recipe` has each setting of an output.
WORD = {"level": "word"}
MEAN = {"level": "sequence"}
SETTINGS = [
    ({}, {"layers": (-2,)}, "other: layers [-1] and [-2]"),
    ({}, {"layers": ("embeddings",)}, "other: layers [-1] and ['embeddings']"),
    ({}, {"layers": (2,)}, ""),  # the last of three, by its other number
    ({}, {"layers": (-1, -2), "combine": "sum"}, "combine 'none' and 'sum'; layers [-1] and"),
    ({}, MEAN, "level 'token' and 'sequence'; pooling 'none' and 'mean'"),
    (MEAN, {"dim": 4}, "width 8 and 4"),
    (WORD, {"word_split": "whitespace"}, "word_split 'bert' and 'whitespace'"),
    ({}, {"max_seq_length": 12}, "max_seq_length 16 and 12"),
    ({}, {"long_text": "tail"}, "long_text 'truncate' and 'tail'"),
    ({"long_text": "window"}, {"stride": 3}, "stride 7 and 3"),
    ({"long_text": "window"}, {"stride": 7}, ""),
    ({}, {"long_text": "error"}, ""),
    ({}, {"prompt": "a "}, "prompt None and 'a '"),
    ({}, {"do_lower_case": False}, "do_lower_case True and False"),
    ({}, {"hidden_act": "gelu_erf"}, "hidden_act 'gelu_tanh' and 'gelu_erf'"),
    ({}, {"kind": "attention"}, "kind 'layers' and 'attention'"),
    ({}, {"dtype": "float16"}, "rounded: cosine at least 0.99999"),
    ({}, {"dtype": "bfloat16"}, "rounded: cosine at least 0.99"),
    (MEAN, {"dtype": "binary"}, "rounded: cosine at least 0."),
    ({}, {"precision": "bfloat16"}, "rounded: cosine at least 0.99"),
    ({}, {"batch_size": 3}, ""),
    ({}, {"batch_tokens": 999}, ""),
    ({}, {"buckets": (8, 16)}, ""),
    ({}, {"dedupe": True}, ""),
    ({}, {"packing": True}, ""),
    ({}, {"buffer_mb": 7}, ""),
]


@shares_steps
@pytest.mark.parametrize(("common", "change", "answer"), SETTINGS, ids=str)
def test_each_setting_that_changes_vectors_is_named(toy_of_unknown_casing, common, change, answer):
    before, after = (
        make(toy_of_unknown_casing, **settings).recipe for settings in (common, common | change)
    )
    (found,) = compare_recipes(before, after, "=".join((*before.outputs, *after.outputs)))
    assert (answer or "same: equal to 1e-5") in str(found)
    assert found.may_be_compared is (not str(found).startswith("other: "))


def flip_last_bit(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    # The least change of the last weight of a tensor.
    values = weights["embeddings.word_embeddings.weight"].copy()
    values.reshape(-1).view(np.uint32)[-1] ^= 1
    weights["embeddings.word_embeddings.weight"] = values
    save_file(weights, path, metadata={"format": "pt"})


def edit(name, **values):
    def change(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def edit_pieces(folder):
    """Two pieces of the vocabulary in each other's place."""
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    pieces = values["model"]["vocab"]
    pieces["the"], pieces["a"] = pieces["a"], pieces["the"]
    path.write_text(json.dumps(values))


def edit_normalizer(**rules):
    def change(folder):
        path = folder / "tokenizer.json"
        values = json.loads(path.read_text())
        values["normalizer"] |= rules
        path.write_text(json.dumps(values))

    return change


def scale_dense(folder):
    path = folder / "2_Dense" / "model.safetensors"
    weights = {name: values * np.float32(2) for name, values in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})


DENSE = (sentence_dense, "two", {"level": "sequence", "pooling": "auto"})
LATE = (multi_vector, "classic", multi_vector.KIND)
STANFORD = (multi_vector, "stanford", multi_vector.KIND)
SPARSE = (sparse_encoder, "splade", {"kind": "sparse"})
IDLE = "same: equal to 1e-5"
FILES = [
    (DENSE, flip_last_bit, r"^other: checkpoint \w+… and \w+… \(their canaries agree\)"),
    (DENSE, edit_pieces, r"^other: vocabulary\.sha256 \w+… and \w+…"),
    (DENSE, edit_normalizer(strip_accents=False), r"vocabulary\.(rules|sha256)"),
    (DENSE, edit("config.json", layer_norm_eps=1e-3), "layer_norm_eps 1e-12 and 0.001"),
    (DENSE, edit("config.json", hidden_dropout_prob=0.5), IDLE),
    (
        DENSE,
        edit("config_sentence_transformers.json", default_prompt_name="a", prompts={"a": "the "}),
        "prompt None and 'the '",
    ),
    (DENSE, edit("1_Pooling/config.json", pooling_mode=["mean", "max"]), "pooling 'cls.max' and"),
    (DENSE, scale_dense, r"^other: head \w+… and \w+… \(the canaries differ by "),
    (
        DENSE,
        edit("2_Dense/config.json", activation_function="torch.nn.modules.activation.Tanh"),
        r"other: modules\[0\]\.activation 'gelu_erf' and 'tanh'$",
    ),
    (
        LATE,
        edit("2_MultiVectorMask/config.json", skiplist_words=["!"]),
        r"other: sides\.document\.skip_ids \[.*\] and \[\]$",
    ),
    (
        STANFORD,
        edit("artifact.metadata", attend_to_mask_tokens=False),
        r": sides\.query\.fill_attended True and False \(of queries alone\)$",
    ),
    (
        STANFORD,
        edit("artifact.metadata", query_maxlen=10),
        r": (sides\.query\.\w+ \d+ and 10 \(of queries alone\)(; )?){2}$",
    ),
    (
        SPARSE,
        edit("1_SpladePooling/config.json", pooling_strategy="sum"),
        "pooling 'max.*' and 'sum",
    ),
]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """The recipe of a case of `FILES` without a change."""
    recipes = {}

    def recipe(case):
        module, name, settings = case
        key = module, name, str(settings)
        if key not in recipes:
            folder = module.write(name, tmp_path_factory.mktemp("unchanged") / name)
            recipes[key] = FeatureExtractor.from_checkpoint(folder, **settings).recipe
        return recipes[key]

    return recipe


@pytest.mark.parametrize(
    ("case", "change", "answer"), FILES, ids=lambda value: getattr(value, "__name__", None)
)
def test_each_change_of_a_checkpoint_is_named(tmp_path, unchanged, case, change, answer):
    module, name, settings = case
    folder = module.write(name, tmp_path / "changed")
    change(folder)
    recipe = FeatureExtractor.from_checkpoint(folder, **settings).recipe
    (found,) = compare_recipes(unchanged(case), recipe)
    assert re.search(answer, str(found)), found


SOME = OutputSpec("some", (-1,), "none", 40, "float32", "sequence", "mean", states=(3,))
RNG = np.random.default_rng(3)
# What jaxlib 0.10.2 gave instead of 1,073,741,824 (jax-ml/jax#39103).
FAULT = 1065369600 / 1073741824


def facts(values=None, *outputs, precision="float32", numpy="2.0"):
    """A recipe of outputs, by default SOME, whose canaries, float32 [8, 40], are `values`."""
    return make_recipe(
        *(outputs or (SOME,)),
        versions={"numpy": numpy},
        arithmetic={"precision": precision},
        canaries={} if values is None else {"some": np.asarray(values, np.float32)},
    )


def compare(a, b):
    (found,) = compare_recipes(replace(a, name="a"), replace(b, name="b"))
    return found


def test_a_version_is_named_where_numbers_differ():
    values = RNG.normal(size=(8, 40))
    same = compare(facts(values), facts(values, numpy="2.1"))
    assert (same.verdict, same.differences) == ("same", ("numpy '2.0' and '2.1'",))
    other = compare(facts(values), facts(-values, numpy="2.1"))
    assert str(other) == (
        "other: other numbers by the same recipe (the canaries differ by 2.0e+00, cosine "
        "-1.000000); numpy '2.0' and '2.1'"
    )


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda v: v + 1e-6, "same"),
        (lambda v: v * (1 + 3e-6), "same"),
        (lambda v: v + 3e-5 * np.abs(v).max(), "rounded"),
        (lambda v: v * (1 + 9e-4), "rounded"),
        (lambda v: v * FAULT, "other"),
        (lambda v: v * 1.1, "other"),
        (lambda v: np.roll(v, 1, axis=1), "other"),
        (lambda v: np.where(np.arange(8)[:, None] == 5, -v, v), "other"),
        (lambda v: np.where(v == v.max(), np.nan, v), "other"),
    ],
)
def test_numbers_that_changed_without_a_setting(change, verdict):
    values = RNG.normal(size=(8, 40))
    assert compare(facts(values), facts(change(values))).verdict == verdict
    if verdict == "same":
        check_numbers(facts(values), facts(change(values)))
    else:
        with pytest.raises(OutputError, match="accept_new_numbers"):
            check_numbers(facts(values), facts(change(values)))
    rough = facts(change(values), precision="bfloat16")
    if compare(facts(values), rough).may_be_compared:
        check_numbers(facts(values, precision="bfloat16"), rough)
    else:
        with pytest.raises(OutputError, match="the canaries differ by"):
            check_numbers(facts(values, precision="bfloat16"), rough)


def test_where_no_setting_differs_the_numbers_are_the_reason():
    values = RNG.normal(size=(8, 40))
    drift = compare(facts(values), facts(values * (1 + 3e-5)))
    assert str(drift) == (
        "rounded: cosine at least 0.999999 on the canaries (the canaries differ by 3.0e-05, "
        "cosine 1.000000)"
    )
    codes = [
        replace(SOME, dtype="int8", scale=((-least,) * 40, (3.0,) * 40)) for least in (2.0, 3.0)
    ]
    found = compare(*(facts(values, each) for each in codes))
    assert found.differences == ("another scale",)
    old = compare(facts(None, codes[0]), facts(values))
    assert str(old).endswith("number was compared: a has no canaries; dtype 'int8' and 'float32'")


def test_a_float16_output_may_differ_in_its_last_place():
    half, values = replace(SOME, dtype="float16"), RNG.normal(size=(8, 40)).astype(np.float16)
    before = facts(values.astype(np.float32), half)
    for factor, is_refused in ((1 + 2**-11, False), (FAULT, True)):
        now = facts((values * np.float32(factor)).astype(np.float16), half)
        if is_refused:
            with pytest.raises(OutputError, match="other numbers of 'some'"):
                check_numbers(before, now)
        else:
            check_numbers(before, now)


def test_distances_are_those_of_a_plain_loop():
    a, b = RNG.normal(size=(2, 8, 7)) * np.array([1, 30, 0.01, 1, 1, 1, 1, 1])[:, None]
    a[3] = b[3] = 0
    a[4], a[5, 2] = 0, np.nan
    b[5, 2] = np.nan
    found = distance(a.astype(np.float32), b.astype(np.float32))
    cosines, differences = [], []
    for x, y in zip(a.astype(np.float32), b.astype(np.float32), strict=True):
        x, y = (np.nan_to_num(each.astype(np.float64)) for each in (x, y))
        differences.append(max(abs(x - y)) / max(1, max(abs(x))))
        norms = math.sqrt(sum(x * x)) * math.sqrt(sum(y * y))
        cosines.append(sum(x * y) / norms if norms else float((x == y).all()))
    assert found.difference == pytest.approx(max(differences))
    assert found.cosine == pytest.approx(min(cosines))
    b[5, 3] = np.inf
    assert distance(a, b) == (-1.0, np.inf)
    # Fewer rows and columns are the first; single numbers are one vector.
    assert distance(a[:3, :4], b) == distance(a[:3, :4], b[:3, :4])
    numbers = np.array([[1.0], [2.0], [-1.0]]), np.array([[1.0], [-2.0], [1.0]])
    assert distance(*numbers).cosine == pytest.approx(-4 / 6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "binary"])
def test_canaries_in_a_dtype_are_those_of_the_files(dtype):
    values = RNG.normal(size=(8, 40)).astype(np.float32)
    places = order(40)
    scale = tuple(tuple(row.tolist()) for row in (values[3:].min(0), values[3:].max(0)))
    feature = replace(SOME, dtype=dtype, scale=scale if dtype == "int8" else ())
    recipe = facts(values[:, places], feature)
    if dtype in ("int8", "binary"):
        batch = FeatureBatch(np.arange(8), {"some": values})
        wanted = restore(quantize(batch, [feature]).features["some"], feature)
    else:
        wanted = values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    np.testing.assert_allclose(
        _stored(recipe, "some"), wanted[:, places].astype(np.float32), atol=1e-6
    )
    found = compare(facts(values[:, places]), recipe)
    assert found.verdict == "rounded"
    assert found.differences == (f"dtype 'float32' and '{dtype}'",)


def test_outputs_are_compared_by_their_names_or_else_those_with_the_same_recipe(caplog):
    last, first = SOME, replace(SOME, layers=(0,))

    def recipe(name, *outputs):
        return replace(facts(None, *outputs), name=name)

    a = recipe("a", last, replace(first, name="first"))
    assert [c.feature for c in compare_recipes(a, a)] == ["some", "first"]
    assert [c.feature for c in compare_recipes(a, a, "first")] == ["first"]
    one = recipe("one", replace(first, name="other"))
    assert [(c.feature, c.other) for c in compare_recipes(one, a)] == [("other", "first")]
    assert [(c.feature, c.other) for c in compare_recipes(a, one)] == [("first", "other")]
    two = recipe("two", replace(SOME, layers=(1,), name="x"))
    message = "the two have no feature of the same name or recipe; a has some, first, and two has x"
    with pytest.raises(OutputError, match=message):
        compare_recipes(a, two)
    with pytest.raises(OutputError, match="no feature 'absent'"):
        compare_recipes(a, a, "absent")
    (named,) = compare_recipes(a, two, "first=x")
    assert (named.feature, named.other, named.verdict) == ("first", "x", "other")
    odd = recipe("odd", replace(SOME, name="a=b"))
    assert [c.feature for c in compare_recipes(odd, odd, "a=b")] == ["a=b"]
    caplog.set_level("INFO", "bert_features")
    three = recipe("three", last, replace(first, name="x"))
    assert len(compare_recipes(a, three)) == 1
    assert "not compared, as one side alone has them: first, x" in caplog.text


def test_without_canaries_the_answer_says_that_no_number_was_compared():
    old, new = facts(), facts(RNG.normal(size=(8, 40)))
    found = compare(old, new)
    assert found.may_be_compared
    assert str(found) == "same by recipe; no number was compared: a has no canaries"
    assert str(compare(old, old)).endswith("a and b have no canaries")


def test_canaries_come_back_from_json_as_they_were():
    values = RNG.normal(size=(8, 40)).astype(np.float32)
    values[0, :3] = np.nan, np.inf, np.float32(1e-45)
    before = facts(values)
    after = Recipe.from_json("a", json.loads(json.dumps(before.to_json())))
    found = after.canaries["some"]
    assert (found.dtype, found.shape) == (np.float32, (8, 40))
    assert found.tobytes() == values.tobytes()
    assert after == before


@pytest.mark.parametrize("text", ["", "AAAA", "a", "AAAAAA==", ["AAAAAA=="] * 8, None], ids=str)
def test_damaged_canaries_are_one_clear_error(text):
    with pytest.raises(OutputError, match="a does not record"):
        Recipe.from_json("a", facts().to_json() | {"canaries": {"some": text}})
