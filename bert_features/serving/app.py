"""The HTTP interface: an ASGI application around a `Service`."""

import asyncio
import base64
import reprlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from bert_features import __version__
from bert_features.config.features import ITEM_SIZES, SMALL_DTYPES
from bert_features.encoder.finishing import unit_length
from bert_features.errors import BertFeaturesError
from bert_features.serving import messages
from bert_features.serving.answers import ARROW, FORMS, JSON, NPY, choose_form, dump
from bert_features.serving.failures import STATUSES, TYPES, RequestError, internal_error
from bert_features.serving.guard import Guard
from bert_features.serving.metrics import CONTENT_TYPE
from bert_features.serving.page_files import page_routes
from bert_features.serving.service import Answer, Service

_SUMMARY = "Contextual features from BERT: text in, hidden layers out."
_MAX_VALUE = 100
# Values may be nested as deep as JSON allows, deeper than `repr` goes.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 2 * _MAX_VALUE, 2 * _MAX_VALUE


async def _until_sent() -> AsyncIterator[ExitStack]:
    """A stack that is closed when the answer has been sent."""
    with ExitStack() as stack:
        yield stack


_UntilSent = Annotated[ExitStack, Depends(_until_sent)]


def make_app(service: Service) -> Guard:
    """The ASGI application of a service."""
    # The page of the interface comes from the service itself: no address outside is asked.
    app = FastAPIOffline(title="bert_features", summary=_SUMMARY, version=__version__)
    _add_features(app, service)
    _add_embeddings(app, service)
    _add_state(app, service)
    app.router.routes.extend(page_routes())
    for kind, explain in _EXPLANATIONS.items():

        async def refuse(request: Request, error: Exception, explain: Any = explain) -> Response:
            return explain(request, error).to_response()

        app.add_exception_handler(kind, refuse)
    _state_limits(app, service, _models(service))
    paths = frozenset(getattr(route, "path", "") for route in app.routes)
    return Guard(app, service, paths)


def _failures(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """The failures of a path, for the OpenAPI page."""
    return {
        STATUSES[kind]: {"model": messages.ErrorAnswer, "description": kind.replace("_", " ")}
        for kind in kinds
    }


_OF_POSTS = _failures(
    *("bad_request", "unauthorized", "too_large", "unsupported_media_type", "invalid_request"),
    *("overloaded", "timeout"),
)


def _add_features(app: FastAPI, service: Service) -> None:
    binary = {"schema": {"type": "string", "format": "binary"}}
    answer = {
        "model": messages.FeaturesAnswer,
        "description": "The features of each text, in the order of the texts.",
        "content": {ARROW: binary, NPY: binary},
    }

    @app.post(
        "/v1/features",
        summary="Features of texts, pairs or words, by the names of outputs",
        responses={200: answer, **_OF_POSTS, **_failures("not_acceptable")},
    )
    async def features(
        request: Request, body: messages.FeaturesRequest, until: _UntilSent
    ) -> Response:
        form = choose_form(request.headers.get("accept", ""))
        computed = await _in_time(request, service, service.compute(body, until))
        content = await service.in_thread(lambda: FORMS[form](service, computed))
        return Response(content, headers=computed.headers, media_type=form)


def _add_embeddings(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/embeddings",
        summary="One vector for each text, in the shape of OpenAI's embeddings",
        responses={
            200: {"model": messages.EmbeddingsAnswer},
            **_OF_POSTS,
            **_failures("not_found"),
        },
    )
    async def embeddings(
        request: Request, body: messages.EmbeddingsRequest, until: _UntilSent
    ) -> Response:
        name, prompt = _output_of(service, body.model)
        spec = service.catalog.vectors()[name]
        if body.dimensions is not None and body.dimensions > spec.width:
            raise RequestError(
                "invalid_request",
                f"dimensions is {body.dimensions}; allowed: 1 to {spec.width}",
                param="dimensions",
            )
        texts = [body.input] if isinstance(body.input, str) else body.input
        values = {"texts": texts, "outputs": [name], "prompt_name": prompt, "tokens": False}
        features_request = messages.FeaturesRequest.model_validate(values)
        computed = await _in_time(request, service, service.compute(features_request, until))
        content = await service.in_thread(lambda: _to_embeddings(body, computed))
        return Response(content, headers=computed.headers, media_type=JSON)

    @app.get("/v1/models", summary="The models that /v1/embeddings takes")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_describe(name) for name in _models(service)]}

    @app.get(
        "/v1/models/{model:path}",
        summary="One of these models",
        responses=_failures("unauthorized", "not_found"),
    )
    async def model(model: str) -> dict[str, Any]:
        _output_of(service, model)
        return _describe(model)


def _describe(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "bert_features"}


def _models(service: Service) -> dict[str, tuple[str, str | None]]:
    """Outputs of one vector and prompts by model: MODEL, MODEL/OUTPUT, MODEL/PROMPT (the first)."""
    model, vectors = service.model, list(service.catalog.vectors())
    if not vectors:
        return {}
    models: dict[str, tuple[str, str | None]] = {model: (vectors[0], None)}
    models |= {f"{model}/{name}": (vectors[0], name) for name in service.prompts}
    return models | {f"{model}/{name}": (name, None) for name in vectors}


def _output_of(service: Service, model: str) -> tuple[str, str | None]:
    """The output and the prompt that a model of OpenAI's API names."""
    allowed = _models(service)
    if not allowed:
        raise RequestError(
            "not_found", "the service has no output of one vector for each text", param="model"
        )
    if model not in allowed:
        raise RequestError(
            "not_found",
            f"model is {model[:_MAX_VALUE]!r}; allowed: {', '.join(allowed)}",
            param="model",
        )
    return allowed[model]


