"""Configurations that say two things, nothing, or what nobody looks at: one line names the key."""

import pytest

from .conftest import STUDY, content, refused


def changed(old: str, new: str) -> str:
    assert old in STUDY
    return STUDY.replace(old, new)


CASES = [
    (STUDY + "seeds: [1]\n", "seeds: appears twice"),
    (changed("methods:", "  glyphs: {}\nmethods:"), "datasets.glyphs: appears twice"),
    (changed("online: {}", "online: {}\n  online: {}"), "methods.online: appears twice"),
    (
        changed("online: {}", "online: {threshold_rate: 1, threshold_rate: 2}"),
        "methods.online.threshold_rate: appears twice",
    ),
    (
        changed("model: small_cnn", "model: cnn\n    model: small_cnn"),
        "datasets.glyphs.model: appears twice",
    ),
    (STUDY + "'epochs': 1\n", "epochs: appears twice"),
    ('{"name": "a", "name": "b"}', "name: appears twice"),
    (changed("[2]", "[010]"), "values_per_axis.0: 010; must be a number in decimal digits"),
    (changed("epochs: 1", "epochs: 1:30.5"), "epochs: 1:30.5; must be a number in decimal digits"),
    (changed("600", "0x258"), "batch_size: 0x258; must be a number in decimal digits"),
    (changed("600", "6_00"), "batch_size: 6_00; must be a number in decimal digits"),
    (STUDY + "null: 1\n", "null: a key must be text"),
    (STUDY + "? \n: 1\n", "null: a key must be text"),
    (STUDY + "yes: 1\n", "yes: a key must be text"),
    (changed("glyphs:", "3:"), "datasets.3: a key must be text"),
    (STUDY + "sedes: [1]\n", "sedes: unknown key; did you mean seeds?"),
    (changed("seeds:", "seed:"), "seed: unknown key; did you mean seeds?"),
    (changed("epsilons:", "epsilon:"), "epsilon: unknown key; did you mean epsilons?"),
    (changed("seeds:", "colour: red # "), "colour: unknown key; config/README.md lists"),
    (changed("online: {}", "online:"), "methods.online: None; must be a mapping of keys to values"),
    (changed("glyphs:", "glyphs: 3\n  mnist:"), "datasets.glyphs: 3; must be a mapping of keys"),
    (changed("values_per_axis: [2]", "values_per_axis: 2"), "values_per_axis: 2; must be a list"),
    (
        changed("online: {}", "online: {threshold_rate: .nan}"),
        "methods.online.threshold_rate: nan; must be a finite number",
    ),
    (changed("name: mini", 'name: "a\\nb"'), "name: 'a\\nb'; must match pattern '^[a-z0-9_]+$'"),
    ("", "must be a mapping of keys to values"),
    ("hello\n", "must be a mapping of keys to values"),
    ("a: [1\n", "not YAML"),
    (STUDY + "---\n" + STUDY, "not YAML"),
    (changed("name: mini", "name: 2024-13-99"), "not YAML"),
    ("&a\nname: *a\n", "too many values; must have at most 100,000"),
    ("[" * 1500, "nested too deeply"),
]


@pytest.mark.parametrize(("text", "said"), CASES, ids=[said for _, said in CASES])
def test_config_invalid_text_rejected(text, said, place, oso) -> None:
    (place / "bad.yaml").write_text(text)
    before = content(place)
    refused(oso("plan", "--config", "bad.yaml", "--output", "new.json"), "bad.yaml: ", said)
    assert content(place) == before


@pytest.mark.parametrize(("text", "said"), CASES[::20])
def test_config_invalid_rejected_by_readers(text, said, place, oso, monkeypatch) -> None:
    (place / "bad.yaml").write_text(text)
    refused(oso("calibrate", "--config", "bad.yaml"), "bad.yaml: ", said)
    with open("bad.yaml") as file:
        monkeypatch.setattr("sys.stdin", file)
        refused(oso("plan", "--config", "-"), "configuration: ", said)


def test_config_endless_file_rejected(place, oso, monkeypatch) -> None:
    refused(oso("plan", "--config", "/dev/zero"), "must be a regular file")
    with open("/dev/zero") as file:
        monkeypatch.setattr("sys.stdin", file)
        refused(
            oso("plan", "--config", "-"),
            "configuration: too long; must have at most 10,000,000 characters",
        )


def test_config_exponential_aliases_rejected(place, oso) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (place / "bad.yaml").write_text("\n".join([STUDY, *lines, "name2: *a11"]))
    refused(
        oso("plan", "--config", "bad.yaml"),
        "too many values; must have at most 100,000, with aliases expanded",
    )
    text = "\n".join([*lines[1:], changed("seeds: [0]", "seeds: *a11")])
    (place / "bad.yaml").write_text("\n".join([lines[0], text]))
    refused(
        oso("plan", "--config", "bad.yaml"),
        "too many values; must have at most 100,000, with aliases expanded",
    )


def test_config_unreadable_file_rejected(place, oso) -> None:
    (place / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    refused(oso("plan", "--config", "bad.yaml"), "bad.yaml: not YAML")
    refused(oso("plan", "--config", "none.yaml"), "none.yaml: cannot be read")
    refused(oso("plan", "--config", "part"), "part: folder; must be a regular file")


HANDED = {
    "as it is": (STUDY, {}, None),
    "a key that was laid over it": (STUDY, {"seeds": [7]}, None),
    "twice": (STUDY + "seeds: [1]\n", {}, "seeds: appears twice"),
    "read otherwise": (STUDY, {"epochs": 90}, "epochs: read as 90 by Snakemake and 1"),
}


@pytest.mark.parametrize("case", HANDED)
def test_check_handed_over_mismatch_rejected(case, place) -> None:
    import yaml

    from oso_dp.errors import OsoError
    from oso_dp.snakemake_support.preflight import check_handed_over

    text, other, said = HANDED[case]
    (place / "bad.yaml").write_text(text)
    config = {**yaml.safe_load(text), **other}
    over = ["seeds"] if "laid over" in case else []
    if said is None:
        check_handed_over(config, [place / "bad.yaml"], over)
    else:
        with pytest.raises(OsoError, match=rf"bad\.yaml: {said}"):
            check_handed_over(config, [place / "bad.yaml"], over)
