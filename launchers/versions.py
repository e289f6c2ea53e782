"""What is installed, for hosts that must have the same."""

import hashlib
import importlib.metadata
import pathlib
import platform
import re
from collections.abc import Mapping

_DISTRIBUTION = "launchgraph"
_CODE = "launchgraph's code"
_NAMED = 3


def installed_versions() -> dict[str, str]:
    """Returns the versions of Python, of all that launchgraph requires, and of its own code."""
    versions = {"Python": platform.python_version(), _CODE: _digest()}
    for requirement in importlib.metadata.requires(_DISTRIBUTION) or ():
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Says in words in what two hosts differ; empty where they do not."""
    differing = [name for name in here if here[name] != there.get(name)]
    named = [f"{name} {there.get(name)} instead of {here[name]}" for name in differing[:_NAMED]]
    more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
    return ", ".join(named) + more


def own_modules() -> list[str]:
    """Returns the names of launchgraph's own top-level modules and packages."""
    names = importlib.metadata.distribution(_DISTRIBUTION).read_text("top_level.txt") or ""
    return sorted(names.split())


def _digest() -> str:
    """Returns a short digest of launchgraph's modules."""
    root = pathlib.Path(__file__).parent.parent
    digest = hashlib.sha256()
    for room in own_modules():
        for path in sorted([*root.joinpath(room).rglob("*.py"), *root.glob(f"{room}.py")]):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
