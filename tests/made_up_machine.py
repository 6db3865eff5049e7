"""A machine made up for a test: its PCI devices, its device files, the wheels it has."""

from importlib import metadata
from pathlib import Path

import pytest

from bert_features.machine import hardware

V5E, V4 = ("0x1ae0", "0x0063", "0x120000"), ("0x1ae0", "0x005e", "0x120000")
# Of Google's too, in its virtual machines: a network card, a disk.
GVNIC, NVME = ("0x1ae0", "0x0042", "0x020000"), ("0x1ae0", "0x001f", "0x010802")
H100, ITS_SOUND = ("0x10de", "0x2330", "0x030200"), ("0x10de", "0x22bd", "0x040300")
VIRTIO = ("0x1af4", "0x1041", "0x020000")


def move_to(
    monkeypatch: pytest.MonkeyPatch,
    root: Path,
    *pci: tuple[str, str, str],
    files: tuple[str, ...] = (),
) -> Path:
    """Looks at a file system with these PCI devices (vendor, device, class) and device files."""
    for i, values in enumerate(pci):
        folder = root / f"sys/bus/pci/devices/0000:00:{i:02x}.0"
        folder.mkdir(parents=True)
        for name, value in zip(("vendor", "device", "class"), values, strict=True):
            (folder / name).write_text(f"{value}\n")
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(hardware, "ROOT", root)
    return root


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Makes these the only distributions, `_` for `-` in their names."""

    def version(package: str) -> str:
        try:
            return versions[package.replace("-", "_")]
        except KeyError:
            raise metadata.PackageNotFoundError(package) from None

    monkeypatch.setattr(metadata, "version", version)
