'use strict';

// The button that turns the page dark or light.
const button = document.querySelector('header button');
const dark = matchMedia('(prefers-color-scheme: dark)');
const now = () => document.documentElement.dataset.theme || (dark.matches ? 'dark' : 'light');
const tell = () => { button.textContent = now() === 'dark' ? 'Light page' : 'Dark page'; };
button.addEventListener('click', () => {
  document.documentElement.dataset.theme = now() === 'dark' ? 'light' : 'dark';
  tell();
});
button.hidden = false;
tell();

// A plane of points with zoom, a readout and, for several frames, a slider. Without this script the pictures remain.
const COLOURS = ['#D55E00', '#009E73', '#E69F00', '#0072B2'];
const MARGIN = 46;  // pixels

function element(name, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function control(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function round(value) { return String(Number(value.toPrecision(4))); }

function note(data, point) {
  if (point[3]) return point[3];
  const [x, y] = point;
  const sign = y < 0 ? '−' : '+';
  return `λ = ${round(x)} ${sign} ${round(Math.abs(y))}i,  |λ| = ${round(Math.hypot(x, y))}`;
}

function ticks(low, high) {
  const raw = (high - low) / 6, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(Math.abs(value) < step / 1e6 ? 0 : value);
  return found;
}

function bounds(data, WIDTH, HEIGHT) {
  const all = [...data.frames.flatMap((frame) => frame.points), ...data.lines.flatMap((line) => line.points)];
  if (data.circle) all.push([-1, -1], [1, 1]);
  const range = (axis) => {
    let low = Infinity, high = -Infinity;
    for (const point of all) { low = Math.min(low, point[axis]); high = Math.max(high, point[axis]); }
    const edge = 0.06 * (high - low) || 1;
    return [low - edge, high + edge];
  };
  let [x, y] = [range(0), range(1)];
  if (data.circle) {  // a circle is drawn round
    const scale = Math.max((x[1] - x[0]) / (WIDTH - 2 * MARGIN), (y[1] - y[0]) / (HEIGHT - 2 * MARGIN));
    const about = ([low, high], size) => [(low + high - scale * size) / 2, (low + high + scale * size) / 2];
    [x, y] = [about(x, WIDTH - 2 * MARGIN), about(y, HEIGHT - 2 * MARGIN)];
  }
  return { x, y };
}

function view(place) {
  const data = JSON.parse(place.querySelector('script').textContent);
  const WIDTH = Math.max(300, place.clientWidth), HEIGHT = Math.min(500, Math.round(0.9 * WIDTH));
  const home = bounds(data, WIDTH, HEIGHT);
  let now = { x: [...home.x], y: [...home.y] }, frame = data.frames.length - 1, grip = null;
  const svg = element('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': data.label });
  const said = control('output', { textContent: data.hint });
  const X = (x) => MARGIN + (x - now.x[0]) / (now.x[1] - now.x[0]) * (WIDTH - 2 * MARGIN);
  const Y = (y) => HEIGHT - MARGIN - (y - now.y[0]) / (now.y[1] - now.y[0]) * (HEIGHT - 2 * MARGIN);
  const inside = (x, y) => x >= MARGIN && x <= WIDTH - MARGIN && y >= MARGIN && y <= HEIGHT - MARGIN;
  const ring = element('circle', { class: 'ring', r: 7, visibility: 'hidden' });

  function axes() {
    const made = [];
    for (const x of ticks(...now.x)) {
      made.push(element('line', { class: 'grid', x1: X(x), x2: X(x), y1: MARGIN, y2: HEIGHT - MARGIN }));
      made.push(element('text', { x: X(x), y: HEIGHT - MARGIN + 16, 'text-anchor': 'middle' }, round(x)));
    }
    for (const y of ticks(...now.y)) {
      made.push(element('line', { class: 'grid', x1: MARGIN, x2: WIDTH - MARGIN, y1: Y(y), y2: Y(y) }));
      made.push(element('text', { x: MARGIN - 6, y: Y(y) + 4, 'text-anchor': 'end' }, round(y)));
    }
    made.push(element('text', { x: WIDTH / 2, y: HEIGHT - 8, 'text-anchor': 'middle' }, data.x));
    made.push(element('text', { x: MARGIN, y: MARGIN - 10, 'text-anchor': 'middle' }, data.y));
    return made;
  }

  function draw() {
    const clip = `${place.dataset.key}-view-clip`;
    const box = element('rect', { x: MARGIN, y: MARGIN, width: WIDTH - 2 * MARGIN, height: HEIGHT - 2 * MARGIN });
    const drawn = element('g', { 'clip-path': `url(#${clip})` });
    if (data.circle) {
      const rx = X(1) - X(0), ry = Y(0) - Y(1);
      drawn.append(element('ellipse', { class: 'circle', cx: X(0), cy: Y(0), rx, ry }));
    }
    for (const line of data.lines) {
      const points = line.points.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`).join(' ');
      drawn.append(element('polyline', { class: 'path', points }));
    }
    for (const [x, y, kind] of data.frames[frame].points) {
      drawn.append(element('circle', { cx: X(x), cy: Y(y), r: 3.6, fill: COLOURS[kind || 0] }));
    }
    svg.replaceChildren(element('clipPath', { id: clip }, box), ...axes(), drawn, ring);
    ring.setAttribute('visibility', 'hidden');
  }

  function at(event) {
    const box = svg.getBoundingClientRect();
    return [(event.clientX - box.left) * WIDTH / box.width, (event.clientY - box.top) * HEIGHT / box.height];
  }

  function read(event) {
    const [px, py] = at(event);
    let nearest = null, least = 18;
    const consider = (x, y, text) => {
      const far = Math.hypot(X(x) - px, Y(y) - py);
      if (far < least && inside(X(x), Y(y))) { least = far; nearest = [x, y, text]; }
    };
    for (const line of data.lines) line.points.forEach(([x, y], step) => consider(x, y, `${line.name}, step ${step}`));
    least += 4;  // points come before the lines that pass by them
    for (const point of data.frames[frame].points) consider(point[0], point[1], note(data, point));
    ring.setAttribute('visibility', nearest ? 'visible' : 'hidden');
    if (!nearest) return;
    ring.setAttribute('cx', X(nearest[0]));
    ring.setAttribute('cy', Y(nearest[1]));
    said.textContent = nearest[2];
  }

  function zoom(factor, px = WIDTH / 2, py = HEIGHT / 2) {
    const share = { x: (px - MARGIN) / (WIDTH - 2 * MARGIN), y: 1 - (py - MARGIN) / (HEIGHT - 2 * MARGIN) };
    for (const axis of ['x', 'y']) {
      const [low, high] = now[axis], about = low + share[axis] * (high - low);
      now[axis] = [about + (low - about) * factor, about + (high - about) * factor];
    }
    draw();
  }

  svg.addEventListener('pointerdown', (event) => { grip = at(event); svg.setPointerCapture(event.pointerId); read(event); });
  svg.addEventListener('pointerup', () => { grip = null; });
  svg.addEventListener('pointermove', (event) => {
    if (!grip) { read(event); return; }
    const next = at(event);
    const dx = (next[0] - grip[0]) / (WIDTH - 2 * MARGIN) * (now.x[1] - now.x[0]);
    const dy = (next[1] - grip[1]) / (HEIGHT - 2 * MARGIN) * (now.y[1] - now.y[0]);
    now = { x: now.x.map((x) => x - dx), y: now.y.map((y) => y + dy) };
    grip = next;
    draw();
  });
  svg.addEventListener('wheel', (event) => {  // a plain wheel scrolls the page
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, ...at(event));
  }, { passive: false });

  const reset = () => { now = { x: [...home.x], y: [...home.y] }; draw(); };
  svg.addEventListener('dblclick', reset);
  const bar = control('div', { className: 'bar' });
  if (data.frames.length > 1) {
    const name = control('span', {});
    const slider = control('input', { type: 'range', min: 0, max: data.frames.length - 1, value: frame, ariaLabel: data.slider });
    const show = () => { frame = Number(slider.value); name.textContent = data.frames[frame].name; draw(); };
    slider.addEventListener('input', show);
    const play = control('button', { type: 'button', textContent: 'Play' });
    play.addEventListener('click', () => {
      let next = 0;
      const tick = () => {
        slider.value = next; show();
        if (++next < data.frames.length) setTimeout(tick, Math.min(200, 4000 / data.frames.length));
      };
      tick();
    });
    bar.append(play, slider, name);
    name.textContent = data.frames[frame].name;
  }
  for (const [text, label, act] of [['+', 'Zoom in', () => zoom(1 / 1.4)], ['−', 'Zoom out', () => zoom(1.4)], ['Reset', 'Whole picture', reset]]) {
    const button = control('button', { type: 'button', textContent: text, ariaLabel: label });
    button.addEventListener('click', act);
    bar.append(button);
  }
  place.append(svg, bar, said);
  draw();
}

document.querySelectorAll('.view').forEach(view);
