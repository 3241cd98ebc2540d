"""The input that a run file stores, perhaps written by another version of this program.

Analysis reads files that could no longer be run: an unknown key, or a value that is refused today,
must not hide the samples. Only `of_tables` knows of other versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from omniinput_hpc.config import Config
from omniinput_hpc.config.kernels import Kernel, KernelTable, with_default_name
from omniinput_hpc.config.law import Law
from omniinput_hpc.config.models import Model
from omniinput_hpc.config.observables import ObservableTable
from omniinput_hpc.config.output import Output, OutputTable
from omniinput_hpc.config.table import Table, tables_in
from omniinput_hpc.untrusted.parsing import parse_toml

MODELS: TypeAdapter[Any] = TypeAdapter(Model)
OUTPUTS: TypeAdapter[Any] = TypeAdapter(Output)
KERNELS: TypeAdapter[Any] = TypeAdapter(Kernel)
LAWS: TypeAdapter[Any] = TypeAdapter(Law)
OBSERVABLES: TypeAdapter[Any] = TypeAdapter(ObservableTable)


class OtherOutput(OutputTable):
    """An ``[output]`` table that this version does not know or refuses."""

    model_config = ConfigDict(extra="allow")
    name: str = ""


class OtherModel(Table):
    """A ``[model]`` or ``[law]`` table that this version refuses: its keys as they are."""

    model_config = ConfigDict(extra="allow")
    kind: str = ""
    noise: Any = False


def parse(text: str) -> Config:
    """Return the stored input (see `of_tables`). Raise a ValueError if it is not of any version."""
    tables = parse_toml(text)
    _check(tables)
    return of_tables(tables)


def of_tables(tables: Mapping[str, Any]) -> Config:
    """Return the input with these tables.

    If this version refuses it, unknown keys and wrong values are left out, as if they were not
    given; required keys are then None. Names of another version (`Literal` values) are kept.
    """
    try:
        return Config.model_validate(tables)
    except ValidationError:
        return Config.model_construct(
            **{
                key: _table(key, tables.get(key))
                for key, field in Config.model_fields.items()
                if key in tables or field.is_required()
            }
        )


def _check(tables: Mapping[str, Any]) -> None:
    """Raise a ValueError if keys that readers use are not as in any version."""
    for table in ("run", "model", "sampler", "ladder", "analysis"):
        if not isinstance(tables.get(table, {}), dict):
            raise ValueError(f"the stored input's {table} is not a table")
    if "run" not in tables:
        raise ValueError("the stored input has no table [run]")
    for key in ("kind", "path", "factory"):
        if not isinstance(tables.get("model", {}).get(key, ""), str):
            raise ValueError(f"the stored input's model.{key} is not a text")
    if tables.get("analysis", {}).get("side", "low") not in ("low", "high"):
        raise ValueError("the stored input's analysis.side is neither low nor high")
    burn_in = tables["run"].get("burn_in", 0)
    if isinstance(burn_in, bool) or not isinstance(burn_in, int) or burn_in < 0:
        raise ValueError("the stored input's run.burn_in is not a number of rounds")


def _table(key: str, given: Any) -> Any:
    """Return a table of an input that is refused."""
    if key == "observables":
        return [table for one in _tables(given) if (table := _one_of(OBSERVABLES, one))]
    given = given if isinstance(given, dict) else {}
    if key == "law":
        return _one_of(LAWS, given) or OtherModel.model_validate(given)
    if key == "model":
        return _one_of(MODELS, given) or OtherModel.model_validate(given)
    if key == "output":
        named = {k: v for k, v in given.items() if k != "name" or isinstance(v, str)}
        return _one_of(OUTPUTS, given) or OtherOutput.model_validate(named)
    if key == "kernel":
        named = {k: v for k, v in given.items() if k != "name" or isinstance(v, str)}
        given = with_default_name(named)
        return _one_of(KERNELS, given) or _without_mistakes(KernelTable, given)
    (table,) = tables_in(Config.model_fields[key].annotation)
    return _without_mistakes(table, given)


def _tables(given: Any) -> list[dict[str, Any]]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _one_of(tables: TypeAdapter[Any], given: Mapping[str, Any]) -> Any:
    """Return the table of the given kind or name; None if it is refused."""
    try:
        return tables.validate_python(given)
    except ValidationError:
        return None


def _without_mistakes(table: Any, given: Mapping[str, Any]) -> Any:
    try:
        return table.model_validate(given)
    except ValidationError as error:
        mistakes = [one for one in error.errors(include_url=False) if one["loc"]]
    wrong = {
        one["loc"][0]
        for one in mistakes
        if one["type"] != "literal_error" or not isinstance(one["input"], str)
    }
    required = [key for key, field in table.model_fields.items() if field.is_required()]
    known = {key: given[key] for key in table.model_fields if key in given and key not in wrong}
    return table.model_construct(**dict.fromkeys(required) | known)
