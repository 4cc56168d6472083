"""Colours and markers, the same in every figure."""

from collections.abc import Iterable

from oso_dp.methods import method_names

# Okabe and Ito's colour-blind safe palette; markers tell methods apart without colour.
_COLOURS = {
    "online": "#0072B2",
    "fixed_threshold": "#D55E00",
    "fixed_quantile": "#009E73",
    "adam_wosm": "#CC79A7",
    "no_dp": "#4D4D4D",
}
_MARKERS = {
    "online": "o",
    "fixed_threshold": "s",
    "fixed_quantile": "D",
    "adam_wosm": "^",
    "no_dp": "P",
}
# Online's adapted values, in figures about these.
STEERED = {"threshold": "#882255", "learning_rate": "#44AA99"}
_MORE_COLOURS = (
    *("#E69F00", "#56B4E9", "#8C6D31", "#000000"),
    *("#332288", "#882255", "#999933", "#44AA99"),  # from Tol's muted palette
    *("#AA4499", "#117733", "#CC6677", "#661100"),
    *("#6699CC", "#B8860B", "#DDCC77"),
)
_MORE_MARKERS = (
    "v",
    "<",
    ">",
    "h",
    "X",
    "*",
    "d",
    "p",
    "8",
    "H",
    "$+$",
    "$=$",
    "$o$",
    "$x$",
    "$v$",
)


def colours(methods: Iterable[str]) -> dict[str, str]:
    """One colour per method, the same in every report for the package's methods."""
    return _assign(methods, _COLOURS, _MORE_COLOURS)


def markers(methods: Iterable[str]) -> dict[str, str]:
    """One marker per method, the same in every report for the package's methods."""
    return _assign(methods, _MARKERS, _MORE_MARKERS)


def _assign(methods: Iterable[str], known: dict[str, str], more: tuple[str, ...]) -> dict[str, str]:
    registered = sorted(set(method_names()) - set(known))  # whether or not this study has them
    extra = registered + sorted(set(methods) - set(known) - set(registered))
    return known | {m: more[i % len(more)] for i, m in enumerate(extra)}
