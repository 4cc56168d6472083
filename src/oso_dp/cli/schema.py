"""`oso schema`: the JSON schema of configurations."""


def schema() -> None:
    """Print the JSON schema of a configuration (workflow/schemas/config.schema.json)."""
    import json

    from oso_dp.study.config_schema import json_schema

    print(json.dumps(json_schema(), indent=2))
