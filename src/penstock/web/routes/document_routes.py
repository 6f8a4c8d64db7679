"""The description of the API for programs, and for people."""

from __future__ import annotations

from typing import Any, Final

from penstock.web.content import Content
from penstock.web.exchange import Exchange
from penstock.web.openapi import as_text, document, page
from penstock.web.route_table import OPEN, Route
from penstock.web.shapes import Record, Text


async def _document(exchange: Exchange) -> Content:
    return Content(as_text(document(exchange.routes, exchange.settings.path_prefix)), "application/json")


async def _page(exchange: Exchange) -> Content:
    return Content(page(exchange.routes, exchange.settings.path_prefix).encode(), "text/html; charset=utf-8")


ROUTES: Final[list[Any]] = [
    Route(
        method="GET",
        path="/openapi.json",
        group="About",
        summary="Return this document.",
        handler=_document,
        access=OPEN,
        returns=Record({"openapi": Text(example="3.1.0")}, open=True),
        etag=True,
    ),
    Route(
        method="GET",
        path="/docs",
        group="About",
        summary="Show a page that lists all paths.",
        handler=_page,
        access=OPEN,
        returns=Text(example="<!doctype html>"),
        media="text/html; charset=utf-8",
        etag=True,
    ),
]
