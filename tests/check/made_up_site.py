"""A folder of packages made up for a test, and the parts of a finding that tests compare."""

import base64
import hashlib
import textwrap

from bert_features.check.packages import installed


class Site:
    """A folder of packages, with the files that pip leaves."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def install(self, name, version, files=None, requires=()):
        record = []
        for path, text in (files or {}).items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record.append(f"{path},sha256={digest.decode().rstrip('=')},{len(text)}\n")
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
        info.joinpath("METADATA").write_text(f"Name: {name}\nVersion: {version}\n{needs}")
        info.joinpath("RECORD").write_text("".join(record))
        return self

    def install_all(self, versions):
        for name, version in versions.items():
            self.install(name, version)
        return self

    def install_tensorflow(self, name, program=""):
        """A build of TensorFlow: the package, and the one file in which builds differ."""
        files = {
            "tensorflow/__init__.py": textwrap.dedent(program),
            "tensorflow/python/platform/build_info.py": f"build = {name!r}\n",
        }
        return self.install(name, "2.20.0", files)

    @property
    def packages(self):
        return installed([str(self.folder)])


def verdict(finding):
    """Status and remedy."""
    return finding.status, finding.remedy


def write(path, text=""):
    """Writes a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
