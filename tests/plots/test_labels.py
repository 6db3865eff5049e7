"""Labels: long and odd texts, every script, characters that no font has."""

import pytest
import vl_convert

from bert_features.plots.labels import clip, warn_of_boxes

NO_FONT_HAS = "\U0010fffe"  # not assigned, and never will be


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb\t c\0", "a b c"), ("x" * 40, "x" * 15 + "…"), ("$5 and $6", "$5 and $6")],
)
def test_labels_are_single_short_lines(text, shown):
    assert clip(text) == shown


def svg_of(*texts):
    rows = [{"text": text} for text in texts]
    encoding = {"y": {"field": "text", "type": "nominal"}}
    return vl_convert.vegalite_to_svg(
        {"data": {"values": rows}, "mark": "bar", "encoding": encoding}
    )


def test_a_character_that_no_font_has_is_reported(caplog):
    warn_of_boxes(svg_of("a", f"b{NO_FONT_HAS}", "é & ü"))
    (record,) = caplog.records
    assert f"no installed font has {NO_FONT_HAS}; the picture shows boxes" in record.getMessage()
