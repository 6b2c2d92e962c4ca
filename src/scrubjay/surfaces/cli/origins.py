"""Where each setting's value came from, by looking where `settings` looks."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from scrubjay.settings import Settings

MASKED = "**********"


class Origins:
    """What the environment and the file say, right or wrong. Secrets come back masked."""

    def __init__(self) -> None:
        self._variables: Mapping[str, str | None] = EnvSettingsSource(Settings).env_vars
        self.file = Path(self._variables.get("scrubjay_config") or "scrubjay.toml")
        self._written = _read(self.file)

    @staticmethod
    def fields() -> Mapping[str, FieldInfo]:
        """Every setting by name."""
        return Settings.model_fields

    def of(self, name: str) -> tuple[str, Any]:
        """("environment", "file" or "default", the value there)."""
        field = Settings.model_fields[name]
        variable = f"scrubjay_{name}"
        if variable in self._variables:
            origin, value = "environment", self._variables[variable]
        elif name in self._written:
            origin, value = "file", self._written[name]
        else:
            return "default", field.get_default(call_default_factory=True)
        return origin, MASKED if field.annotation is SecretStr else value


def _read(file: Path) -> Mapping[str, Any]:
    """What the file says; nothing where it cannot be read, which its loading has told."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
