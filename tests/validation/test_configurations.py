"""Configurations that say two things, nothing, or what nobody looks at: one line names the key."""

import pytest

from .conftest import STUDY, content, refused


def changed(old: str, new: str) -> str:
    assert old in STUDY
    return STUDY.replace(old, new)


# The text of a configuration, and what is said of it.
CASES = {
    # A key that appears twice.
    "seeds twice": (STUDY + "seeds: [1]\n", "seeds: appears twice"),
    "name twice": (STUDY + "name: other\n", "name: appears twice"),
    "equal, twice": (STUDY + "epochs: 1\n", "epochs: appears twice"),
    "a data set twice": (
        changed("methods:", "  glyphs: {}\nmethods:"),
        "datasets.glyphs: appears twice",
    ),
    "a method twice": (
        changed("online: {}", "online: {}\n  online: {}"),
        "methods.online: appears twice",
    ),
    "a setting twice": (
        changed("online: {}", "online: {threshold_rate: 1, threshold_rate: 2}"),
        "methods.online.threshold_rate: appears twice",
    ),
    "model twice": (
        changed("model: small_cnn", "model: cnn\n    model: small_cnn"),
        "datasets.glyphs.model: appears twice",
    ),
    "quoted, twice": (STUDY + "'epochs': 1\n", "epochs: appears twice"),
    "in JSON, twice": ('{"name": "a", "name": "b"}', "name: appears twice"),
    # Numbers that YAML 1.1 reads as others.
    "octal": (
        changed("[2]", "[010]"),
        "values_per_axis.0: 010; must be a number in decimal digits",
    ),
    "octal, negative": (
        changed("epochs: 1", "epochs: -07"),
        "epochs: -07; must be a number in decimal digits",
    ),
    "sexagesimal": (
        changed("epochs: 1", "epochs: 1:30"),
        "epochs: 1:30; must be a number in decimal digits",
    ),
    "sexagesimal, real": (
        changed("epochs: 1", "epochs: 1:30.5"),
        "epochs: 1:30.5; must be a number in decimal digits",
    ),
    "hexadecimal": (
        changed("600", "0x258"),
        "batch_size: 0x258; must be a number in decimal digits",
    ),
    "binary": (
        changed("[2]", "[0b10]"),
        "values_per_axis.0: 0b10; must be a number in decimal digits",
    ),
    "underscores": (changed("600", "6_00"), "batch_size: 6_00; must be a number in decimal digits"),
    "in a setting": (
        changed("online: {}", "online: {threshold_rate: 010}"),
        "methods.online.threshold_rate: 010; must be a number in decimal digits",
    ),
    # Keys that are no text.
    "a null key": (STUDY + "null: 1\n", "null: a key must be text"),
    "a tilde": (STUDY + "~: 1\n", "~: a key must be text"),
    "an empty key": (STUDY + "? \n: 1\n", "null: a key must be text"),
    "a number": (STUDY + "3: 1\n", "3: a key must be text"),
    "a truth": (STUDY + "yes: 1\n", "yes: a key must be text"),
    "a date": (STUDY + "2024-01-01: 1\n", "2024-01-01: a key must be text"),
    "a list as key": (STUDY + "? [1]\n: 2\n", "a list or a mapping: a key must be text"),
    "a data set 3": (changed("glyphs:", "3:"), "datasets.3: a key must be text"),
    "a method null": (changed("online:", "null:"), "methods.null: a key must be text"),
    "a setting null": (changed("online: {}", "online: {~: 1}"), "methods.online.~: a key must be"),
    # Values that are not looked at, or are none.
    "a shape under composition": (
        STUDY + "stopping_distribution: geometric\n",
        "stopping_distribution: geometric; only with search_accounting:",
    ),
    "words of images": (
        changed("model: small_cnn", "model: small_cnn\n    oov_words: skipped"),
        "datasets.glyphs.oov_words: skipped; only for text",
    ),
    "sum of classes": (
        changed("model: small_cnn", "model: small_cnn\n    loss: sum"),
        "datasets.glyphs.loss: sum; only for models that return images",
    ),
    "no seeds": (changed("seeds: [0]", "seeds:"), "seeds: None; must be a valid list"),
    "no method": (
        changed("online: {}\n  no_dp: {}", "{}"),
        "methods: {}; must have at least 1 item",
    ),
    "a method without settings": (
        changed("online: {}", "online:"),
        "methods.online: None; must be a valid dictionary",
    ),
    "an unknown key": (STUDY + "sedes: [1]\n", "sedes: unknown key"),
    "an unknown setting": (
        changed("online: {}", "online: {x: 1}"),
        "online.x: unknown key",
    ),
    "a setting out of range": (
        changed("online: {}", "online: {query_noise_ratio: 1}"),
        "methods.online.query_noise_ratio: 1; must be greater than 1",
    ),
    "a setting of no number": (
        changed("online: {}", "online: {threshold_rate: .nan}"),
        "methods.online.threshold_rate: nan; must be a finite number",
    ),
    "an unknown method": (changed("online:", "magic:"), "method: 'magic'; must be one of"),
    "an unknown data set": (changed("glyphs:", "runes:"), "datasets.runes: unknown"),
    "epsilon infinite": (
        changed("[3]", "[.inf]"),
        "datasets.glyphs.epsilons.0: inf; must be a finite number",
    ),
    "epsilon zero": (
        changed("[3]", "[0]"),
        "datasets.glyphs.epsilons.0: 0; must be greater than 0",
    ),
    "steps of no time": (
        changed("0.005", "0"),
        "datasets.glyphs.seconds_per_step: 0; must be greater than 0",
    ),
    "a seed of a half": (
        changed("seeds: [0]", "seeds: [0.5]"),
        "seeds.0: 0.5; must be a valid integer",
    ),
    "a name with a path": (
        changed("name: mini", "name: ../x"),
        "name: '../x'; must match pattern '^[a-z0-9_]+$'",
    ),
    "a name of several lines": (
        changed("name: mini", 'name: "a\\nb"'),
        "name: 'a\\nb'; must match pattern '^[a-z0-9_]+$'",
    ),
    # What is no configuration at all.
    "nothing": ("", "must be a mapping of keys to values"),
    "a list": ("- 1\n", "must be a mapping of keys to values"),
    "a word": ("hello\n", "must be a mapping of keys to values"),
    "an open bracket": ("a: [1\n", "not YAML"),
    "a tabulator": ("a:\n\t- 1\n", "not YAML"),
    "two documents": (STUDY + "---\n" + STUDY, "not YAML"),
    "an object of Python": ("!!python/object/apply:os.getcwd []\n", "not YAML"),
    "a day that is none": (changed("name: mini", "name: 2024-13-99"), "not YAML"),
    "itself": ("&a\nname: *a\n", "too many values; must have at most 100,000"),
    "deeper than anybody reads": ("[" * 1500, "nested too deeply"),
    "a control character": ("name: \x01\n", "not YAML"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_that_says_something_else_is_refused(case, place, oso) -> None:
    text, said = CASES[case]
    (place / "bad.yaml").write_text(text)
    before = content(place)
    refused(oso("plan", "--config", "bad.yaml", "--output", "new.json"), "bad.yaml: ", said)
    assert content(place) == before


@pytest.mark.parametrize("case", ["seeds twice", "octal", "a null key"])
def test_whoever_reads_a_configuration_refuses_it(case, place, oso, monkeypatch) -> None:
    text, said = CASES[case]
    (place / "bad.yaml").write_text(text)
    refused(oso("calibrate", "--config", "bad.yaml"), "bad.yaml: ", said)
    with open("bad.yaml") as file:
        monkeypatch.setattr("sys.stdin", file)
        refused(oso("plan", "--config", "-"), "configuration: ", said)


def test_an_endless_file_is_refused_at_once(place, oso, monkeypatch) -> None:
    refused(oso("plan", "--config", "/dev/zero"), "must be a regular file")
    with open("/dev/zero") as file:
        monkeypatch.setattr("sys.stdin", file)
        refused(
            oso("plan", "--config", "-"),
            "configuration: too long; must have at most 10,000,000 characters",
        )


def test_references_that_grow_without_bounds_are_refused_at_once(place, oso) -> None:
    """Nine levels of nine references each are a billion values."""
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


def test_a_file_that_is_no_text_is_named(place, oso) -> None:
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
def test_what_snakemake_hands_over_is_what_the_file_says(case, place) -> None:
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
