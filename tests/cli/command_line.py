"""Runs the command line: in this process, or as the console script in a process of its own."""

import os
import subprocess
import sys

from typer.testing import CliRunner

from bert_features.cli import app

SMALL = ["--uncased", "--max-seq-length", "16", "--batch-size", "8"]


def run(*arguments, stdin=None):
    """Runs a command in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def program(*arguments, **options):
    """Starts the console script in a process of its own."""
    command = [sys.executable, "-m", "bert_features", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_CPP")}
    options = {"stdin": subprocess.DEVNULL, "text": True, "env": environment} | options
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
