"""bert-features serve: features over HTTP."""

import contextlib
import functools
import logging
import os
from pathlib import Path
from typing import Annotated, Any

from bert_features.cli.command import command, file_option
from bert_features.cli.logs import is_json, set_up_logging
from bert_features.cli.progress import Heartbeat
from bert_features.cli.settings import takes_fields_of, takes_settings
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import TOKEN, Limits, ServeSettings
from bert_features.errors import ConfigError

logger = logging.getLogger("bert_features.serve")

_SETTINGS = [name for name in ExtractConfig.known() if ExtractConfig.marks(name).served]


@command(
    "serve --port 8000", "serve --checkpoint bert-base-uncased --replicas 2 --token-file token.txt"
)
@takes_settings(*_SETTINGS)
@takes_fields_of(ServeSettings)
@takes_fields_of(Limits, prefix="max_")
def serve(
    settings: ExtractConfig,
    servesettings: dict[str, Any],
    limits: dict[str, Any],
    token_file: Annotated[
        Path | None,
        file_option(
            help="File with the token that requests must have. Default: the environment variable "
            f"{TOKEN}; if it is not set, no token."
        ),
    ] = None,
) -> None:
    """Serves features over HTTP.

    Without options under "Outputs", these are the outputs `embedding`, one vector for each text,
    `last_layer`, one for each token, and `all_layers`, each token at every layer. Such an option
    replaces the first two by one output, `features`; the defaults below are those of this output.

    POST /v1/features gives the outputs by name; POST /v1/embeddings is OpenAI's interface. A page
    at / shows what the model makes of a text, /docs lists all paths. It runs until Ctrl-C or
    SIGTERM, and then still answers the requests that it has begun.
    """
    from bert_features.serving import run

    wanted = ServeSettings.of(token=_token(token_file), limits=Limits(**limits), **servesettings)
    config = run.check_service(settings, wanted)
    if wanted.token_digest is None and not wanted.is_loopback:
        logger.warning("anyone who reaches %s can use the service; it has no token", wanted.url)
    with contextlib.ExitStack() as starting:
        starting.enter_context(Heartbeat("starting the service"))

        def listening() -> None:
            starting.close()
            logger.info("serving %s at %s; Ctrl-C stops", config.checkpoint, wanted.url)

        log = functools.partial(set_up_logging, as_json=is_json())
        run.serve(config, wanted, listening=listening, set_up_logging=log)


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.pop(TOKEN, "") or None  # not for other processes
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"cannot read the token file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the token file {path} is not UTF-8; write the token into a text file"
        ) from error
