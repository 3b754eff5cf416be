// Entry of the pages: the words first, then the elements of this page.

import "./shell.js";
import { loadTexts } from "./texts.js";
import { ready } from "./view.js";

const name = location.pathname.replace(/^\/|\/$/g, "") || "home";
await Promise.all([loadTexts(), import(`./page_${name}.js`)]);
ready.resolve();
