"""What stands in the head of every page: styles, icon, theme and language before the first paint. Imports no Gradio."""

from __future__ import annotations

import json
from collections.abc import Sequence

from flash_grpo_studio.app.pages.assets import Assets

# One address per script, whatever name it is asked for by: twice loaded, a module would have two states.
_HEAD = """
<script type="importmap">{{"imports": {{"/web/": "{root}/", "{root}/": "{root}/"}}}}</script>
<script>
(() => {{
  const kept = (name) => localStorage.getItem(`flash-grpo-${{name}}`);
  const page = document.documentElement;
  const theme = kept("theme") || "system";
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  page.dataset.theme = dark ? "dark" : "light";
  const language = kept("language") || navigator.language;
  page.lang = language.toLowerCase().startsWith("zh") ? "zh-Hans" : "en";
  const id = encodeURIComponent(new URLSearchParams(location.search).get("id") ?? "");
  const first = {first}.filter((path) => id || !path.includes("ID")).map((path) => path.replace("ID", id));
  for (const href of [...{words}[page.lang === "en" ? "en" : "zh"], ...first]) {{
    const link = document.createElement("link");
    document.head.append(Object.assign(link, {{ rel: "preload", as: "fetch", crossOrigin: "anonymous", href }}));
  }}
}})();
</script>
<link rel="stylesheet" href="{root}/studio.css">
<link rel="icon" href="{root}/icon.svg" type="image/svg+xml">
"""
_WORDS = {"en": ("texts/en.json",), "zh": ("texts/zh.json", "server_zh.json")}
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">{head}<title>{title}</title></head>
<body>{body}</body></html>"""


def head(assets: Assets, scripts: Sequence[str] = (), first: Sequence[str] = ()) -> str:
    """The head of a page that runs `scripts`, the last of which is loaded by the one before it where there are two.

    All that they import is asked for at once, and so are the answers of the API that they begin with (`first`).
    """
    root = assets.root
    words = {name: [f"{root}/{file}" for file in files if scripts] for name, files in _WORDS.items()}
    asked = [f"/api/v1{path}" for path in first]
    lines = [_HEAD.format(root=root, words=json.dumps(words), first=json.dumps(asked))]
    lines += [f'<link rel="modulepreload" href="{root}/{name}">' for name in assets.needed(*scripts)]
    lines += [f'<script type="module" src="{root}/{name}"></script>' for name in scripts[:1]]
    return "\n".join(lines)


def own_page(assets: Assets, title: str, body: str, more: str = "", scripts: Sequence[str] = ()) -> str:
    """A page that needs no Gradio; `title`, `body` and `more` are markup."""
    return _PAGE.format(title=title, body=body, head=head(assets, scripts) + more)
