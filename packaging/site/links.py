"""What the pages link to outside of docs is on GitHub."""

import posixpath
import re

LINK = re.compile(r"\]\(([^):#]+)(#[^)]*)?\)")


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname("docs/" + page.file.src_uri)

    def link(match):
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        if target.startswith("docs/"):
            return match[0]
        return "](" + config["repo_url"] + "/blob/main/" + target + (match[2] or "") + ")"

    return LINK.sub(link, markdown)
