"""Runs on Kaggle's TPU v5e-8: extracts features on its eight chips and publishes them as a dataset.

`run.sh` beside this file sends it to Kaggle, with your name instead of USERNAME. Nobody has run it
there yet; `scripts/check_cloud.sh kaggle` says what was checked.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

# A published name or an address (docs/checkpoints.md).
CHECKPOINT = "bert-base-uncased"
RESULT = "USERNAME/bert-features-result"
# A secret of the notebook with an API token, if its own token may not write datasets.
SECRET = "KAGGLE_API_TOKEN"

INPUT = Path("/kaggle/input")
WORKING = Path("/kaggle/working")  # what is here at the end is the output of the notebook
SCRATCH = Path("/tmp/bert_features")


def install(code: Path, scratch: Path) -> Path:
    """Makes an environment beside the image's, which has other versions; returns its programs."""
    programs = scratch / "environment" / "bin"
    subprocess.run([sys.executable, "-m", "venv", programs.parent], check=True)
    (wheel,) = code.glob("bert_features-*.whl")
    pip = [programs / "pip", "install", "--quiet", "--constraint", code / "constraints.txt"]
    subprocess.run([*pip, f"{wheel}[demo,jax]", "jax[tpu]", "kaggle==2.2.4", "six"], check=True)
    return programs


def extract(programs: Path, code: Path, output: Path) -> None:
    """Writes features of all texts into a folder of shards; one process drives all eight chips."""
    texts = sorted(f for f in code.iterdir() if f.suffix != ".whl" and f.name != "constraints.txt")
    subprocess.run([programs / "bert-features", "doctor"], check=False)  # for the log
    command = [programs / "bert-features", "extract", *texts, "--output", f"{output}/"]
    settings = ["--checkpoint", CHECKPOINT, "--format", "parquet"]
    subprocess.run([*command, *settings, "--runtime", "jax", "--device", "tpu"], check=True)


def publish(programs: Path, output: Path, scratch: Path) -> bool:
    """Makes the features a private dataset, or a new version of it; whether Kaggle took it.

    They are the output of the notebook as well, so a refusal loses nothing.
    """
    folder = scratch / "result"
    folder.mkdir(parents=True)
    for file in output.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    about = {"id": RESULT, "title": RESULT.partition("/")[2], "licenses": [{"name": "other"}]}
    (folder / "dataset-metadata.json").write_text(json.dumps(about))

    def kaggle(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [programs / "kaggle", "datasets", *words]
        return subprocess.run(command, env=environment(), text=True, stdout=subprocess.PIPE)

    known = kaggle("status", RESULT).returncode == 0
    what = ["version", "--message", "computed again"] if known else ["create"]
    answer = kaggle(*what, "--path", folder, "--keep-tabular", "--quiet").stdout
    print(answer)
    taken = "is being created" in answer  # the client's status is 0 even if Kaggle refuses
    if not taken:
        print("Kaggle did not take the dataset; the features are in the output of this notebook")
    return taken


def environment() -> dict[str, str]:
    """The variables of the kaggle client, with the token of the secret if there is one."""
    env = dict(os.environ)
    try:
        from kaggle_secrets import UserSecretsClient  # of Kaggle's image

        env["KAGGLE_API_TOKEN"] = UserSecretsClient().get_secret(SECRET)
    except Exception:
        return env  # the notebook's own token
    env.pop("KAGGLE_API_V1_TOKEN", None)  # it would come first
    return env


def main() -> None:
    """Installs, extracts and publishes."""
    code = next(INPUT.rglob("bert_features-*.whl")).parent
    output = WORKING / "features"
    programs = install(code, SCRATCH)
    extract(programs, code, output)
    publish(programs, output, SCRATCH)


if __name__ == "__main__":
    main()
