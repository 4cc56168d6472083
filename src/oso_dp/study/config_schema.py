"""The JSON schema of a configuration (workflow/schemas/config.schema.json), for editors."""

from typing import Any

from oso_dp.data.catalogue import DATASETS
from oso_dp.data.plugins import GROUP, USER_MODEL
from oso_dp.methods import method_names
from oso_dp.study.config import StudyConfig, method_options_model

_LIMITS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
}


def json_schema() -> dict[str, Any]:
    """The schema, with the data sets, methods and method options of this version."""
    schema = StudyConfig.model_json_schema()
    datasets, methods = schema["properties"]["datasets"], schema["properties"]["methods"]
    user_datasets = {
        "pattern": "^[a-z][a-z0-9_]*$",
        "description": f"User-defined, with model: {USER_MODEL}; entry point {GROUP}.",
    }
    datasets["propertyNames"] = {"anyOf": [{"enum": sorted(DATASETS)}, user_datasets]}
    methods["properties"] = {
        name: method_options_model(name).model_json_schema() for name in method_names()
    }
    methods["additionalProperties"] = False
    return dict(_with_known_limits(schema))


def _with_known_limits(schema: Any) -> Any:
    """Rename limits that pydantic leaves as gt, ge, lt, le behind a validator.

    Only numbers are limits: a property of such a name would be a mapping.
    """
    if isinstance(schema, list):
        return [_with_known_limits(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        _LIMITS.get(key, key) if isinstance(part, int | float) else key: _with_known_limits(part)
        for key, part in schema.items()
    }
