"""The OpenAPI document: the API keeps what the document promises, for valid and invalid requests.

`make test-api` runs this test with many more examples.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.web.routes.all_routes import all_routes
from tests.server.serving import Server

from .http_api import Api, serving

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        negative_data_rejection,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]

EXAMPLES = int(os.environ.get("PENSTOCK_API_EXAMPLES", "3"))
# Few examples are the same in every run. Many are new ones.
IS_FIXED = EXAMPLES < 10

# Requests that end the test's node or never end themselves: other tests send them.
LEFT_OUT = ("/cluster/leave", "/settings", "/events", "/journal/stream", "/clients/{id}", "/cluster/meet")

# Fields that make a request wait.
SLOW = ("timeout", "rate")


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API with a node of its own, which has some jobs."""
    node = Server(tmp_path_factory.mktemp("documented"), "--appendfsync", "everysec")
    with serving(node.port) as api:
        api.post("/tubes", {"name": "emails", "type": "utubettl"})
        api.post("/tubes/emails/jobs", {"jobs": [{"body": number, "key": "k"} for number in range(3)]})
        yield api
    node.stop()


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_response_is_in_the_document(documented: Api, mode: GenerationMode) -> None:
    document = schemathesis.openapi.from_url(f"{documented.url}/api/v1/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    checked = [each for each in operations if each.path not in LEFT_OUT]
    assert len(checked) > 50
    for operation in checked:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue
        _send(operation, mode)


def _send(operation: Any, mode: GenerationMode) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=IS_FIXED,
    )
    def send(case: Any) -> None:
        for part in (case.body, case.query):
            if isinstance(part, dict):
                for name in SLOW:
                    part.pop(name, None)
        case.call_and_validate(checks=CHECKS)

    send()


def test_the_document_has_every_route_and_an_example_of_each_body(api: Api) -> None:
    paths = api.get("/openapi.json")["paths"]
    for route in all_routes():
        operation = paths[route.path or "/"][route.method.lower()]
        assert operation["summary"].endswith(".") and operation["tags"]
        if route.body is not None:
            example = operation["requestBody"]["content"]["application/json"]["example"]
            # The example is valid: `body` is the only value that is not checked as JSON.
            shown = {name: value for name, value in example.items() if name not in ("body", "result")}
            known = {name: each for name, each in route.body._all.items() if name in shown}
            for name, shape in known.items():
                shape.check(shown[name])
    assert len(
        {
            operation["operationId"]
            for each in paths.values()
            for name, operation in each.items()
            if name != "parameters"
        }
    ) == len(all_routes())


def test_an_unchanged_document_is_not_sent_again(api: Api) -> None:
    tag = api.http.get("/openapi.json").headers["etag"]
    again = api.http.get("/openapi.json", headers={"If-None-Match": tag})
    assert again.status_code == 304 and again.content == b""
