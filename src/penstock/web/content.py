"""A result of a handler that is not JSON."""

from __future__ import annotations


class Content:
    """The body of a response, with its media type."""

    def __init__(self, body: bytes, media: str) -> None:
        self.body = body
        self.media = media
