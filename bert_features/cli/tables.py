"""Tables on the terminal: columns as wide as their longest cell, nothing cut, plain where piped."""

import io
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Union

from bert_features.errors import printable

if TYPE_CHECKING:
    from rich.text import Text

_WIDEST = 100_000  # characters; rich would cut or wrap cells at the width of the terminal


def table(
    rows: Sequence[Sequence[Union[str, "Text"]]],
    *,
    head: Sequence[str] = (),
    right: Collection[int] = (),
    widths: Sequence[int] = (),
) -> str:
    """A table as text, without a line break at its end.

    Args:
      rows: the cells of each row.
      head: the names of the columns, if they have any.
      right: the columns whose cells are numbers.
      widths: least widths of the first columns, so that tables with other rows fit this one.
    """
    from rich.console import Console
    from rich.table import Table

    made = Table(box=None, show_header=bool(head), pad_edge=False, padding=(0, 2, 0, 0))
    for column in range(len(rows[0]) if rows else len(head)):
        made.add_column(
            head[column] if head else "",
            justify="right" if column in right else "left",
            min_width=widths[column] if column < len(widths) else None,
            no_wrap=True,
        )
    for row in rows:
        made.add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in row))
    text = io.StringIO()
    console = Console(
        file=text,
        width=_WIDEST,
        force_terminal=sys.stdout.isatty(),
        markup=False,
        highlight=False,
        emoji=False,
    )
    console.print(made)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
