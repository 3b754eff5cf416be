// A copy of flash_grpo_studio/app/web/player/dom.js, made by `make comfyui-pack`; edit that file instead.
// Making elements without markup: what comes from a person or a file is always text.

/** An element; `props` are set as properties where there is one, else as attributes; null children are left out. */
export function element(name, props = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== "role" && !key.startsWith("aria")) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const PATHS = {
  play: "M7 4v16l13-8z",
  pause: "M6 4h4v16H6zM14 4h4v16h-4z",
  back: "M17 5v14L7 12zM5 5h2v14H5z",
  forward: "M7 5v14l10-7zM17 5h2v14h-2z",
  backTen: "M12 5v14l-9-7zM21 5v14l-9-7z",
  forwardTen: "M12 5v14l9-7zM3 5v14l9-7z",
  loopIn: "M5 4h6v2H7v12h4v2H5zM14 7v10l6-5z",
  loopOut: "M19 4h-6v2h4v12h-4v2h6zM4 7v10l6-5z",
  loopClear: "M5 4h5v2H7v12h3v2H5zM19 4h-5v2h3v12h-3v2h5zM10.5 9L12 10.5 13.5 9 15 10.5 13.5 12 15 13.5 13.5 15 12 13.5 10.5 15 9 13.5 10.5 12 9 10.5z",
  swap: "M7 4L2 9l5 5v-4h8V8H7zM17 10l5 5-5 5v-4H9v-2h8z",
  zoom: "M10 3a7 7 0 1 0 4.2 12.6l5.1 5.1 1.4-1.4-5.1-5.1A7 7 0 0 0 10 3zm0 2a5 5 0 1 1 0 10 5 5 0 0 1 0-10zM9 7h2v2h2v2h-2v2H9v-2H7V9h2z",
  full: "M4 4h6v2H6v4H4zM14 4h6v6h-2V6h-4zM4 14h2v4h4v2H4zM18 14h2v6h-6v-2h4z",
};

/** A picture for a button, not told to assistive technology. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** A toolbar: one stop of the Tab key, arrows go from button to button. */
export function toolbar(buttons) {
  const bar = element("div", { role: "toolbar", className: "bar" }, buttons);
  const usable = () => buttons.filter((button) => !button.disabled && !button.hidden);
  const enter = (button) => {
    for (const other of buttons) other.tabIndex = other === button ? 0 : -1;
  };
  bar.addEventListener("focusin", (event) => buttons.includes(event.target) && enter(event.target));
  bar.addEventListener("keydown", (event) => {
    const list = usable();
    const place = list.indexOf(event.target);
    const steps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: list.length - 1 };
    if (place < 0 || !(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    list[(steps[event.key] + list.length) % list.length].focus();
  });
  // A button that is switched off must not keep the only stop.
  bar.settle = () => {
    const list = usable();
    if (list.length && !list.some((button) => button.tabIndex === 0)) enter(list[0]);
  };
  enter(buttons[0]);
  return bar;
}
