"""Build hooks of the documentation site: pages and links beyond docs/, and formulas.

Pages are written for two readers, GitHub and the site. Links are relative to the file, so that both
find their targets; three kinds lead out of docs/ and are changed here:

    README.md                          the home page of the site
    CONTRIBUTING.md, CHANGELOG.md      pages of the site, made from these files
    any other file of the repository   a page that shows the file, under source/

Notebooks become pages, with a link to the file. Their links to each other lead to these pages.

Formulas in dollars become MathML, which browsers draw without a script.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from pathlib import Path, PurePosixPath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}  # file -> page
FILES = {page: file for file, page in PAGES.items()}
LANGUAGES = {
    ".py": "python", ".json": "json", ".toml": "toml", ".js": "javascript", ".c": "c"
}  # fmt: skip
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(```.*?^```$)", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made from files outside docs/."""
    for file, page in PAGES.items():
        text = (ROOT / file).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        page = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, page, content=notebook_page(path)))
    for path in sorted({path for page in files.documentation_pages() for path in shown(page)}):
        language = LANGUAGES.get(Path(path).suffix, "text")
        text = (ROOT / path).read_text("utf-8")
        body = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n````{language}\n{text}````\n"
        files.append(File.generated(config, source_page(path), content=body))
    return files


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown, with a link to the file below its title."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, _, rest = parts[0].partition("\n")
    link = f'<a href="{path.name}" download>Download this notebook</a>'
    return "\n\n".join([title, link, rest, *parts[1:]]) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links between pages."""
    here = page.file.src_uri
    return outside_code(markdown, lambda text: LINK.sub(lambda m: site_link(here, m), text))


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn formulas into MathML."""
    return re.sub(
        r'<(?P<tag>div|span) class="arithmatex">\\[\[(](?P<tex>.*?)\\[\])]</(?P=tag)>',
        mathml,
        content,
        flags=re.S,
    )


def mathml(match: re.Match[str]) -> str:
    tex = html.unescape(match["tex"]).strip()
    if match["tag"] == "div":
        return f'<div class="formula">{convert(tex, display="block")}</div>'
    return convert(tex)


def outside_code(markdown: str, change) -> str:
    """Apply a function to the text outside fenced code."""
    parts = FENCE.split(markdown)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def shown(page: File) -> set[str]:
    """Return the files of the repository that a page links to and that get a page of their own."""
    found: set[str] = set()
    if page.src_uri not in FILES and page.generated_by:
        return found

    def collect(text: str) -> str:
        for match in LINK.finditer(text):
            path = repository_path(page.src_uri, match["path"])
            if is_shown(path):
                found.add(path)
        return text

    outside_code(page.content_string, collect)
    return found


def repository_path(page: str, link: str) -> str:
    """Return where a link of a page leads, as a path in the repository."""
    source = FILES.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def is_shown(path: str) -> bool:
    """Return whether the site shows a file as source: it is text, and no page or picture."""
    if not (ROOT / path).is_file() or path == "README.md" or path in PAGES:
        return False
    in_docs = PurePosixPath(path).is_relative_to("docs")
    return not in_docs or Path(path).suffix in (".py", ".json", ".patch", ".c")


def source_page(path: str) -> str:
    return f"source/{path}.md"


def site_link(page: str, match: re.Match[str]) -> str:
    """Return a link as it is right in the site."""
    path = repository_path(page, match["path"])
    if path == "README.md":
        target = "index.md"
    elif path in PAGES:
        target = PAGES[path]
    elif is_shown(path):
        target = source_page(path)
    elif path.startswith("docs/"):
        target = re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
    else:
        return match[0]  # nowhere: the build says so
    return posixpath.relpath(target, posixpath.dirname(page) or ".") + (match["anchor"] or "")
