"""Keras gets our layers when it is imported, and other programs' hooks of its import still run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOOK = "import wrapt; wrapt.register_post_import_hook(lambda keras: print('hook'), 'keras')"
SHOW = "import keras; print(*keras.saving.get_custom_objects())"
NAMES = "bert_features>BertFeatures bert_features>BertTextInput\n"
# Is imported for half a second.
KERAS = """
import time, types
time.sleep(0.5)
objects = {}
saving = types.SimpleNamespace(get_custom_objects=lambda: objects)
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (f"{HOOK}\nimport bert_features\n{SHOW}", f"hook\n{NAMES}"),
        (f"import bert_features\n{HOOK}\n{SHOW}", f"hook\n{NAMES}"),
        (f"import keras, bert_features\n{SHOW}", NAMES),
        ("import sys; sys.modules['keras'] = None; import bert_features", ""),
        (
            "import sys, threading\n"
            "threading.Thread(target=lambda: __import__('keras')).start()\n"
            "while 'keras' not in sys.modules: pass\n"
            f"import bert_features\n{SHOW}",
            NAMES,
        ),
    ],
    ids=["hook before", "hook after", "keras before", "blocked", "in another thread"],
)
def test_the_layers_are_registered(tmp_path, program, printed):
    (tmp_path / "keras.py").write_text(KERAS)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (printed, "")
