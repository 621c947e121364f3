// The timeline: one track for each thread and device stream, drawn on a canvas. Events that are narrower than a pixel are
// added up per pixel column, so that even the whole run needs few drawing operations.
"use strict";

(() => {
  const canvas = document.getElementById("tracks");
  if (!canvas) return; // the capture has no events
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const tooltip = document.getElementById("hover"); // describes the event under the pointer
  const context = canvas.getContext("2d");
  // Sizes in pixels.
  const AXIS = 26; // height of the time axis
  const TITLE = 22; // height of a track's name
  const ROW = 22; // height of a row of events
  const GAP = 3; // between two rows
  const FOOT = 8; // below the last row
  const LABEL = 64; // width of a track's name
  const MIN_STEP_WIDTH = 6; // if steps are narrower on average, one band marks all of them
  const MIN_RANGE = 50; // ticks of `data.tick_seconds`; the shortest time that the view can show

  const cumulativeSums = (values) => { let sum = 0; return Float64Array.from(values, (value) => (sum += value)); };
  const sites = data.sites;
  const tracks = data.tracks.map(({ name, rows }) => ({
    name,
    rows: rows.map((row) => {
      const starts = cumulativeSums(row.starts);
      return { starts, ends: starts.map((start, i) => start + row.lengths[i]), sites: row.sites, nbytes: row.nbytes };
    }),
  }));
  const steps = data.steps;
  const colors = [...new Set(sites.map((site) => site.color))];
  const fullRange = { from: 0, to: Math.max(data.length, MIN_RANGE) };
  const view = { ...fullRange }; // the visible range, in ticks
  let rowPositions = []; // { row, top }, with `top` in pixels
  let palette = {}; // color name -> CSS color
  let hovered = null; // the event under the pointer: { row, index }

  // Formatting

  const formatTicks = (ticks, digits = 3) => {
    const value = ticks * data.tick_seconds;
    for (const [factor, unit] of [[1, "s"], [1e3, "ms"], [1e6, "us"]]) {
      if (value * factor >= 1) return `${Number((value * factor).toPrecision(digits))} ${unit}`;
    }
    return value ? `${Math.round(value * 1e9)} ns` : "0 s";
  };
  const formatBytes = (count) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
    return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
  };

  // Drawing

  const readColors = () => {
    const style = getComputedStyle(document.documentElement);
    const sample = document.createElement("i"); // the canvas needs computed colors, and only an element has them
    document.body.append(sample);
    const resolve = (name) => {
      sample.style.color = `var(--${name})`;
      return getComputedStyle(sample).color;
    };
    for (const name of ["ink", "muted", "line", "sunken", "on-color"]) palette[name] = resolve(name);
    for (const color of colors) palette[color] = resolve(`color-${color}`);
    palette.font = `12px ${style.getPropertyValue("--sans")}`;
    sample.remove();
  };

  const layOut = () => {
    let top = AXIS;
    rowPositions = [];
    for (const track of tracks) {
      track.top = top;
      top += TITLE;
      for (const row of track.rows) {
        rowPositions.push({ row, top });
        top += ROW + GAP;
      }
    }
    const ratio = devicePixelRatio || 1;
    canvas.style.height = `${Math.max(top + FOOT, 90)}px`;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  };

  const toPixel = (time) => ((time - view.from) / (view.to - view.from)) * canvas.clientWidth;
  const toTime = (pixel) => view.from + (pixel / canvas.clientWidth) * (view.to - view.from);

  /** Return the first index whose value in a sorted array is above a limit, or the array's length. */
  const firstIndexAbove = (values, limit) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > limit) high = middle; else low = middle + 1;
    }
    return low;
  };

  const drawBand = (left, right, height) => {
    context.fillStyle = palette.sunken;
    context.fillRect(left, AXIS, right - left, height);
  };
  const drawSteps = (width, height) => {
    if (steps.length < 2) return;
    const last = steps.length - 1;
    const start = toPixel(steps[0]), end = toPixel(steps[last]);
    if ((end - start) / last < MIN_STEP_WIDTH) return drawBand(start, end, height);
    for (let i = Math.max(0, firstIndexAbove(steps, view.from) - 1); i <= last && steps[i] <= view.to; i += 1) {
      const left = toPixel(steps[i]), right = toPixel(steps[Math.min(i + 1, last)]);
      if (i % 2 === 0) drawBand(left, right, height);
      context.fillStyle = palette.line;
      context.fillRect(Math.round(left), AXIS, 1, height);
      const edge = Math.min(right, width) - 6;
      if (edge - Math.max(left, LABEL) < 54) continue; // too narrow for the label, which takes up to 54 pixels
      context.fillStyle = palette.muted;
      context.textAlign = "right";
      context.fillText(`step ${i + 1}`, edge, AXIS + 12);
    }
  };

  const drawAxis = (width) => {
    const minInterval = ((view.to - view.from) / width) * 90; // ticks in 90 pixels, the width of a label
    const power = 10 ** Math.floor(Math.log10(minInterval));
    const interval = power * [1, 2, 5, 10].find((factor) => power * factor >= minInterval);
    const origin = steps.length ? steps[data.first_step] : 0;
    context.textAlign = "left";
    for (let n = Math.ceil((view.from - origin) / interval); origin + n * interval <= view.to; n += 1) {
      const left = Math.round(toPixel(origin + n * interval));
      context.fillStyle = palette.line;
      context.fillRect(left, 0, 1, AXIS);
      context.fillStyle = palette.muted;
      context.fillText((n < 0 ? "\u2212" : "") + formatTicks(Math.abs(n) * interval, 5), left + 5, AXIS / 2);
    }
  };

  /** Draw one column of events narrower than a pixel: a stack of colors, each as high as its share of the time. */
  const drawColumn = (column, shares, top) => {
    let bottom = top + ROW;
    for (const color of colors) {
      const height = ROW * Math.min(1, shares[color] ?? 0);
      context.fillStyle = palette[color];
      context.fillRect(column, bottom - height, 1, height);
      bottom -= height;
    }
  };
  const drawRow = (row, top) => {
    const width = canvas.clientWidth, scale = width / (view.to - view.from);
    let column = -1, shares = {};
    for (let i = firstIndexAbove(row.ends, view.from); i < row.starts.length && row.starts[i] < view.to; i += 1) {
      const left = (row.starts[i] - view.from) * scale, right = (row.ends[i] - view.from) * scale;
      if (right - left >= 1) {
        drawEvent(row, i, Math.max(left, -2), Math.min(right, width + 2), top);
        continue;
      }
      if (Math.floor(left) !== column) {
        drawColumn(column, shares, top);
        column = Math.floor(left);
        shares = {};
      }
      const color = sites[row.sites[i]].color;
      shares[color] = (shares[color] ?? 0) + Math.max(right - left, 0.04); // 0.04 pixels keep very short events visible
    }
    drawColumn(column, shares, top);
  };

  const drawEvent = (row, i, left, right, top) => {
    const site = sites[row.sites[i]];
    const width = Math.max(1, right - left - (right - left > 4 ? 1 : 0));
    context.fillStyle = palette[site.color];
    context.fillRect(left, top, width, ROW);
    if (hovered && hovered.row === row && hovered.index === i) {
      context.strokeStyle = palette.ink;
      context.lineWidth = 2;
      context.strokeRect(left + 1, top + 1, Math.max(1, width - 2), ROW - 2);
    }
    const maxLetters = Math.floor((Math.min(right, canvas.clientWidth) - Math.max(left, 0) - 10) / 6.5); // a letter takes 6.5 pixels
    if (maxLetters < 3) return;
    context.fillStyle = palette["on-color"];
    context.textAlign = "left";
    const label = site.api.length > maxLetters ? `${site.api.slice(0, maxLetters - 1)}\u2026` : site.api;
    context.fillText(label, Math.max(left, 0) + 6, top + ROW / 2 + 0.5);
  };

  const draw = () => {
    const width = canvas.clientWidth, height = canvas.clientHeight;
    context.clearRect(0, 0, width, height);
    context.font = palette.font;
    context.textBaseline = "middle";
    drawSteps(width, height);
    drawAxis(width);
    for (const { row, top } of rowPositions) drawRow(row, top);
    context.textAlign = "left";
    context.fillStyle = palette.muted;
    for (const track of tracks) context.fillText(track.name, 8, track.top + TITLE / 2);
    document.getElementById("range").textContent = `${formatTicks(view.to - view.from)} of ${formatTicks(fullRange.to)}`;
    canvas.dataset.from = view.from;
    canvas.dataset.to = view.to;
  };

  let isRedrawQueued = false;
  const redraw = () => {
    if (isRedrawQueued) return;
    isRedrawQueued = true;
    requestAnimationFrame(() => { isRedrawQueued = false; draw(); });
  };

  // Changing the visible range

  const showRange = (from, to) => {
    const length = Math.min(Math.max(to - from, MIN_RANGE), fullRange.to);
    view.from = Math.min(Math.max(0, from), fullRange.to - length);
    view.to = view.from + length;
    redraw();
  };
  const zoom = (factor, pixel = canvas.clientWidth / 2) => {
    const center = toTime(pixel);
    showRange(center - (center - view.from) * factor, center + (view.to - center) * factor);
  };
  const pan = (share) => showRange(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
  const showSteps = (first, count) => {
    if (steps.length < 2) return showRange(fullRange.from, fullRange.to);
    const last = steps[Math.min(first + count, steps.length - 1)];
    const margin = (last - steps[first]) * 0.02;
    return showRange(steps[first] - margin, last + margin);
  };

  const actions = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    step: () => showSteps(data.first_step, 1),
    steps: () => showSteps(0, steps.length),
    all: () => showRange(fullRange.from, fullRange.to),
  };
  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", actions[button.dataset.show]);
    if (steps.length < 2) button.hidden = ["step", "steps"].includes(button.dataset.show);
  }

  const keys = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
    "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.all, Home: actions.all,
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    keys[event.key]();
    event.preventDefault();
  });

  canvas.addEventListener("wheel", (event) => {
    const length = view.to - view.from;
    const isHorizontal = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const isAtLimit = event.deltaY > 0 ? length >= fullRange.to : length <= MIN_RANGE;
    if (!isHorizontal && isAtLimit) return; // the browser scrolls the page instead
    event.preventDefault();
    if (isHorizontal) pan(event.deltaX / canvas.clientWidth);
    else zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY)) * 0.003), event.offsetX); // by a factor of two at most
  }, { passive: false });

  const pointers = new Map(); // pressed pointers: id -> x position in pixels; one pointer drags, two pointers zoom
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("pressed");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return updateTooltip(event);
    const before = [...pointers.values()];
    pointers.set(event.pointerId, event.offsetX);
    const after = [...pointers.values()];
    if (after.length === 1) return pan((before[0] - after[0]) / canvas.clientWidth);
    const distance = (positions) => Math.max(8, Math.abs(positions[0] - positions[1]));
    return zoom(distance(before) / distance(after), (after[0] + after[1]) / 2);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      pointers.delete(event.pointerId);
      if (!pointers.size) canvas.classList.remove("pressed");
    });
  }

  // Tooltip

  /** Return the index of the event of a row within three pixels of a time; -1 if there is none. */
  const findEvent = (row, time) => {
    const tolerance = toTime(3) - toTime(0);
    const next = firstIndexAbove(row.ends, time - tolerance);
    return next < row.starts.length && row.starts[next] <= time + tolerance ? next : -1;
  };
  const updateTooltip = (event) => {
    const position = rowPositions.find(({ top }) => event.offsetY >= top && event.offsetY < top + ROW);
    const index = position ? findEvent(position.row, toTime(event.offsetX)) : -1;
    const target = index < 0 ? null : { row: position.row, index };
    if (target?.row !== hovered?.row || target?.index !== hovered?.index) {
      hovered = target;
      fillTooltip();
      redraw();
    }
    if (!hovered) return;
    const right = canvas.clientWidth - tooltip.offsetWidth - 8;
    tooltip.style.left = `${Math.max(8, Math.min(event.offsetX + 14, right))}px`;
    tooltip.style.top = `${position.top + ROW + 8}px`;
  };
  const makeElement = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const fillTooltip = () => {
    tooltip.hidden = !hovered;
    if (!hovered) return;
    const { row, index } = hovered;
    const site = sites[row.sites[index]];
    const size = row.nbytes[index] ? `, ${formatBytes(row.nbytes[index])}` : "";
    tooltip.replaceChildren(
      makeElement("b", site.api),
      makeElement("span", `${site.kind}, ${formatTicks(row.ends[index] - row.starts[index])}${size}`),
      ...(site.place ? [makeElement("span", site.place)] : []),
      ...(site.text ? [makeElement("code", site.text)] : []),
    );
  };
  canvas.addEventListener("pointerleave", () => { hovered = null; fillTooltip(); redraw(); });

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