def _to_embeddings(request: messages.EmbeddingsRequest, answer: Answer) -> bytes:
    (feature,) = answer.features
    vectors = np.ascontiguousarray(answer.results.sequence[feature.name], "<f4")
    if request.dimensions is not None:
        vectors = np.ascontiguousarray(vectors[:, : request.dimensions])
        if feature.normalize:
            vectors = unit_length(vectors, np)
    as_text, tokens, lost = request.encoding_format == "base64", answer.tokens, answer.tokens_lost
    return dump(
        {
            "object": "list",
            "data": [
                {
                    "object": "embedding",
                    "index": i,
                    "embedding": base64.b64encode(row.tobytes()).decode() if as_text else row,
                }
                for i, row in enumerate(vectors)
            ],
            "model": request.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "tokens_lost": lost},
        }
    )


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", summary="Whether the process runs")
    async def healthz() -> messages.State:
        return messages.State(status="ok")

    @app.get("/readyz", summary="Whether requests are taken")
    async def readyz() -> messages.State:
        return messages.State(status="ready")

    @app.get(
        "/v1/info",
        summary="The model, its outputs and the limits",
        responses=_failures("unauthorized"),
    )
    async def info() -> messages.Info:
        return service.info()

    @app.get(
        "/metrics",
        summary="Metrics in Prometheus' text format",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **_failures("unauthorized")},
    )
    async def metrics() -> Response:
        return Response(service.metrics.to_text(), media_type=CONTENT_TYPE)


async def _in_time(request: Request, service: Service, work: Awaitable[Answer]) -> Answer:
    """Waits for an answer, and drops it when the client goes away or its time is over."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    seconds = service.settings.limits.seconds
    try:
        await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            service.warn_of_loss(task.result())
            return task.result()
        if gone.done():
            raise RequestError("bad_request", "the client closed the connection")
        raise RequestError(
            "timeout",
            f"the texts were not computed within {seconds:g} seconds; send fewer, or try later",
        )
    finally:
        gone.cancel()
        task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _explain_path(request: Request, error: HTTPException) -> RequestError:
    kind = TYPES.get(error.status_code, "bad_request")
    named = f"{request.method} {request.url.path[:_MAX_VALUE]}"
    message = f"{named}: {error.detail}; GET /docs shows what there is"
    return RequestError(kind, message, headers=error.headers)


def _explain(error: RequestValidationError) -> RequestError:
    """The first problem of a body in words of ours."""
    # A list that holds a wrong value is the closest form that `input` may have.
    problem = max(error.errors(), key=lambda problem: len(problem["loc"]))
    context = problem.get("ctx", {})
    if problem["type"] == "json_invalid":
        return RequestError("bad_request", f"the body is not JSON: {context.get('error', '')}")
    if problem["type"] == messages.IN_OUR_WORDS:
        return RequestError("invalid_request", context["message"], param=context["param"] or None)
    _, field, *parts = [*problem["loc"], ""][: max(len(problem["loc"]), 2)]
    if not field:
        return RequestError("invalid_request", "the body is missing; allowed: a JSON object")
    # Names of types stand among the places in a list.
    place = f"{field}{''.join(f'[{part}]' for part in parts if isinstance(part, int))}"
    is_missing = problem["type"] == "missing"
    received = "missing" if is_missing else _SHORT.repr(problem.get("input"))[: 2 * _MAX_VALUE]
    allowed = messages.ALLOWED[field]
    whole = "" if place == field else f"{field} is "
    return RequestError(
        "invalid_request", f"{place} is {received}; allowed: {whole}{allowed}", place
    )


_EXPLANATIONS: dict[type[Exception], Callable[[Request, Any], RequestError]] = {
    RequestError: lambda request, error: error,
    BertFeaturesError: lambda request, error: RequestError("invalid_request", str(error)),
    RequestValidationError: lambda request, error: _explain(error),
    HTTPException: _explain_path,
    Exception: lambda request, error: internal_error(),  # the guard logs it: it is raised again
}


def _state_limits(app: FastAPI, service: Service, models: Iterable[str]) -> None:
    """Adds limits and allowed values to the page of an application that has all its paths."""
    schemas = app.openapi()["components"]["schemas"]
    fields = {name: schema.get("properties", {}) for name, schema in schemas.items()}
    features, embeddings = fields["FeaturesRequest"], fields["EmbeddingsRequest"]
    limits, outputs = service.settings.limits, list(service.catalog.outputs)
    for field in (features["texts"], features["pairs"], features["words"], embeddings["input"]):
        _forms(field)["array"]["maxItems"] = limits.texts
        for text in _strings(field):
            text["maxLength"] = limits.body_bytes
    names = _forms(features["outputs"])["array"]
    names.update(maxItems=len(outputs), uniqueItems=True)
    names["items"]["enum"] = outputs
    embeddings["model"]["enum"] = [*models]
    widths = [spec.width for spec in service.catalog.vectors().values()]
    _forms(embeddings["dimensions"])["integer"]["maximum"] = max(widths, default=1)
    fields["Problem"]["type"]["enum"] = [*STATUSES]
    fields["Feature"]["dtype"]["enum"] = sorted(ITEM_SIZES.keys() - SMALL_DTYPES)


def _forms(field: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The forms that a field may have, by type."""
    return {form["type"]: form for form in field["anyOf"]}


def _strings(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema, and what is in it, as far as it is of strings."""
    inner = [*schema.get("anyOf", []), *filter(None, [schema.get("items")])]
    itself = [schema] if schema.get("type") == "string" else []
    return itself + [each for part in inner for each in _strings(part)]
