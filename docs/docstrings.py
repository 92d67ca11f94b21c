"""An extension of griffe that writes docstrings as Markdown and adds the fields of classes.

Docstrings here are plain sentences, indented formulas, doctests, and entries such as `exposure: of counts, ...`. The
first two are Markdown already; doctests become blocks of code, and entries a list. Modules of Equinox are made from
their fields, which no signature shows.
"""

import re

import griffe

DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
SKIPPED = re.compile(r" *# doctest: \+SKIP")
ENTRY = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): ", re.MULTILINE)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    text = DOCTEST.sub(lambda match: f"```pycon\n{SKIPPED.sub('', match[0])}\n```", text)
    return ENTRY.sub(lambda match: f"\n- `{match[1]}`: ", text)


def fields(kind: griffe.Class) -> dict[str, str]:
    """Return the fields of a class and of those that it inherits from, as they are written."""
    found, line = {}, [kind, *kind.mro()]
    if any("__init__" in each.members for each in line):
        return {}  # its signature is shown
    for each in reversed(line):
        for name, member in each.attributes.items():
            is_field = member.annotation is not None and "instance-attribute" in member.labels
            if is_field and not name.startswith("_"):
                value = str(member.value)
                constant = each.module.attributes.get(value)  # such as LENGTHSCALE
                default = f" = {constant.value if constant else value}" if member.value is not None else ""
                found[name] = f"{name}: {member.annotation}{default}"
    return found


class Markdown(griffe.Extension):
    """Rewrite all docstrings once the package has been read."""

    def on_package(self, *, pkg: griffe.Module, **kwargs) -> None:
        for each in _objects(pkg):
            if each.docstring is None:
                continue
            each.docstring.value = as_markdown(each.docstring.value)
            if isinstance(each, griffe.Class) and each.bases:
                each.docstring.value += _block(fields(each))


def _block(written: dict[str, str]) -> str:
    return "\n\n```python\n{}\n```".format("\n".join(written.values())) if written else ""


def _objects(parent: griffe.Object):
    for member in parent.members.values():
        if isinstance(member, griffe.Object):  # and not an alias, which is visited at home
            yield member
            yield from _objects(member)
