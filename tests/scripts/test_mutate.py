"""The changes that `scripts/mutate.py` draws."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "mutate.py"
MODULE = '''"""1 < 2"""
import logging
logger = logging.getLogger()
LIMIT: int | None = -8
@decorated(9)
def cut(lengths: "1 + 1", é=True):
    logger.info("%s", 1 + 1)
    assert 1 < 2, f"{1 + 1}"
    if not (lengths and é) or "é" not in lengths:
        lengths += 2 ** 3
    return "é" + lengths[0] if 0 < lengths <= LIMIT << 1 else lengths is None
'''
EXPECTED = [
    ("LIMIT: int | None = -8", "LIMIT: int | None =  8"),
    ("LIMIT: int | None = -8", "LIMIT: int | None = -9"),
    ('if not (lengths and é) or "é" not in', 'if not (lengths and é) and "é" not in'),
    ("if not (lengths and é)", "if  (lengths and é)"),
    ("if not (lengths and é)", "if not (lengths or é)"),
    ('or "é" not in lengths', 'or "é" in lengths'),
    ("lengths += 2 ** 3", "lengths -= 2 ** 3"),
    ("lengths += 2 ** 3", "lengths += 3 ** 3"),
    ("lengths += 2 ** 3", "lengths += 2 ** 4"),
    ("if 0 < lengths", "if 0 <= lengths"),
    ("lengths <= LIMIT", "lengths < LIMIT"),
    ("if 0 <", "if 1 <"),
    ("LIMIT << 1", "LIMIT << 2"),
    ("lengths[0]", "lengths[1]"),
    ("lengths is None", "lengths is not None"),
]


def test_operators_and_numbers_change_and_texts_types_and_logs_do_not(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("mutate", SCRIPT)
    mutate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutate)
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(MODULE, encoding="utf-8")
    changes = [change.apply(MODULE.encode()).decode() for change in mutate.find_changes(path)]
    assert sorted(changes) == sorted(MODULE.replace(old, new, 1) for old, new in EXPECTED)
