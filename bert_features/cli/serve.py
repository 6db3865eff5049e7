"""bert-features serve: features over HTTP."""

import contextlib
import functools
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from bert_features.cli.command import command
from bert_features.cli.help import LIMITS
from bert_features.cli.logs import is_json, set_up_logging
from bert_features.cli.progress import Heartbeat
from bert_features.cli.settings import takes_settings_of
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import TOKEN, Limits, ServeSettings
from bert_features.config.settings import DEVICES, FILES
from bert_features.errors import ConfigError

logger = logging.getLogger("bert_features.serve")

_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
_SETTINGS = [name for name in ExtractConfig.model_fields if ExtractConfig.marks(name).served]
_LIMITS = Limits()


def _limit(default: float, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        help=f"{text} [default: {default:.10g}]", show_default=False, rich_help_panel=LIMITS
    )
    return option


@command
@takes_settings_of(*_SETTINGS)
def serve(
    settings: ExtractConfig,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all of this machine's.")
    ] = ServeSettings.host,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = ServeSettings.port,
    replicas: Annotated[
        int,
        typer.Option(
            help="Processes that compute, each with the model in memory; they share the cores.",
            rich_help_panel=DEVICES,
        ),
    ] = ServeSettings.replicas,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that requests must have. Default: the environment variable "
            f"{TOKEN}; if it is not set, no token.",
            rich_help_panel=FILES,
        ),
    ] = None,
    max_body_bytes: Annotated[int, _limit(_LIMITS.body_bytes, "Bytes of a request.")] = (
        _LIMITS.body_bytes
    ),
    max_texts: Annotated[int, _limit(_LIMITS.texts, "Texts of a request.")] = _LIMITS.texts,
    max_tokens: Annotated[
        int, _limit(_LIMITS.tokens, "Tokens of a request, before anything is cut off.")
    ] = _LIMITS.tokens,
    max_answer_bytes: Annotated[
        int, _limit(_LIMITS.answer_bytes, "Bytes of the vectors of an answer.")
    ] = _LIMITS.answer_bytes,
    max_requests: Annotated[
        int, _limit(_LIMITS.requests, "Requests that a replica answers at the same time.")
    ] = _LIMITS.requests,
    max_queued_tokens: Annotated[
        int, _limit(_LIMITS.queued_tokens, "Tokens that wait in a replica.")
    ] = _LIMITS.queued_tokens,
    max_seconds: Annotated[
        float, _limit(_LIMITS.seconds, "Seconds that a request may take.")
    ] = _LIMITS.seconds,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds that running requests have when it is stopped.")
    ] = ServeSettings.drain_seconds,
) -> None:
    """Serves features over HTTP.

    POST /v1/features gives the outputs by name; POST /v1/embeddings is OpenAI's interface. A page
    at / shows what the model makes of a text, /docs lists all paths. It runs until Ctrl-C or
    SIGTERM, and then still answers the requests that it has begun.
    """
    from bert_features.serving import run

    wanted = ServeSettings.of(
        host=host,
        port=port,
        replicas=replicas,
        token=_token(token_file),
        drain_seconds=drain_seconds,
        limits=Limits(
            body_bytes=max_body_bytes,
            texts=max_texts,
            tokens=max_tokens,
            answer_bytes=max_answer_bytes,
            requests=max_requests,
            queued_tokens=max_queued_tokens,
            seconds=max_seconds,
        ),
    )
    config = run.check_service(settings, wanted)
    if host not in _THIS_MACHINE and wanted.token_digest is None:
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
        raise ConfigError.naming(
            "cannot read the token file {path}: {reason}", path=path, reason=error.strerror
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the token file {path} is not UTF-8; write the token into a text file"
        ) from error
