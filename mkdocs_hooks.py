"""The site has the repository's paths, so that a link leads where it leads on GitHub.

MkDocs reads one folder. Here the site gets the pages of the repository and of docs/ with all that
they link to: pages of results/ and others, pictures and scripts, and modules as pages with line
numbers.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).parent
LINK = re.compile(r'(?:\]\(|src=")([^)"#:\s]+)[)"#]')
LINES = re.compile(r"(\.py#L)(\d+)-L\d+")  # GitHub's, of a module
NUMBERED = HtmlFormatter(linenos="table", lineanchors="L", anchorlinenos=True, wrapcode=True)
MODULE = """---
search: {{exclude: true}}
hide: [toc]
---
# {path}

{code}
"""


class ModulePage(File):
    """A Python module that is shown as a page."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, the pages, and what they link to."""
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    in_nav = {page.relative_to(ROOT).as_posix() for page in pages}
    left = sorted(in_nav)
    while left:
        path = left.pop()
        if site.get_file_from_path(path) is not None or not (ROOT / path).is_file():
            continue
        file = _file(path, config)
        file.inclusion = InclusionLevel.INCLUDED if path in in_nav else InclusionLevel.NOT_IN_NAV
        site.append(file)
        if path.endswith(".md"):
            links = LINK.findall(file.content_string)
            left += [normpath(join(dirname(path), link)) for link in links]
    return site


def on_page_markdown(markdown: str, **_: object) -> str:
    """A link to lines of a module leads to the first of them on its page."""
    return LINES.sub(r"\1-\2", markdown)


def _file(path: str, config: MkDocsConfig) -> File:
    """A file of the repository in the site."""
    if not path.endswith(".py"):
        return File.generated(config, path, abs_src_path=str(ROOT / path))
    code = highlight((ROOT / path).read_text(encoding="utf-8"), PythonLexer(), NUMBERED)
    return ModulePage.generated(config, path, content=MODULE.format(path=path, code=code))
