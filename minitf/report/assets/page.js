"use strict";
// What every page needs: data, texts, elements, colours, maps, the state in the address, copying, errors.

const $ = (id) => document.getElementById(id);
const json = (id) => JSON.parse($(id).textContent);
const STRINGS = json("strings");
const MANIFEST = json("manifest");
const TYPES = { uint8: Uint8Array, uint16: Uint16Array, int32: Int32Array, float32: Float32Array };
const arrays = new Map();

function fail(message) {
  $("error").textContent = tr("failed", { message });
  $("error").hidden = false;
}
window.addEventListener("error", (event) => fail(event.message));
window.addEventListener("unhandledrejection", (event) => fail(String(event.reason)));

// A text of the page's language with its places filled.
function tr(key, values = {}) {
  let text = STRINGS[key] ?? key;
  for (const [name, value] of Object.entries(values)) text = text.split(`{${name}}`).join(String(value));
  return text;
}

// The word for a role or a measure; names that are not known stay as they are.
function word(name, group = "name") {
  const known = STRINGS[`${group}.${name.toLowerCase().replace(/[_-]/g, " ")}`];
  return known ?? (group === "name" ? name.replace(/_/g, " ") : "");
}

// An array that Python put into the page; decoded once.
function array(name) {
  if (arrays.has(name)) return arrays.get(name);
  const Type = TYPES[MANIFEST[name].dtype];
  const text = atob($(`array-${name}`).textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const made = new Type(bytes.buffer);
  arrays.set(name, made);
  return made;
}

// An element with attributes and children; text is text, whatever it holds. on...: a listener.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A token, kept apart from its neighbours if it runs from right to left.
const bdi = (text) => el("bdi", { class: "token" }, text);

// A number for the eye. What is not finite arrives as its name.
function fmt(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  const text = value.toFixed(digits);
  return Number(text) < 0 ? text.replace("-", "−") : text.replace("-", "");
}

// A measure of a head: whole ones, such as an offset, without a fraction.
const fmtMetric = (value) => fmt(value, Number.isInteger(value) ? 0 : 4);

// A number for a program: all that is known, ASCII.
const exact = (value) => (typeof value === "number" ? String(Math.round(value * 1e6) / 1e6) : value ?? "");

// ---- colours: one ramp, light to dark blue, computed in OKLab

const MASKED = [0xcf, 0xc6, 0xb8];

function oklab(L, a, b) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((x) => {
    const light = Math.min(1, Math.max(0, x));
    return Math.round(255 * (light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055));
  });
}

const ramp = (t) => oklab(0.985 - 0.7 * t, -0.01 * t, -0.005 - 0.11 * Math.sin(Math.PI * Math.min(1, 0.8 * t + 0.1)));
const SCALES = {
  sqrt: (v) => Math.sqrt(v),
  linear: (v) => v,
  log: (v) => 1 + Math.log10(Math.max(v, 1e-4)) / 4,
};
const TOP = 65535;
const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
const tables = {};

// Colour of each of the 65536 weights on one scale, as canvas pixels.
function colours(scale) {
  if (tables[scale]) return tables[scale];
  const steps = Uint32Array.from({ length: 1025 }, (_, i) => pixel(ramp(i / 1024)));
  tables[scale] = Uint32Array.from({ length: TOP + 1 }, (_, u) => steps[Math.round(1024 * SCALES[scale](u / TOP))]);
  return tables[scale];
}

// ---- maps: {values, masked, rows, columns}; every pixel shows the largest weight of its cells

function paint(canvas, map, width, height, scale) {
  const { values, masked, rows, columns } = map;
  const table = colours(scale);
  const hidden = pixel(MASKED);
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const out = new Uint32Array(image.data.buffer);
  const across = spans(columns, width);
  const down = spans(rows, height);
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at++) {
      let most = -1;
      for (let i = down[2 * y]; i < down[2 * y + 1]; i++) {
        for (let j = across[2 * x], k = i * columns + j; j < across[2 * x + 1]; j++, k++) {
          if (!(masked && masked[k]) && values[k] > most) most = values[k];
        }
      }
      out[at] = most < 0 ? hidden : table[most];
    }
  }
  context.putImageData(image, 0, 0);
}

// First cell, and the one after the last, of every pixel.
function spans(cells, pixels) {
  const found = new Int32Array(2 * pixels);
  for (let p = 0; p < pixels; p++) {
    found[2 * p] = Math.floor((p * cells) / pixels);
    found[2 * p + 1] = pixels >= cells ? found[2 * p] + 1 : Math.ceil(((p + 1) * cells) / pixels);
  }
  return found;
}

// Colours with their numbers, and what masked looks like.
function legend(box, scale) {
  const canvas = el("canvas", { role: "img", "aria-label": tr("legend.label") });
  canvas.width = 256;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  for (let x = 0; x < 256; x++) {
    context.fillStyle = `rgb(${ramp(x / 255).join(" ")})`;
    context.fillRect(x, 0, 1, 1);
  }
  const marks = el("div", { class: "ticks", "aria-hidden": "true" });
  for (const value of scale === "linear" ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.01, 0.1, 0.3, 1]) {
    const tick = el("span", {}, String(value));
    tick.style.left = `${100 * SCALES[scale](value)}%`;
    marks.append(tick);
  }
  const masked = el("span", { class: "masked-key" }, el("i", { class: "swatch" }), tr("legend.masked"));
  box.replaceChildren(el("div", { class: "ramp" }, canvas, marks), masked);
}

// ---- state in the address: every value is a number in a range or one of a list

function readHash(allowed) {
  const found = {};
  let bad = false;
  for (const part of location.hash.slice(1, 500).split("&").filter(Boolean)) {
    const [name, text = ""] = part.split("=");
    const rule = Object.hasOwn(allowed, name) ? allowed[name] : null;
    let value = text;
    try {
      value = decodeURIComponent(text);
    } catch {
      bad = true;
    }
    if (Array.isArray(rule) && rule.includes(value)) found[name] = value;
    else if (rule && !Array.isArray(rule) && /^\d{1,6}$/.test(value) && Number(value) < rule.below) found[name] = Number(value);
    else bad = true;
  }
  return { found, bad };
}

function writeHash(state) {
  const parts = Object.entries(state).filter(([, value]) => value !== "" && value !== null);
  history.replaceState(null, "", `#${parts.map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&")}`);
}

// ---- copying

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(tr("copied"));
  } catch {
    const field = el("textarea", { readonly: true, rows: "4", "aria-label": tr("copy") });
    field.value = text;
    const close = el("button", { type: "button", onclick: () => ($("toast").hidden = true) }, tr("close"));
    toast(tr("copy.by.hand"), el("br"), field, close);
    field.focus();
    field.select();
  }
}

let toastTimer = 0;
function toast(...content) {
  clearTimeout(toastTimer);
  $("toast").replaceChildren(...content);
  $("toast").hidden = false;
  if (content.length === 1) toastTimer = setTimeout(() => ($("toast").hidden = true), 2500);
}

const tsv = (rows) => rows.map((row) => row.map((cell) => exact(cell)).join("\t")).join("\n") + "\n";

// Arrow keys, Home and End as steps: [down, right], or null.
function steps(event) {
  const known = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const far = { Home: [0, -1e6], End: [0, 1e6], PageUp: [-8, 0], PageDown: [8, 0] };
  const found = event.ctrlKey || event.metaKey || event.altKey ? null : known[event.key] ?? far[event.key];
  if (found) event.preventDefault();
  return found ?? null;
}

const clamp = (value, length) => Math.max(0, Math.min(length - 1, value));
