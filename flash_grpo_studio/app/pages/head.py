"""What stands in the head of every page, Gradio's and our own. Imports no Gradio."""

# The theme is known before the first paint.
HEAD = """
<link rel="stylesheet" href="/web/studio.css">
<link rel="icon" href="/web/icon.svg" type="image/svg+xml">
<script>
(() => {
  const chosen = localStorage.getItem("flash-grpo-theme") || "system";
  const dark = chosen === "dark" || (chosen === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
</script>
"""
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">{head}<title>{title}</title></head>
<body>{body}</body></html>"""


def own_page(title: str, body: str, head: str = "") -> str:
    """A page that needs no Gradio; `title`, `body` and `head` are markup."""
    return _PAGE.format(title=title, body=body, head=HEAD + head)
