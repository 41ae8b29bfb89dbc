"""Whether the reference has all that the package offers, and nothing under a private name."""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

_MODULES = ("feedline", "feedline.tensorsocket")

_log = logging.getLogger(__name__)


def _compare(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name that no page documents."""
    documented = env.get_domain("py").data["objects"]
    for module in _MODULES:
        for name in importlib.import_module(module).__all__:
            if f"{module}.{name}" not in documented:
                _log.warning("%s.%s is in __all__ and in no page of the reference", module, name)


def _by_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.Element | None:
    """Find what a signature names by the private module that it is defined in."""
    target = node.get("reftarget", "")
    domain = env.get_domain("py")
    if not target.startswith("feedline._") or not isinstance(domain, PythonDomain):
        return None
    public = f"feedline.{target.rpartition('.')[2]}"
    # A class is looked up as one; an alias of a type is nothing of its own.
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], public, node, text
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("env-check-consistency", _compare)
    app.connect("missing-reference", _by_public_name)
    return {"parallel_read_safe": True}
