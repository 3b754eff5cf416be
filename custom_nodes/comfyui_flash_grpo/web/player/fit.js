// A copy of flash_grpo_studio/app/web/player/fit.js, made by `make comfyui-pack`; edit that file instead.
// With the attribute `fit`, the pictures take the height that the element has left by everything around them.

const LEAST = 120; // px; below, the page has to scroll

export function fits(host, body, stage) {
  const settle = () => {
    if (!host.hasAttribute("fit")) return;
    const around = body.scrollHeight - stage.offsetHeight;
    stage.style.setProperty("--fitted", `${Math.max(LEAST, host.clientHeight - around)}px`);
  };
  const observer = new ResizeObserver(settle);
  // All but the stage, which this resizes.
  for (const part of [host, ...body.children]) if (part !== stage) observer.observe(part);
}
