"""Configuration of the resource pools of a ZenML server: which cluster, whose steps, and what its names are there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

VARIABLE = "SLUICE_ZENML_CONFIG"
"""Variable of the server's environment that has the configuration: the path of a JSON file, or the JSON itself."""

_HELP = "docs/zenml.md has an example"


class ConfigError(ValueError):
    """The configuration is missing or wrong; the message names the key and the way out."""


@dataclass(frozen=True)
class Config:
    """The configuration."""

    context: str | None = None
    """Name or path of the context of the cluster; if absent, the one of `SLUICE_CONTEXT` or of the server's user."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """Subject of each stack component, by the name or the id of the component."""
    default_subject: str | None = None
    """Subject of the components that `subjects` does not name; without it, their requests are rejected."""
    pool: str | None = None
    """The only pool for all requests; if absent, each that the subject has a policy in."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """Platform of each class of GPUs; a class that is not named is the name of a platform."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """Key of each resource of ZenML, by its name or kind; one that is not named is a key of the pool."""
    patience: float = 60.0
    """Seconds for which a request is tried again while the coordinator is away."""

    @staticmethod
    def load(environment: Mapping[str, str] = os.environ) -> Config:
        """Reads the configuration of the environment. Raises `ConfigError`."""
        given = environment.get(VARIABLE, "").strip()
        if not given:
            raise ConfigError(
                f"{VARIABLE} is not set: set it to the path of a JSON file, or to JSON such as "
                f'{{"default_subject": "zenml"}}; {_HELP}'
            )
        return Config.parse(given, VARIABLE) if given.startswith("{") else Config.read(Path(given))

    @staticmethod
    def read(path: Path) -> Config:
        """Reads the configuration of a file."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the file {path} that {VARIABLE} names: {error}") from error
        return Config.parse(text, str(path))

    @staticmethod
    def parse(text: str, where: str) -> Config:
        """Parses the configuration."""
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{where} is not JSON: {error}; {_HELP}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{where} is not a JSON object; {_HELP}")
        known = {it.name: it for it in fields(Config)}
        for key, value in found.items():
            if key not in known:
                raise ConfigError(f"{where}: there is no key `{key}`; there are {', '.join(known)}")
            _check(where, key, value)
        config = Config(**found)
        if not config.subjects and not config.default_subject:
            raise ConfigError(
                f"{where} names no subject: set `default_subject`, or `subjects` with the names of stack components"
            )
        return config

    def subject_of(self, component_id: str, name: str | None) -> str | None:
        """Returns the subject of a stack component; `None` if the configuration has none."""
        by_name = self.subjects.get(name) if name else None
        return self.subjects.get(component_id) or by_name or self.default_subject


def _check(where: str, key: str, value: Any) -> None:
    if key in ("subjects", "classes", "resources"):
        texts = isinstance(value, dict) and all(isinstance(it, str) and it for it in value.values())
        if not texts:
            raise ConfigError(f'{where}: `{key}` is not an object of texts, such as {{"name": "value"}}')
    elif key == "patience":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 600:
            raise ConfigError(f"{where}: `patience` is {value!r}: write seconds from 0 to 600")
    elif not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: `{key}` is {value!r}, not a text")
