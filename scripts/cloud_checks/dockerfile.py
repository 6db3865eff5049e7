"""Runs the steps of a Dockerfile without Docker, in a new folder.

    python3.12 dockerfile.py configs/cloud/Dockerfile FOLDER

The Python that runs this stands for the base image, and the folder for the root of the image:
absolute paths of the steps are in it. COPY takes what .dockerignore sends. What needs root or the
base image is left out and named. At the end the entry point extracts features on a CPU.
"""

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

CHECKS = (
    ["--version"],
    ["doctor"],
    ["extract", "texts.txt", "--output", "features/", "--runtime", "jax", "--device", "cpu"],
    ["status", "features/"],
)


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction with its arguments, continued lines joined."""
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line]  # type: ignore[misc]


class Image:
    """A folder as the root of an image, and the repository as what Docker is sent.

    Args:
      root: the folder.
      context: the repository.
      ignored: the lines of the .dockerignore.
    """

    def __init__(self, root: Path, context: Path, ignored: list[str]) -> None:
        self.root, self.context = root, context
        self.sent = [line[1:] for line in ignored if line.startswith("!")]
        self.workdir = root
        self.env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(root)}
        self.entrypoint: list[str] = []

    def inside(self, text: str) -> str:
        """A text in which absolute paths are in the folder."""
        return re.sub(r"(?<![\w.}])/(?=\w)", f"{self.root}/", text)

    def step(self, name: str, arguments: str) -> None:
        """Does one instruction as far as it can be done here."""
        print(f"{name} {arguments}")
        if name == "WORKDIR":
            self.workdir = Path(self.inside(arguments))
            self.workdir.mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            self.copy(shlex.split(arguments))
        elif name == "RUN" and not arguments.startswith("useradd "):
            command = self.inside(arguments)
            subprocess.run(["sh", "-ec", command], cwd=self.workdir, env=self.env, check=True)
        elif name == "ENV":
            key, value = self.inside(arguments).split("=", maxsplit=1)
            self.env[key] = value.replace("$PATH", self.env["PATH"])
        elif name == "ENTRYPOINT":
            self.entrypoint = [word.strip('[]", ') for word in arguments.split(",")]
        elif name in ("FROM", "RUN", "USER", "ARG", "CMD"):
            print("  (left out: it needs root or the base image)")
        else:
            raise SystemExit(f"error: {name} is unknown to this script; add it")

    def copy(self, words: list[str]) -> None:
        """Copies files of the repository; stages share one folder, so theirs are there."""
        *sources, target = words
        if sources[0].startswith("--from="):
            assert Path(self.inside(target)).exists(), target
            return
        for source in sources:
            assert any(fnmatch.fnmatch(source, sent) for sent in self.sent), (
                f"{source} is copied, but the .dockerignore does not send it"
            )
            path = self.context / source
            if path.is_dir():
                shutil.copytree(path, self.workdir / target, ignore=shutil.ignore_patterns("*.pyc"))
            else:
                shutil.copy(path, self.workdir / target)


def main() -> None:
    """Runs the steps, then the entry point."""
    dockerfile, root = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    root.mkdir(parents=True)
    ignored = Path(f"{dockerfile}.dockerignore").read_text(encoding="utf-8").splitlines()
    image = Image(root, Path(__file__).resolve().parents[2], ignored)
    for name, arguments in instructions(dockerfile.read_text(encoding="utf-8")):
        image.step(name, arguments)
    (image.workdir / "texts.txt").write_text("The cat sat.\nA bank.\n", encoding="utf-8")
    os.chdir(image.workdir)
    program = shutil.which(image.entrypoint[0], path=image.env["PATH"])
    assert program is not None
    assert Path(program).is_relative_to(root), program
    for arguments in CHECKS:
        print("bert-features", *arguments, flush=True)
        subprocess.run([program, *arguments], env=image.env, check=True)
    print("Every step of the Dockerfile ran, and its entry point extracts features on a CPU")


if __name__ == "__main__":
    main()
