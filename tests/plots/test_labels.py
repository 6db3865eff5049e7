"""Labels: fonts that have the characters, characters that no font has, long and odd texts."""

import warnings

import pytest

from bert_features.plots import labels
from bert_features.plots.labels import Labels

CHINESE = "\u6771\u4eac"
NO_FONT_HAS = "\U000e01f1"  # not assigned


def test_a_character_that_no_font_has_becomes_a_box_and_is_reported(caplog):
    found = Labels.for_texts(["a", NO_FONT_HAS], keeps_text=False)
    assert found.clip(f"a{NO_FONT_HAS}b") == "a\u25a1b"
    assert f"no installed font has {NO_FONT_HAS}; the picture shows" in caplog.text


def test_where_texts_stay_texts_nothing_is_replaced(caplog):
    found = Labels.for_texts([NO_FONT_HAS], keeps_text=True)
    assert found.clip(NO_FONT_HAS) == NO_FONT_HAS
    assert not caplog.records


def test_another_font_is_taken_for_what_the_first_one_lacks(monkeypatch):
    have = {"DejaVuSans.ttf": set("ab"), "Other.ttf": set(CHINESE)}
    covered = lambda path, characters: next(  # noqa: E731
        (found & characters for name, found in have.items() if path.endswith(name)), set()
    )
    other = type("Entry", (), {"fname": "/fonts/Other.ttf", "name": "Other"})
    monkeypatch.setattr(labels, "_covered", covered)
    monkeypatch.setattr("matplotlib.font_manager.fontManager.ttflist", [other])
    found = Labels.for_texts(["ab", CHINESE], keeps_text=False)
    assert found.fonts == ("DejaVu Sans", "Other")
    assert found.clip(CHINESE) == CHINESE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\t c\0", "a b c"),
        ("x" * 40, "x" * 15 + "…"),
        ("$5 and $6", "$5 and $6"),
    ],
)
def test_labels_are_single_short_lines(text, shown):
    assert Labels(["DejaVu Sans"]).clip(text) == shown


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_no_script_makes_a_picture_fail_or_warn(tmp_path, kind):
    from bert_features.plots.figures import new_figure, put_title, save_figure, styled

    texts = [CHINESE, "\u0645\u0631\u062d\u0628\u0627", "$a$ $b$", "\u0928\u092e\u0938\u094d"]
    texts += ["\U0001f600\U0001f468\u200d\U0001f469"]
    found = Labels.for_texts(texts, keeps_text=kind == "svg")
    with warnings.catch_warnings(), styled(found):
        warnings.simplefilter("error")
        figure = new_figure(4, 3)
        figure.subplots().set_xticks(range(len(texts)), found.clip_all(texts))
        put_title(figure, found.clip("".join(texts), 40), "model")
        save_figure(figure, tmp_path / "new", kind)
    assert (tmp_path / "new").stat().st_size > 1000
