"""The smallest proxy for vLLM's NIXL connector that can be written in Python:
one token of the prefill engine, its params to the decode engine, the answer
passed on. What baton-proxy is compared with.

    toy_proxy.py PORT PREFILL_URL DECODE_URL
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

ASK = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


def make(prefill: str, decode: str) -> FastAPI:
    app = FastAPI()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    clients = [
        httpx.AsyncClient(base_url=url, timeout=None, limits=limits)
        for url in (prefill, decode)
    ]

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {}

    @app.post("/v1/completions")
    async def completions(request: Request) -> StreamingResponse:
        body: dict[str, Any] = json.loads(await request.body())
        first = {**body, "stream": False, "max_tokens": 1, "kv_transfer_params": ASK}
        first.pop("stream_options", None)
        answer = await clients[0].post("/v1/completions", json=first)
        answer.raise_for_status()
        body["kv_transfer_params"] = answer.json()["kv_transfer_params"]

        async def relay() -> AsyncIterator[bytes]:
            async with clients[1].stream(
                "POST", "/v1/completions", json=body
            ) as stream:
                async for chunk in stream.aiter_bytes():
                    yield chunk

        return StreamingResponse(relay(), media_type="text/event-stream")

    return app


if __name__ == "__main__":
    uvicorn.run(
        make(sys.argv[2], sys.argv[3]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
    )
