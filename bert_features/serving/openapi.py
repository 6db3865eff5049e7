"""The OpenAPI page: the limits and names of one service, which `messages` does not know."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI

from bert_features.config.features import ITEM_SIZES, SMALL_DTYPES
from bert_features.serving.failures import STATUSES
from bert_features.serving.service import Service


def state_limits(app: FastAPI, service: Service, models: Sequence[str]) -> None:
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
    own = [schema] if schema.get("type") == "string" else []
    return own + [found for part in inner for found in _strings(part)]
