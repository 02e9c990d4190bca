// The archive as a map: Voronoi cells in two dimensions, bars in one, points in a plane of two of many.

import { extent, ofName, ofPage, oncePerFrame, sharp, ticks, viridis } from "./drawing.js";
import { onFingers } from "./fingers.js";

const MARGIN = { left: 44, right: 8, top: 8, bottom: 36 };

/**
 * A map on a canvas. `onPick(cell, place)` is called for a click, `onMove(cell)` for the keyboard;
 * `describe(cell)` gives the text that is shown beside the pointer.
 */
export function createMap(canvas, tip, { onPick, onMove, describe }) {
  let info = null; // the run: bounds, names
  let cells = null; // where cells are
  let archive = null; // what lives in them
  let shade = null; // { kind: "number" | "name", values, low, high }
  let paths = []; // of the cells, in the unit square
  let axes = [0, 1];
  let shown = () => true; // which cells pass the filter
  let selected = -1;
  let marked = null; // cells with a recording, in an exported page
  let journeys = []; // { colour, asked, reached, path }
  let view = { zoom: 1, x: 0, y: 0 }; // the part of the unit square that is seen
  const plan = oncePerFrame(draw);
  canvas.dataset.margin = JSON.stringify(MARGIN); // for whoever wants to know where on it a place is

  const size = () => info.low.length;
  const unit = (value, axis) => (value - info.low[axis]) / (info.high[axis] - info.low[axis]);
  const back = (share, axis) => info.low[axis] + share * (info.high[axis] - info.low[axis]);

  function frame() {
    const box = canvas.getBoundingClientRect();
    return { left: MARGIN.left, top: MARGIN.top,
      width: Math.max(box.width - MARGIN.left - MARGIN.right, 1),
      height: Math.max(box.height - MARGIN.top - MARGIN.bottom, 1) };
  }
  const toScreen = (u, v, f) => [
    f.left + (u - view.x) * view.zoom * f.width,
    f.top + (1 - (v - view.y) * view.zoom) * f.height,
  ];
  const toUnit = (x, y, f) => [
    view.x + (x - f.left) / f.width / view.zoom,
    view.y + (1 - (y - f.top) / f.height) / view.zoom,
  ];

  function build() {
    paths = [];
    if (size() === 2) {
      for (const corners of cells.corners) {
        const path = new Path2D();
        for (let i = 0; i < corners.length; i += 2) {
          path.lineTo(unit(corners[i], 0), unit(corners[i + 1], 1));
        }
        path.closePath();
        paths.push(path);
      }
    }
  }

  /** Where a cell is in the plane that is shown, in the unit square. */
  function placeOf(cell) {
    const own = size() > 2 ? archive.descriptors[cell] : null;
    const at = own && own[0] !== null ? own : cells.centroids[cell];
    return size() === 1 ? [unit(at[0], 0), 0.5] : [unit(at[axes[0]], axes[0]), unit(at[axes[1]], axes[1])];
  }
  const full = (cell) => archive.fitness[cell] !== null;

  function colourOf(cell) {
    const value = shade.values?.[cell];
    if (value === null || value === undefined) return null;
    if (shade.kind === "name") return value < 0 ? null : ofName(value);
    return viridis((value - shade.low) / (shade.high - shade.low || 1));
  }

  function draw() {
    const begun = performance.now();
    const { context } = sharp(canvas);
    if (!info || !cells || !archive || !shade) return;
    const f = frame();
    const [ink, soft, line, empty, ground] = ["ink", "soft", "line", "empty", "ground"].map(ofPage);
    context.save();
    context.beginPath();
    context.rect(f.left, f.top, f.width, f.height);
    context.clip();
    if (size() === 2) drawCells(context, f, empty, ground, ink);
    else if (size() === 1) drawBars(context, f, empty, ink);
    else drawPoints(context, f, ink);
    for (const journey of journeys) drawJourney(context, f, journey, ground);
    context.restore();
    drawAxes(context, f, soft, line);
    // For the developer tools, and for benchmarks/viewer.py; of the last time alone.
    performance.clearMeasures("paint map");
    performance.measure("paint map", { start: begun });
  }

  function drawCells(context, f, empty, ground, ink) {
    const scale = [view.zoom * f.width, view.zoom * f.height];
    context.save();
    context.transform(scale[0], 0, 0, -scale[1], f.left - view.x * scale[0], f.top + f.height + view.y * scale[1]);
    context.lineWidth = 0.6 / Math.max(...scale);
    context.strokeStyle = ground;
    for (let cell = 0; cell < paths.length; cell++) {
      const colour = full(cell) ? colourOf(cell) : null;
      const faded = colour !== null && !shown(cell);
      context.fillStyle = colour === null || faded ? empty : colour;
      context.fill(paths[cell]);
      if (faded) {
        context.globalAlpha = 0.12;
        context.fillStyle = colour;
        context.fill(paths[cell]);
        context.globalAlpha = 1;
      }
      context.stroke(paths[cell]);
    }
    if (selected >= 0) {
      // Seen on every colour: the one of the two lines or the other.
      for (const [style, width] of [[ground, 5.5], [ink, 2.5]]) {
        context.strokeStyle = style;
        context.lineWidth = width / Math.max(...scale);
        context.stroke(paths[selected]);
      }
    }
    context.restore();
    if (marked) for (const cell of marked) dot(context, ...toScreen(...placeOf(cell), f), 3.5, ground, ink);
  }

  /** What the bottom and the top of bars stand for. */
  function heights() {
    const [least, most] = extent(archive.fitness);
    return [Math.min(0, least), Math.max(most, least + 1e-9, 1e-9)];
  }

  function drawBars(context, f, empty, ink) {
    const order = cells.centroids.map((c, i) => [unit(c[0], 0), i]).sort((a, b) => a[0] - b[0]);
    const [low, high] = heights();
    order.forEach(([middle, cell], k) => {
      const from = k ? (order[k - 1][0] + middle) / 2 : 0;
      const to = k < order.length - 1 ? (order[k + 1][0] + middle) / 2 : 1;
      const [left] = toScreen(from, 0, f);
      const [right] = toScreen(to, 0, f);
      const height = Math.max(full(cell) ? ((archive.fitness[cell] - low) / (high - low)) * f.height : 0, 3);
      context.globalAlpha = full(cell) && !shown(cell) ? 0.12 : 1;
      context.fillStyle = (full(cell) && colourOf(cell)) || empty;
      context.fillRect(left, f.top + f.height - height, Math.max(right - left - 0.5, 0.5), height);
      if (cell === selected) {
        context.strokeStyle = ink;
        context.lineWidth = 2;
        context.strokeRect(left, f.top + 1, right - left, f.height - 2);
      }
      if (marked?.has(cell)) dot(context, (left + right) / 2, f.top + f.height - height / 2, 3, ofPage("ground"), ink);
    });
    context.globalAlpha = 1;
  }

  function drawPoints(context, f, ink) {
    for (let cell = 0; cell < archive.fitness.length; cell++) {
      if (!full(cell)) continue;
      context.globalAlpha = shown(cell) ? 1 : 0.12;
      const radius = cell === selected ? 6 : marked?.has(cell) ? 5 : 3.5;
      const rim = cell === selected || marked?.has(cell) ? ink : "transparent";
      dot(context, ...toScreen(...placeOf(cell), f), radius, colourOf(cell) ?? "gray", rim);
    }
    context.globalAlpha = 1;
  }

  function dot(context, x, y, radius, fill, rim) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fillStyle = fill;
    context.fill();
    context.strokeStyle = rim;
    context.lineWidth = 1.2;
    context.stroke();
  }

  /** The way to where a policy came, what it was asked for (ring), and the error between (line). */
  function drawJourney(context, f, { colour, asked, reached, path }, ground) {
    const flat = size() === 1;
    const at = (d) => toScreen(unit(d[flat ? 0 : axes[0]], flat ? 0 : axes[0]), flat ? 0.5 : unit(d[axes[1]], axes[1]), f);
    const stroke = (points, width, dash) => {
      for (const [style, wide] of [[ground, width + 2], [ofPage(colour), width]]) {
        context.beginPath();
        points.forEach((p) => context.lineTo(...p));
        context.setLineDash(dash);
        context.lineJoin = context.lineCap = "round";
        context.strokeStyle = style;
        context.lineWidth = wide;
        context.stroke();
      }
      context.setLineDash([]);
    };
    if (path && path.length > 1 && !flat) stroke(path.map(at), 1.5, []);
    if (!reached) return;
    stroke([at(asked), at(reached)], 2, [5, 4]);
    dot(context, ...at(reached), 4.5, ofPage(colour), ground);
    context.beginPath();
    context.arc(...at(asked), 7, 0, 2 * Math.PI);
    context.lineWidth = 4;
    context.strokeStyle = ground;
    context.stroke();
    context.lineWidth = 2;
    context.strokeStyle = ofPage(colour);
    context.stroke();
  }

  function drawAxes(context, f, soft, line) {
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.strokeRect(f.left + 0.5, f.top + 0.5, f.width - 1, f.height - 1);
    context.fillStyle = soft;
    context.font = "11px system-ui, sans-serif";
    const [x, y] = size() === 1 ? [0, null] : axes;
    const from = toUnit(f.left, f.top + f.height, f);
    const to = toUnit(f.left + f.width, f.top, f);
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const [value, label] of ticks(back(from[0], x), back(to[0], x), 5)) {
      context.fillText(label, toScreen(unit(value, x), 0, f)[0], f.top + f.height + 4);
    }
    context.fillText(size() === 1 ? "descriptor" : `descriptor ${x + 1}`, f.left + f.width / 2, f.top + f.height + 19);
    context.textBaseline = "middle";
    context.textAlign = "right";
    if (y === null) {
      const [low, high] = heights();
      for (const [value, label] of ticks(low, high, 4)) {
        context.fillText(label, f.left - 5, f.top + f.height * (1 - (value - low) / (high - low)));
      }
    } else {
      for (const [value, label] of ticks(back(from[1], y), back(to[1], y), 5)) {
        context.fillText(label, f.left - 5, toScreen(0, unit(value, y), f)[1]);
      }
    }
    context.save();
    context.translate(9, f.top + f.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(y === null ? "fitness" : `descriptor ${y + 1}`, 0, 0);
    context.restore();
  }

  // ------------------------------------------------------------------- pointer and keyboard

  const isInside = (x, y, f) => x >= f.left && x <= f.left + f.width && y >= f.top && y <= f.top + f.height;

  /** The cell at a point of the screen, -1 for none. */
  function cellAt(x, y) {
    const f = frame();
    if (!cells || !archive || !isInside(x, y, f)) return -1;
    const [u, v] = toUnit(x, y, f);
    // Points are met within twelve pixels; cells in task units, as the archive measures: only then
    // is the nearest middle that of the own cell.
    const points = size() > 2;
    const [wide, high] = size() === 1 ? [1, 0] : axes.map((a) => info.high[a] - info.low[a]);
    let [best, nearest] = [-1, points ? 12 ** 2 : Infinity];
    for (let cell = 0; cell < cells.centroids.length; cell++) {
      if (points && !full(cell)) continue;
      const place = placeOf(cell);
      const [px, py] = toScreen(...place, f);
      const distance = points
        ? (px - x) ** 2 + (py - y) ** 2
        : ((place[0] - u) * wide) ** 2 + ((place[1] - v) * high) ** 2;
      if (distance < nearest) [best, nearest] = [cell, distance];
    }
    return best;
  }

  function placeAt(x, y) {
    const [u, v] = toUnit(x, y, frame()).map((w) => Math.min(Math.max(w, 0), 1));
    return size() === 1 ? { 0: back(u, 0) } : { [axes[0]]: back(u, axes[0]), [axes[1]]: back(v, axes[1]) };
  }

  function zoomBy(factor, x, y) {
    const f = frame();
    const [u, v] = toUnit(x ?? f.left + f.width / 2, y ?? f.top + f.height / 2, f);
    const zoom = Math.min(Math.max(view.zoom * factor, 1), 40);
    const change = view.zoom / zoom;
    view = { zoom, x: u - (u - view.x) * change, y: v - (v - view.y) * change };
    keepInside();
    plan();
  }

  /** Move the view, if it must, so that a cell is seen. */
  function bringIntoView(cell) {
    const [u, v] = placeOf(cell);
    const seen = 1 / view.zoom;
    const into = (from, at) => (at < from + 0.1 * seen || at > from + 0.9 * seen ? at - seen / 2 : from);
    view.x = into(view.x, u);
    view.y = into(view.y, v);
    keepInside();
  }

  function showTip(cell, x, y) {
    tip.textContent = describe(cell);
    tip.hidden = false;
    const box = canvas.getBoundingClientRect();
    const beside = (at, own, room) => Math.max(at + 14 + own > room ? at - own - 10 : at + 14, 0);
    tip.style.left = `${beside(x, tip.offsetWidth, box.width)}px`;
    tip.style.top = `${beside(y, tip.offsetHeight, box.height)}px`;
  }

  function keepInside() {
    const most = 1 - 1 / view.zoom;
    view.x = Math.min(Math.max(view.x, 0), most);
    view.y = Math.min(Math.max(view.y, 0), most);
    // A finger scrolls the page over the whole map, and moves the map once it is larger than its frame.
    canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
  }

  function moveBy(dx, dy) {
    const f = frame();
    view.x -= dx / f.width / view.zoom;
    view.y += dy / f.height / view.zoom;
    keepInside();
    tip.hidden = true;
    plan();
  }

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const isBusy = onFingers(canvas, {
    onDrag: moveBy,
    onPinch(factor, x, y, dx, dy) {
      moveBy(dx, dy);
      zoomBy(factor, x, y);
    },
    onClick(x, y) {
      if (!info || !archive || !isInside(x, y, frame())) return;
      tip.hidden = true; // what comes of the click is drawn there
      onPick(cellAt(x, y), placeAt(x, y));
    },
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!info || isBusy()) return;
    const [x, y] = at(event);
    const cell = cellAt(x, y);
    if (cell >= 0) showTip(cell, x, y);
    else tip.hidden = true;
  });
  for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, () => (tip.hidden = true));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY * 0.0015), ...at(event));
  }, { passive: false });

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  canvas.addEventListener("keydown", (event) => {
    if (!info || !archive) return;
    if (event.key in ARROWS) {
      event.preventDefault();
      const next = neighbour(ARROWS[event.key]);
      if (next >= 0) goTo(next);
    } else if (event.key === "n" && marked?.size) {
      const order = [...marked].sort((a, b) => a - b);
      goTo(order.find((cell) => cell > selected) ?? order[0]);
    } else if (event.key === "Escape") tip.hidden = true;
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (selected >= 0 && !event.repeat) {
        tip.hidden = true;
        const centre = cells.centroids[selected];
        onPick(selected, Object.fromEntries(centre.map((v, i) => [i, v])));
      }
    } else if (event.key === "+" || event.key === "=") zoomBy(1.4);
    else if (event.key === "-") zoomBy(1 / 1.4);
    else if (event.key === "0") api.whole();
  });

  function goTo(cell) {
    onMove(cell);
    bringIntoView(cell);
    showTip(cell, ...toScreen(...placeOf(cell), frame()));
  }

  /** The nearest cell that lies in a direction; without a selection, that in the middle. */
  function neighbour([dx, dy]) {
    const from = selected >= 0 ? placeOf(selected) : [0.5, 0.5];
    const middle = selected >= 0 ? -1 : cellAt(...toScreen(...from, frame()));
    if (middle >= 0) return middle;
    let [best, least] = [-1, Infinity];
    for (let cell = 0; cell < cells.centroids.length; cell++) {
      if (cell === selected || (size() > 2 && !full(cell))) continue;
      const [u, v] = placeOf(cell);
      const along = (u - from[0]) * dx + (v - from[1]) * dy;
      const aside = Math.abs((u - from[0]) * dy) + Math.abs((v - from[1]) * dx);
      if (along <= 1e-9 || aside > along * 1.2) continue;
      const distance = along + 2 * aside;
      if (distance < least) [best, least] = [cell, distance];
    }
    return best;
  }

  new ResizeObserver(() => {
    tip.hidden = true;
    plan();
  }).observe(canvas);

  const api = {
    /** The run and where its cells are. */
    setCells(run, where) { info = run; cells = where; build(); plan(); },
    setArchive(columns) { archive = columns; plan(); },
    setShade(next) { shade = next; plan(); },
    setFilter(passes) { shown = passes; plan(); },
    setAxes(next) { axes = next; plan(); },
    setMarked(next) { marked = next; plan(); },
    select(cell) { selected = cell; plan(); },
    setJourneys(next) { journeys = next; plan(); },
    whole() { view = { zoom: 1, x: 0, y: 0 }; keepInside(); plan(); },
    zoomBy,
    redraw: plan,
  };
  return api;
}
