"""The search for the largest batch, on made-up chips; and what the compiler says of memory."""

import pytest

from bert_features.tpu.memory import DoesNotFitError, largest_rows, out_of_memory


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("required for HLO temporaries (32.00G) exceeds available HBM (15.75G).", (32, 15.75)),
        ("in memory space hbm. Used 15.76G of 15.75G hbm. Exceeded by 3.03M.", (15.76, 15.75)),
        ("INVALID_ARGUMENT: something else", None),
    ],
)
def test_what_the_compiler_says_of_memory(message, expected):
    got = out_of_memory(message)
    assert got == (expected and pytest.approx([x * 2**30 for x in expected]))


def chip(available, *, bytes_of_row, fixed=0):
    """The memory of a chip on which a batch needs `bytes_of_row` per row; and the rows tried."""
    tried = []

    def memory_of(rows):
        tried.append(rows)
        needed = fixed + rows * bytes_of_row
        if needed > available:
            raise DoesNotFitError(needed, available)
        return needed, available

    return memory_of, tried


@pytest.mark.parametrize("step", [1, 2, 8])
@pytest.mark.parametrize("known", [{"fits": 64}, {"too_many": 100_000}])
def test_the_largest_batch_is_found_to_two_percent(step, known):
    memory_of, tried = chip(1e9, bytes_of_row=1e6, fixed=1e8)  # 900 rows fit
    (rows,) = known.values()
    share = (1e8 + rows * 1e6) / 1e9
    found = largest_rows(memory_of, share=share, step=step, max_rows=1 << 20, **known)
    assert 0.98 * 900 - step <= found <= 900
    assert found % step == 0
    assert len(tried) <= 5


def test_nothing_fits():
    memory_of, tried = chip(1e6, bytes_of_row=1e7)
    assert largest_rows(memory_of, share=100.0, step=2, max_rows=1024, too_many=10) == 0
    assert set(tried) <= {2, 4, 6, 8}


def test_a_small_model_stops_at_the_limit():
    memory_of, tried = chip(1e12, bytes_of_row=1)
    assert largest_rows(memory_of, share=1e-9, step=1, max_rows=4096, fits=16) == 4096
    assert tried == [4096]
