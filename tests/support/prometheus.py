"""Prometheus' side: asking a port for numbers, and reading them."""

from __future__ import annotations

import contextlib
import socket
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_SECS = 20.0

Labels = tuple[tuple[str, str], ...]


def scrape(port: int) -> str:
    """Ask as Prometheus does."""
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECS) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(response.read().decode())


def numbers(text: str) -> dict[str, dict[Labels, float]]:
    """Read with the official parser: by name, then by labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            by_labels = found.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in by_labels, f"{sample} is there twice"
            by_labels[labels] = sample.value
    return found


def ask(port: int, request: bytes) -> bytes:
    """Send these bytes, and give all that is answered."""
    answer = b""
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECS)
    with connection, contextlib.suppress(ConnectionError):
        connection.sendall(request)
        while part := connection.recv(65536):
            answer += part
    return answer
