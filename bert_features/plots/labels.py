"""Labels: texts of users as labels of a chart, and the characters that no font has."""

import html
import logging
import re

logger = logging.getLogger("bert_features")

# It has no meaning, so a font draws a box for it.
_UNASSIGNED = "\U0010fffd"
_MAX_NAMED = 8


def clip(text: str, length: int = 16) -> str:
    """A text on one line of at most `length` characters, without control characters."""
    # Fonts lack them and SVG forbids them.
    clean = "".join(c if c >= " " and c not in "\x7f\ufffe\uffff" else " " for c in text)
    line = " ".join(clean.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def warn_of_boxes(svg: str) -> None:
    """Logs the characters of a picture that no installed font has: they are drawn as boxes."""
    drawn = {c for text in re.findall(r"<text[^>]*>([^<]*)", svg) for c in html.unescape(text)}
    box = _draw(_UNASSIGNED)
    boxes = sorted(c for c in drawn if not c.isascii() and _draw(c) == box)
    if boxes:
        logger.warning(
            "no installed font has %s%s; the picture shows boxes instead: write .svg or .html, or "
            "install a font such as Noto",
            " ".join(boxes[:_MAX_NAMED]),
            " …" if len(boxes) > _MAX_NAMED else "",
        )


def _draw(character: str) -> bytes:
    """The picture of a single character."""
    import vl_convert

    text = f'<text y="18" font-family="sans-serif" font-size="16">{character}</text>'
    start = '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24">'
    return vl_convert.svg_to_png(f"{start}{text}</svg>")
