"""Every setting, and the one reader of the environment and of `scrubjay.toml`.

A value given in code wins over `SCRUBJAY_…` in the environment, that over `scrubjay.toml` in
the working directory (or the file that `SCRUBJAY_CONFIG` names), that over the default.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import (
    SettingsError as SourceError,
)

from scrubjay.errors import InvalidInput, SettingsError
from scrubjay.text.instants import zone


class Settings(BaseSettings):
    """The settings of one memory. Each field is also `SCRUBJAY_` and its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix="SCRUBJAY_", extra="forbid", frozen=True, toml_file="scrubjay.toml"
    )

    path: Path | str = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("scrubjay")) / "default",
        description="The directory of the embedded store, or the postgresql:// URL of a database, "
        "where none is given in code.",
    )
    tenant: str = Field(default="default", min_length=1, description="The tenant of every scope.")
    timezone: str = Field(
        default="UTC",
        description="The zone in which a time without one is read, as in Asia/Shanghai.",
    )
    synchronous: Literal["FULL", "NORMAL"] = Field(
        default="FULL",
        description="FULL syncs each acknowledged write to the disk. NORMAL is faster and may "
        "lose the last writes when the power fails, though not when the process does.",
    )
    write_timeout_s: float = Field(
        default=10.0,
        ge=0,
        description="Seconds a writer waits for another process before `StoreBusy`.",
    )
    statement_timeout_s: float = Field(
        default=60.0,
        ge=0,
        description="Seconds one statement may take on a PostgreSQL store; 0 is without end.",
    )
    pool_size: int = Field(
        default=10, ge=1, description="Connections this process may have to a PostgreSQL store."
    )
    cache_mb: int = Field(
        default=256, ge=1, description="Megabytes of RAM for the indexes of users lately searched."
    )
    vector_index: Literal["none", "pgvector"] = Field(
        default="none",
        description="Where partitions too large for RAM are searched by meaning: pgvector, on a "
        "PostgreSQL store alone.",
    )
    vector_index_from: int = Field(
        default=100_000,
        ge=1,
        description="Memories of one partition from which its vectors are no longer held in RAM, "
        "where vector_index is set.",
    )
    embedder: str = Field(
        default="multilingual-e5-small",
        description="The embedding model: a known name, a folder with model.onnx and "
        "tokenizer.json, `openai` for an OpenAI-compatible endpoint, or `none` for words alone.",
    )
    model_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("scrubjay")) / "models",
        description="Where prepared models are kept.",
    )
    model_wait_s: float = Field(
        default=10.0,
        ge=0,
        description="Seconds a search waits for the model before it goes by words.",
    )
    model_threads: int | None = Field(
        default=None, ge=1, description="Threads the model may use; by default up to two."
    )
    openai_base_url: str = Field(
        default="https://api.openai.com/v1", description="The endpoint, where embedder is `openai`."
    )
    openai_api_key: SecretStr = Field(default=SecretStr(""), description="Its key.")
    openai_embedding_model: str = Field(default="text-embedding-3-small", description="Its model.")
    background: bool = Field(
        default=True, description="Whether this process runs jobs; without, another one must."
    )
    recall: dict[str, float] = Field(
        default_factory=dict,
        description="Numbers of the recall policy to change, by the names of `RecallPolicy`.",
    )

    @field_validator("path")
    @classmethod
    def _directory_or_url(cls, value: Path | str) -> Path | str:
        return value if "://" in str(value) else Path(value)

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            zone(value)
        except InvalidInput as exc:
            raise ValueError(str(exc)) from exc
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Code, then the environment, then the file."""
        del dotenv_settings, file_secret_settings
        file = os.environ.get("SCRUBJAY_CONFIG", "scrubjay.toml")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(file))


def load(**given: Any) -> Settings:
    """The settings, with `given` on top. Raises `SettingsError`, naming the setting.

    >>> load(cache_mb=64).cache_mb
    64
    """
    file = os.environ.get("SCRUBJAY_CONFIG")
    try:
        if file is not None and not Path(file).is_file():
            raise SettingsError(f"SCRUBJAY_CONFIG names {file!r}, and there is no such file")
        return Settings(**given)
    except OSError as exc:
        raise SettingsError(f"the settings file cannot be read: {exc}") from exc
    except (tomllib.TOMLDecodeError, SourceError) as exc:
        raise SettingsError(
            f"the settings cannot be read: {exc}. `scrubjay settings` lists every setting"
        ) from exc
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in exc.errors()
        )
        raise SettingsError(
            f"{problems}. `scrubjay settings` lists every setting with its meaning"
        ) from exc
