"""Labels: texts of users as labels of a picture, in fonts that have their characters."""

import logging
import unicodedata
from collections.abc import Iterable, Sequence

logger = logging.getLogger("bert_features")

_FIRST_FONT = "DejaVu Sans"  # matplotlib brings it
# Stands for a character that no installed font has.
_BOX = "\u25a1"
_MAX_NAMED = 8
# Format characters that fonts need not have: joiners, direction marks, variation selectors.
_INVISIBLE = {"Cf", "Mn", "Me"}


class Labels:
    """Prepares texts for a picture.

    Attributes:
      fonts: the font families to draw with, the first choice first.
    """

    def __init__(self, fonts: Sequence[str], missing: frozenset[str] = frozenset()) -> None:
        self.fonts = tuple(fonts)
        self._missing = missing

    @classmethod
    def for_texts(cls, texts: Iterable[str], *, keeps_text: bool) -> "Labels":
        """Chooses fonts for texts; logs the characters that no installed font has.

        Args:
          texts: all texts of a picture.
          keeps_text: whether the picture keeps texts as texts, so that whatever shows it brings
            the fonts.
        """
        characters = {c for text in texts for c in _clean(text) if not c.isspace()}
        fonts, missing = _choose_fonts(characters)
        if keeps_text or not missing:
            return cls(fonts)
        named = " ".join(sorted(missing)[:_MAX_NAMED])
        logger.warning(
            "no installed font has %s%s; the picture shows %s instead: write .svg or .html, or "
            "install a font such as Noto",
            named,
            " …" if len(missing) > _MAX_NAMED else "",
            _BOX,
        )
        return cls(fonts, frozenset(missing))

    def clip(self, text: str, length: int = 16) -> str:
        """A text on one line of at most `length` characters."""
        line = " ".join(_clean(text).split())
        shown = "".join(_BOX if c in self._missing else c for c in line)
        return shown if len(shown) <= length else shown[: length - 1].rstrip() + "…"

    def clip_all(self, texts: Iterable[str], length: int = 16) -> list[str]:
        """Each text as `clip` gives it."""
        return [self.clip(text, length) for text in texts]


def _clean(text: str) -> str:
    """The text without control characters, which fonts lack and SVG forbids."""
    return "".join(c if c >= " " and c not in "\x7f\ufffe\uffff" else " " for c in text)


def _choose_fonts(characters: set[str]) -> tuple[list[str], set[str]]:
    """The families that have the characters, and the characters that none has."""
    from matplotlib import font_manager

    fonts, left = [_FIRST_FONT], set(characters)
    left -= _covered(font_manager.findfont(_FIRST_FONT), left)
    for entry in font_manager.fontManager.ttflist if left else ():
        found = _covered(entry.fname, left) if entry.name not in fonts else set()
        if found:
            fonts.append(entry.name)
            left -= found
        if not left:
            break
    return fonts, {c for c in left if unicodedata.category(c) not in _INVISIBLE}


def _covered(path: str, characters: set[str]) -> set[str]:
    from matplotlib.ft2font import FT2Font

    if "LastResort" in path:  # it has a box for every character
        return set()
    try:
        known = FT2Font(path).get_charmap()
    except (OSError, RuntimeError):  # a font that was removed, or has only bitmaps
        return set()
    return {character for character in characters if ord(character) in known}
