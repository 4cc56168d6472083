"""What matplotlib writes into an SVG and no picture needs: groups, repeated styles, digits."""

import re

_PATH = re.compile(rb' d="[^"]*"')
_MARKERS = re.compile(rb'<g clip-path="[^"]*">(?:\s*<use [^>]*/>)+\s*</g>')
_PLACE = re.compile(rb'(<use [^>]*?x="-?\d+\.\d)\d*(" y="-?\d+\.\d)\d*')
_STYLE = re.compile(rb' style="[^"]*"')
_NAME = re.compile(rb'<g id="[^"]*">')
_GROUP = re.compile(rb"<g\b[^>]*>|</g>")
_NOT_TURNED = re.compile(rb' transform="rotate\(-?0 [^"]*\)"')
_WRITTEN = re.compile(rb'(<text [^>]*?x="-?\d+\.\d\d)\d*(" y="-?\d+\.\d\d)\d*')
_GAP = re.compile(rb">\s+<(?!/?t(?:ext|span))")  # spaces between the parts of a text are seen


def smaller(svg: bytes) -> bytes:
    """The same picture: a tenth of a point is enough for lines and markers."""
    drawn = _PATH.sub(_shortened, svg)
    drawn = _MARKERS.sub(_with_one_style, _PLACE.sub(rb"\1\2", drawn))
    drawn = _STYLE.sub(lambda style: re.sub(rb"([:;]) ", rb"\1", style[0]), drawn)
    drawn = _WRITTEN.sub(rb"\1\2", _NOT_TURNED.sub(b"", drawn))
    drawn = _without_plain_groups(_NAME.sub(b"<g>", drawn))  # nothing refers to a group
    return _GAP.sub(b"><", drawn)


def _shortened(path: re.Match[bytes]) -> bytes:
    """Curves keep a hundredth."""
    kept = rb"(\.\d\d)\d+" if b"C" in path[0] else rb"(\.\d)\d+"
    return re.sub(kept, rb"\1", path[0])


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
