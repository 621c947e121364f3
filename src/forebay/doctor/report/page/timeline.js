// The timeline: one track for each thread, drawn on a canvas. Events narrower than a pixel are summed per column, so that
// drawing the whole run costs no more than drawing one step.
"use strict";

(() => {
  const canvas = document.getElementById("tracks");
  if (!canvas) return; // the capture has no events
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const hover = document.getElementById("hover");
  const context = canvas.getContext("2d");
  const AXIS = 26, TITLE = 22, ROW = 22, GAP = 3, FOOT = 8, LABEL = 64; // pixels; LABEL is the width of a track's name
  const DENSE = 6; // pixels; narrower steps are drawn as one band
  const NARROWEST = 50; // ticks; the smallest range that the view can show

  const running = (steps) => { let sum = 0; return Float64Array.from(steps, (step) => (sum += step)); };
  const sites = data.sites;
  const tracks = data.tracks.map(({ name, rows }) => ({
    name,
    rows: rows.map((row) => {
      const starts = running(row.starts);
      return { starts, ends: starts.map((start, i) => start + row.lengths[i]), sites: row.sites, nbytes: row.nbytes };
    }),
  }));
  const steps = data.steps;
  const colors = [...new Set(sites.map((site) => site.color))];
  const whole = { from: 0, to: Math.max(data.length, NARROWEST) };
  const view = { ...whole };
  let tops = []; // the position of each row: { row, top }
  let palette = {};
  let pointed = null; // { row, index }

  // Formatting

  const seconds = (ticks, digits = 3) => {
    const value = ticks * data.tick_seconds;
    for (const [factor, unit] of [[1, "s"], [1e3, "ms"], [1e6, "us"]]) {
      if (value * factor >= 1) return `${Number((value * factor).toPrecision(digits))} ${unit}`;
    }
    return value ? `${Math.round(value * 1e9)} ns` : "0 s";
  };
  const bytes = (count) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let place = 0;
    while (count >= 1024 && place < units.length - 1) { count /= 1024; place += 1; }
    return `${place ? count.toFixed(1) : count} ${units[place]}`;
  };

  // Drawing

  const readColors = () => {
    const style = getComputedStyle(document.documentElement);
    const probe = document.createElement("i");
    document.body.append(probe);
    const resolve = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    for (const name of ["ink", "muted", "line", "sunken", "on-color"]) palette[name] = resolve(name);
    for (const color of colors) palette[color] = resolve(`color-${color}`);
    palette.font = `12px ${style.getPropertyValue("--sans")}`;
    probe.remove();
  };

  const layOut = () => {
    let top = AXIS;
    tops = [];
    for (const track of tracks) {
      track.top = top;
      top += TITLE;
      for (const row of track.rows) {
        tops.push({ row, top });
        top += ROW + GAP;
      }
    }
    const ratio = devicePixelRatio || 1;
    canvas.style.height = `${Math.max(top + FOOT, 90)}px`;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  };

  const x = (time) => ((time - view.from) / (view.to - view.from)) * canvas.clientWidth;
  const timeAt = (place) => view.from + (place / canvas.clientWidth) * (view.to - view.from);

  /** The first index of a sorted array whose value is above a limit. */
  const above = (values, limit) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > limit) high = middle; else low = middle + 1;
    }
    return low;
  };

  const band = (left, right, height) => {
    context.fillStyle = palette.sunken;
    context.fillRect(left, AXIS, right - left, height);
  };
  const drawSteps = (width, height) => {
    if (steps.length < 2) return;
    const last = steps.length - 1;
    if ((x(steps[last]) - x(steps[0])) / last < DENSE) return band(x(steps[0]), x(steps[last]), height);
    for (let i = Math.max(0, above(steps, view.from) - 1); i <= last && steps[i] <= view.to; i += 1) {
      const left = x(steps[i]), right = x(steps[Math.min(i + 1, last)]);
      if (i % 2 === 0) band(left, right, height);
      context.fillStyle = palette.line;
      context.fillRect(Math.round(left), AXIS, 1, height);
      const edge = Math.min(right, width) - 6;
      if (edge - Math.max(left, LABEL) < 54) continue;
      context.fillStyle = palette.muted;
      context.textAlign = "right";
      context.fillText(`step ${i + 1}`, edge, AXIS + 12);
    }
  };

  const drawAxis = (width) => {
    const rough = ((view.to - view.from) / width) * 90;
    const power = 10 ** Math.floor(Math.log10(rough));
    const tick = power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
    const origin = steps.length ? steps[data.first_step] : 0;
    context.textAlign = "left";
    for (let n = Math.ceil((view.from - origin) / tick); origin + n * tick <= view.to; n += 1) {
      const left = Math.round(x(origin + n * tick));
      context.fillStyle = palette.line;
      context.fillRect(left, 0, 1, AXIS);
      context.fillStyle = palette.muted;
      context.fillText((n < 0 ? "\u2212" : "") + seconds(Math.abs(n) * tick, 5), left + 5, AXIS / 2);
    }
  };

  /** Events narrower than a pixel fill their column in proportion to their time, one color above another. */
  const drawColumn = (column, busy, top) => {
    let foot = top + ROW;
    for (const color of colors) {
      const tall = ROW * Math.min(1, busy[color] ?? 0);
      context.fillStyle = palette[color];
      context.fillRect(column, foot - tall, 1, tall);
      foot -= tall;
    }
  };
  const drawRow = (row, top) => {
    const width = canvas.clientWidth, scale = width / (view.to - view.from);
    let column = -1, busy = {};
    for (let i = above(row.ends, view.from); i < row.starts.length && row.starts[i] < view.to; i += 1) {
      const left = (row.starts[i] - view.from) * scale, right = (row.ends[i] - view.from) * scale;
      if (right - left >= 1) {
        drawEvent(row, i, Math.max(left, -2), Math.min(right, width + 2), top);
        continue;
      }
      if (Math.floor(left) !== column) {
        drawColumn(column, busy, top);
        column = Math.floor(left);
        busy = {};
      }
      const color = sites[row.sites[i]].color;
      busy[color] = (busy[color] ?? 0) + Math.max(right - left, 0.04); // keep very short events visible
    }
    drawColumn(column, busy, top);
  };

  const drawEvent = (row, i, left, right, top) => {
    const site = sites[row.sites[i]];
    const width = Math.max(1, right - left - (right - left > 4 ? 1 : 0));
    context.fillStyle = palette[site.color];
    context.fillRect(left, top, width, ROW);
    if (pointed && pointed.row === row && pointed.index === i) {
      context.strokeStyle = palette.ink;
      context.lineWidth = 2;
      context.strokeRect(left + 1, top + 1, Math.max(1, width - 2), ROW - 2);
    }
    const letters = Math.floor((Math.min(right, canvas.clientWidth) - Math.max(left, 0) - 10) / 6.5);
    if (letters < 3) return;
    context.fillStyle = palette["on-color"];
    context.textAlign = "left";
    const label = site.api.length > letters ? `${site.api.slice(0, letters - 1)}\u2026` : site.api;
    context.fillText(label, Math.max(left, 0) + 6, top + ROW / 2 + 0.5);
  };

  const draw = () => {
    const width = canvas.clientWidth, height = canvas.clientHeight;
    context.clearRect(0, 0, width, height);
    context.font = palette.font;
    context.textBaseline = "middle";
    drawSteps(width, height);
    drawAxis(width);
    for (const { row, top } of tops) drawRow(row, top);
    context.textAlign = "left";
    context.fillStyle = palette.muted;
    for (const track of tracks) context.fillText(track.name, 8, track.top + TITLE / 2);
    document.getElementById("range").textContent = `${seconds(view.to - view.from)} of ${seconds(whole.to)}`;
    canvas.dataset.from = view.from;
    canvas.dataset.to = view.to;
  };

  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };

  // Moving

  const show = (from, to) => {
    const length = Math.min(Math.max(to - from, NARROWEST), whole.to);
    view.from = Math.min(Math.max(0, from), whole.to - length);
    view.to = view.from + length;
    redraw();
  };
  const zoom = (factor, place = canvas.clientWidth / 2) => {
    const centre = timeAt(place);
    show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  };
  const move = (share) => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
  const showSteps = (first, count) => {
    if (steps.length < 2) return show(whole.from, whole.to);
    const last = steps[Math.min(first + count, steps.length - 1)];
    const margin = (last - steps[first]) * 0.02;
    return show(steps[first] - margin, last + margin);
  };

  const actions = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    step: () => showSteps(data.first_step, 1),
    steps: () => showSteps(0, steps.length),
    all: () => show(whole.from, whole.to),
  };
  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", actions[button.dataset.show]);
    if (steps.length < 2) button.hidden = ["step", "steps"].includes(button.dataset.show);
  }

  const keys = {
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2),
    "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.all, Home: actions.all,
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    keys[event.key]();
    event.preventDefault();
  });

  canvas.addEventListener("wheel", (event) => {
    const length = view.to - view.from;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways && (event.deltaY > 0 ? length >= whole.to : length <= NARROWEST)) return; // the zoom is at its limit: let the page scroll
    event.preventDefault();
    if (sideways) move(event.deltaX / canvas.clientWidth);
    else zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY)) * 0.003), event.offsetX);
  }, { passive: false });

  const pressed = new Map(); // pressed pointers and their positions: one pointer drags, two zoom
  canvas.addEventListener("pointerdown", (event) => {
    pressed.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("pressed");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pressed.has(event.pointerId)) return point(event);
    const before = [...pressed.values()];
    pressed.set(event.pointerId, event.offsetX);
    const after = [...pressed.values()];
    if (after.length === 1) return move((before[0] - after[0]) / canvas.clientWidth);
    const gap = (places) => Math.max(8, Math.abs(places[0] - places[1]));
    return zoom(gap(before) / gap(after), (after[0] + after[1]) / 2);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      pressed.delete(event.pointerId);
      if (!pressed.size) canvas.classList.remove("pressed");
    });
  }

  // Pointing

  const nearest = (row, time) => {
    const slack = timeAt(3) - timeAt(0);
    const next = above(row.ends, time - slack);
    return next < row.starts.length && row.starts[next] <= time + slack ? next : -1;
  };
  const point = (event) => {
    const under = tops.find(({ top }) => event.offsetY >= top && event.offsetY < top + ROW);
    const index = under ? nearest(under.row, timeAt(event.offsetX)) : -1;
    const found = index < 0 ? null : { row: under.row, index };
    if (found?.row !== pointed?.row || found?.index !== pointed?.index) {
      pointed = found;
      describe();
      redraw();
    }
    if (!pointed) return;
    const right = canvas.clientWidth - hover.offsetWidth - 8;
    hover.style.left = `${Math.max(8, Math.min(event.offsetX + 14, right))}px`;
    hover.style.top = `${under.top + ROW + 8}px`;
  };
  const line = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const describe = () => {
    hover.hidden = !pointed;
    if (!pointed) return;
    const { row, index } = pointed;
    const site = sites[row.sites[index]];
    const moved = row.nbytes[index] ? `, ${bytes(row.nbytes[index])}` : "";
    hover.replaceChildren(
      line("b", site.api),
      line("span", `${site.kind}, ${seconds(row.ends[index] - row.starts[index])}${moved}`),
      ...(site.place ? [line("span", site.place)] : []),
      ...(site.text ? [line("code", site.text)] : []),
    );
  };
  canvas.addEventListener("pointerleave", () => { pointed = null; describe(); redraw(); });

  // Start

  const applyTheme = () => { palette = {}; readColors(); redraw(); };
  document.addEventListener("themechange", applyTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  new ResizeObserver(() => { layOut(); draw(); }).observe(canvas.parentElement);
  for (const color of colors) document.querySelector(`.legend [data-color="${color}"]`)?.removeAttribute("hidden");
  document.getElementById("timeline-summary").textContent = data.summary;
  readColors();
  layOut();
  showSteps(data.first_step, 4);
})();
