"""sentence-transformers behind FastAPI, as its users write it: POST /v1/embeddings.

    python -m benchmarking.serving_peer FOLDER PORT

Requests that wait are computed one after the other, each in one call of `encode`.
"""

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer


class Request(BaseModel):
    """A request in the shape of OpenAI's."""

    model: str
    input: list[str]


def main(folder: str, port: str) -> None:
    """Serves until it is killed."""
    model = SentenceTransformer(folder, device="cpu")
    app = FastAPI()

    @app.get("/healthz")
    def healthz() -> str:
        return "ok"

    @app.post("/v1/embeddings")
    def embeddings(request: Request) -> dict[str, Any]:
        vectors = model.encode(request.input, show_progress_bar=False)
        data = [{"index": i, "embedding": vector.tolist()} for i, vector in enumerate(vectors)]
        return {"model": request.model, "data": data}

    uvicorn.run(app, port=int(port), log_level="error")


main(*sys.argv[1:])
