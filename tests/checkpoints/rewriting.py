"""Changes in a safetensors file."""

from safetensors.numpy import load_file, save_file


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(change(tensors), path)
    return folder
