"""Writes the files of torch.save that tests/checkpoints/weights/test_pickle_weights.py reads.

    python -m venv torch_files
    torch_files/bin/pip install torch==2.13.0 safetensors
    torch_files/bin/python scripts/make_torch_files.py

The same state dict in both layouts and with two protocols of pickle, once among the values of a
training loop, and as safetensors. tests/data/README.md describes them. Nothing of this package is
used.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "torch_files"


def main() -> None:
    """Writes the files."""
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    state = torch.nn.Linear(2, 3).state_dict()  # an OrderedDict with the attribute _metadata
    state |= {
        "transposed": base.t(),
        "slice": base[1:3, 2:5],
        "tied": state["weight"],
        "trained": torch.nn.Parameter(torch.ones(3)),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(7),
        "bfloat16": torch.arange(5).to(torch.bfloat16),
        "float16": torch.arange(5).half() / 3,
        "float64": torch.ones(2, dtype=torch.float64) / 3,
        "int32": torch.tensor([-1, 2], dtype=torch.int32),
        "uint8": torch.tensor([1, 2], dtype=torch.uint8),
        "bool": torch.tensor([True, False]),
    }
    loop = {"epoch": 3, "rate": 0.5, "optimizer": {"state": {0: {"step": state["scalar"]}}}}
    OUT.mkdir(exist_ok=True)
    torch.save(state, OUT / "zip.bin")
    torch.save(state, OUT / "zip_protocol_4.bin", pickle_protocol=4)
    torch.save(state, OUT / "older.bin", _use_new_zipfile_serialization=False)
    torch.save(loop | {"model": state}, OUT / "loop.bin")
    save_file({name: t.contiguous().clone() for name, t in state.items()}, OUT / "same.safetensors")


if __name__ == "__main__":
    main()
