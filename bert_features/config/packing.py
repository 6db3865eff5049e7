"""Packing: several texts share a row of a batch, one after the other.

Both sides use these names: `batches` lays the rows out, and the device step in `encoder` keeps the
texts of a row apart.
"""

# Texts of a row at most; an output of level `sequence` has this many vectors for each row.
MAX_PACKED_TEXTS = 24
# Parts of a packed batch, int32 [B, S]: the number of each token's text in its row, from 1, or 0
# for padding; and the place of each token in its text, from 0. Texts are in ascending order, and
# padding is at the end.
TEXT_NUMBERS = "text_numbers"
POSITION_IDS = "position_ids"
# Another part, int32 [B, S], for scores: the id of the masked piece that is scored, else -1.
TARGET_IDS = "target_ids"
# Further parts, int32 [B, S], for spans: the first token of the k-th span of a row, and one past
# its last, as places in the row, or -1 for none. The spans of a text in a packed row begin at the
# place where its tokens do.
SPAN_BOUNDS = ("span_begins", "span_ends")
# Columns of the tokens of a megabatch for late interaction, int32 [T]: 1 where other tokens attend
# to a token, and 1 where it has a vector.
ATTENDED, SCORED = "attended", "scored"
