"""Hooks of mkdocs: committed pages outside docs, links to them, and the generated parts of the reference.

Pages keep the links that work in the repository. The site has docs/ at its root and everything else at the path that it
has in the repository, so that a link is resolved there and written anew.
"""

import os
import posixpath
import re
import sys
from functools import cache
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
OUTSIDE = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("results/README.md", "results/demo/*.png", "results/paper/*.png"),
    *("benchmarks/results/*.md", "benchmarks/results/*.png"),
)
SHOWN_BY_OTHER_PAGES = {f"benchmarks/results/{name}.md" for name in ("quality_table", "neighbours", "scale", "flights")}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
COMMAND_WIDTH = "100"


def on_files(files, config):
    """Add the committed pages and pictures that are outside docs."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            if (name := path.relative_to(ROOT).as_posix()) not in SHOWN_BY_OTHER_PAGES:
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Write links anew, and fill in what the reference takes from the code."""
    generated = page.file.generated_by is not None
    here = page.file.src_uri if generated else f"docs/{page.file.src_uri}"

    def rewritten(match):
        mark, label, target, anchor = match.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        if not (ROOT / target).exists():
            return match[0]
        uri = target.removeprefix("docs/")
        if files.get_file_from_path(uri) is None:
            return label  # a folder, or code: the repository has it, the site has not
        return f"{mark}[{label}]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor or ''})"

    return _with_reference(LINK.sub(rewritten, markdown))


def _with_reference(markdown: str) -> str:
    """Return a page with lists of public names, settings and help texts in place of the comments that ask for them."""
    public, commands, parameters = _package()

    def names(match):
        home, options = match[1], "{{heading: overtone.{0}, toc_label: {0}}}"
        return "\n\n".join(
            f"::: overtone.{home}.{name}\n    options: {options.format(name)}" for name in public[home].split()
        )

    def settings(match):
        actions = {action.dest: action for action in commands["fit"]._actions}
        rows = ((a, a.option_strings[0], a.help.replace("%%", "%")) for a in map(actions.get, parameters))
        return "\n\n".join(f"`{a.dest}` (`{flag}`)\n:   {text}" for a, flag, text in rows)

    def help_texts(match):
        return "\n\n".join(f"## overtone {name}\n\n```text\n{_brief(command)}```" for name, command in commands.items())

    for pattern, replacement in (
        (r"<!-- names: ([\w.]+) -->", names),
        (r"<!-- settings -->", settings),
        (r"<!-- help -->", help_texts),
    ):
        markdown = re.sub(pattern, replacement, markdown)
    return markdown


@cache
def _package():
    """Return the public names of each module, the parsers of the commands and the settings, without importing JAX."""
    sys.path.insert(0, str(ROOT / "src"))
    os.environ.update(COLUMNS=COMMAND_WIDTH, NO_COLOR="1")
    from overtone import NAMES
    from overtone.app.cli import build_parser
    from overtone.autopilot.config import PARAMETERS

    commands = next(action.choices for action in build_parser()._actions if action.dest == "command")
    return NAMES, commands, PARAMETERS


def _brief(command) -> str:
    """Return the help text of a command without the expert options, which are on the page of the settings."""
    return command.format_help().split("\nexpert options:")[0].rstrip() + "\n"
