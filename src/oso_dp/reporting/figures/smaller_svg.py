"""What matplotlib writes into an SVG and no picture needs: groups, repeated styles, digits."""

import re
from collections import Counter
from itertools import count

_PATH = re.compile(rb' d="[^"]*"')
_MARKERS = re.compile(rb'<g clip-path="[^"]*">(?:\s*<use [^>]*/>)+\s*</g>')
_PLACE = re.compile(rb'(<use [^>]*?x="-?\d+\.\d)\d*(" y="-?\d+\.\d)\d*')
_STYLE = re.compile(rb' style="[^"]*"')
_NAME = re.compile(rb'<g id="[^"]*">')
_GROUP = re.compile(rb"<g\b[^>]*>|</g>")
_NOT_TURNED = re.compile(rb' transform="rotate\(-?0 [^"]*\)"')
_WRITTEN = re.compile(rb'(<text [^>]*?x="-?\d+\.\d\d)\d*(" y="-?\d+\.\d\d)\d*')
_RULES = re.compile(rb"</style>")
_SET_OFF = re.compile(rb" ?([MLQCz]) ?")  # what a path's letters need no space around
_REFERRED = re.compile(rb'( id="|"#|url\(#)([^")]+)')
_GAP = re.compile(rb">\s+<(?!/?t(?:ext|span))")  # spaces between the parts of a text are seen


def smaller(svg: bytes) -> bytes:
    """The same picture: a tenth of a point is enough for lines and markers."""
    drawn = _PATH.sub(_shortened, svg)
    drawn = _MARKERS.sub(_with_one_style, _PLACE.sub(rb"\1\2", drawn))
    drawn = _STYLE.sub(lambda style: re.sub(rb"([:;]) ", rb"\1", style[0]), drawn)
    drawn = _WRITTEN.sub(rb"\1\2", _NOT_TURNED.sub(b"", drawn))
    drawn = _without_plain_groups(_NAME.sub(b"<g>", drawn))  # nothing refers to a group
    return _with_short_names(_with_classes(_GAP.sub(b"><", drawn)))


def _shortened(path: re.Match[bytes]) -> bytes:
    """Curves keep a hundredth."""
    kept = rb"(\.\d\d)\d+" if b"C" in path[0] else rb"(\.\d)\d+"
    short = re.sub(rb"\.0+(?!\d)", b"", re.sub(kept, rb"\1", path[0]))
    return b' d="' + _SET_OFF.sub(rb"\1", short[len(b' d="') :])


def _with_classes(svg: bytes) -> bytes:
    """A style that several parts have is a rule of the picture's, and they name it."""
    if not _RULES.search(svg):
        return svg
    times = Counter(_STYLE.findall(svg))
    classes = {
        style: b"s%d" % number
        for number, style in enumerate(style for style, many in times.items() if many > 1)
    }
    rules = b"".join(
        b".%s{%s}" % (name, style[len(b' style="') : -1]) for style, name in classes.items()
    )

    def named(style: re.Match[bytes]) -> bytes:
        name = classes.get(style[0])
        return b' class="%s"' % name if name else style[0]

    return _RULES.sub(rules + b"</style>", _STYLE.sub(named, svg), count=1)


def _with_short_names(svg: bytes) -> bytes:
    """Names of markers and of frames are matplotlib's hashes, and mean nothing outside."""
    names: dict[bytes, bytes] = {}
    numbers = count()

    def short(name: re.Match[bytes]) -> bytes:
        if name[2] not in names:
            names[name[2]] = b"n%d" % next(numbers)
        return name[1] + names[name[2]]

    return _REFERRED.sub(short, svg)


def _without_plain_groups(svg: bytes) -> bytes:
    """A group that says nothing of what it holds is left out, its content is not."""
    plain: list[bool] = []

    def kept(tag: re.Match[bytes]) -> bytes:
        if tag[0] == b"</g>":
            return b"" if plain.pop() else tag[0]
        if not tag[0].endswith(b"/>"):
            plain.append(tag[0] == b"<g>")
        return b"" if tag[0] in (b"<g>", b"<g/>") else tag[0]

    return _GROUP.sub(kept, svg)


def _with_one_style(group: re.Match[bytes]) -> bytes:
    """A style that all markers of a group have is said once, by the group."""
    markers = group[0]
    styles = _STYLE.findall(markers)
    if len(set(styles)) != 1 or len(styles) != markers.count(b"<use "):
        return markers
    return markers.replace(styles[0], b"").replace(b"<g", b"<g" + styles[0], 1)
