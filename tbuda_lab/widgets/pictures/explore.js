// The picture of an exploration: front, parallel coordinates, effects and table, linked. It draws what it is given
// (see widgets/views/explore.py `picture_data`) and fetches nothing; a page and a notebook use the same file.
const NS = 'http://www.w3.org/2000/svg';
const ROWS = 150; // of the table
const W = 560, H = 340, L = 84, B = 44, T = 14, R = 18;
const h = (tag, attrs = {}, ...children) => fill(document.createElement(tag), attrs, children);
const s = (tag, attrs = {}, ...children) => fill(document.createElementNS(NS, tag), attrs, children);
function fill(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter(c => c !== null && c !== undefined && c !== false));
  return node;
}
/** Children in the place of others, without those that are none. */
const put = (node, ...children) => node.replaceChildren(...children.filter(c => c !== null && c !== undefined && c !== false && c !== ''));
const WORDS = { microbatch: 'batch', default_df_override: 'format', default_math_fidelity: 'fidelity', balancer_policy: 'policy' };
const word = axis => WORDS[axis] ?? axis.replaceAll('_', ' ');
const short = v => typeof v !== 'number' ? String(v ?? '') : Math.abs(v) >= 1e6 ? `${+(v / 1e6).toPrecision(3)}M`
  : Math.abs(v) >= 1e4 ? `${+(v / 1e3).toPrecision(3)}k` : `${+v.toPrecision(4)}`;
const text = v => typeof v === 'string' ? v : JSON.stringify(v ?? null);

/** Places of values along `size` pixels: numbers by value, with a margin. */
function scale(values, from, to) {
  let low = Math.min(...values), high = Math.max(...values);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  low -= pad; high += pad;
  const place = v => from + (v - low) / (high - low) * (to - from);
  const step = 10 ** Math.floor(Math.log10((high - low) / 4));
  const every = [1, 2, 5, 10].map(k => k * step).find(k => (high - low) / k <= 6) ?? step;
  const ticks = [];
  for (let k = Math.ceil(low / every); k * every <= high; k++) ticks.push(k * every);
  return { place, ticks };
}

export function draw(root, send) {
  const state = { data: null, x: null, y: null, chosen: [], ranges: new Map(), only: 'all' };
  const head = h('div', { class: 'tx-head' }), left = h('div', { class: 'tx-front' }), lines = h('div', { class: 'tx-lines' });
  const small = h('div', { class: 'tx-effects' }), rows = h('div', { class: 'tx-table' }), note = h('div', { class: 'tx-note', role: 'status' });
  const tip = h('div', { class: 'tx-tip', hidden: '' });
  root.classList.add('tx-root');
  root.replaceChildren(head, h('div', { class: 'tx-upper' }, left, note), lines, small, rows, tip);

  const shown = () => state.data.trials.filter(t => [...state.ranges].every(([axis, set]) => set.has(text(valueOf(t, axis)))));
  const valueOf = (t, axis) => axis in t.point ? t.point[axis] : t.numbers[axis];

  function choose(trial, event) {
    const at = state.chosen.indexOf(trial.n);
    if (at >= 0) state.chosen.splice(at, 1);
    else state.chosen = event && (event.ctrlKey || event.metaKey || event.shiftKey) ? [...state.chosen.slice(-1), trial.n] : [trial.n];
    redraw();
  }

  function showTip(trial, event) {
    const box = root.getBoundingClientRect();
    const grid = trial.epochs && state.data.grids[trial.placement] ? epochs(trial) : null;
    put(tip, h('b', {}, `Trial ${trial.n}`), ...Object.entries(trial.point).map(([k, v]) => h('div', {}, `${word(k)} ${text(v)}`)),
      ...Object.entries(trial.numbers).map(([k, v]) => h('div', {}, `${k} ${short(v)}`)),
      trial.reason ? h('div', { class: 'tx-reason' }, `${trial.state}: ${trial.reason.text}`) : null, grid);
    tip.hidden = false;
    const x = Math.min(event.clientX - box.left + 14, box.width - 250), y = event.clientY - box.top + 14;
    tip.style.left = `${Math.max(0, x)}px`;
    tip.style.top = `${y}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  /** The epochs of a placement, small. */
  function epochs(trial) {
    const [gridRows, gridCols] = state.data.grids[trial.placement];
    const cell = 5, gap = 6, across = 6;
    const tiles = trial.epochs.slice(0, 12).map(([, ops], k) => {
      const x = (k % across) * (gridCols * cell + gap), y = Math.floor(k / across) * (gridRows * cell + gap);
      return s('g', { transform: `translate(${x},${y})` }, s('rect', { width: gridCols * cell, height: gridRows * cell, class: 'tx-grid' }),
        ...ops.map(([r, c, hh, w], i) => s('rect', { x: c * cell + .5, y: r * cell + .5, width: w * cell - 1, height: hh * cell - 1, fill: `hsl(${(i * 47) % 360} 50% 55%)` })));
    });
    const count = Math.min(12, trial.epochs.length);
    return s('svg', { width: Math.min(across, count) * (gridCols * cell + gap), height: Math.ceil(count / across) * (gridRows * cell + gap), 'aria-hidden': 'true' }, ...tiles);
  }

  function drawHead() {
    const d = state.data, p = d.progress;
    const pick = (which, label) => h('label', {}, `${label} `, fill(h('select', { 'data-tx': which, onchange: e => { state[which] = e.target.value; redraw(); } }), {},
      d.names.map(name => fill(h('option', { value: name }), name === state[which] ? { selected: '' } : {}, [name]))));
    const left = p.seconds_left === null || p.done >= p.total ? '' : `, about ${Math.ceil(p.seconds_left)} s left`;
    put(head, h('strong', {}, d.title), h('span', { class: 'tx-progress' },
      fill(h('progress', { max: p.total, value: p.done, 'aria-label': 'Trials' }), {}, []), ` ${p.done} of ${p.total} trials${left}`),
      d.running && send ? h('button', { type: 'button', 'data-tx': 'cancel', onclick: () => send({ do: 'cancel' }) }, 'Cancel') : null,
      pick('x', 'Across'), pick('y', 'Up'),
      state.ranges.size ? h('button', { type: 'button', onclick: () => { state.ranges.clear(); redraw(); } }, 'Clear the brush') : null);
  }

  const better = name => state.data.directions[name] === 'max' ? -1 : 1;
  function frontOf(trials) {
    const [a, b] = [state.x, state.y];
    const sorted = trials.filter(t => t.state === 'done' && t.holds && a in t.numbers && b in t.numbers)
      .sort((p, q) => better(a) * (p.numbers[a] - q.numbers[a]) || better(b) * (p.numbers[b] - q.numbers[b]));
    let best = Infinity;
    const front = [];
    for (const t of sorted) if (better(b) * t.numbers[b] < best) { best = better(b) * t.numbers[b]; front.push(t); }
    return front;
  }

  function drawFront() {
    const trials = shown(), all = state.data.trials, visible = new Set(trials.map(t => t.n));
    const done = all.filter(t => t.state === 'done' && state.x in t.numbers && state.y in t.numbers);
    const x = scale(done.map(t => t.numbers[state.x]), L, W - R), y = scale(done.map(t => t.numbers[state.y]), H - B, T);
    const front = frontOf(trials), onFront = new Set(front.map(t => t.n));
    const at = t => [x.place(t.numbers[state.x]), y.place(t.numbers[state.y])];
    const steps = front.map((t, k) => {
      const [px, py] = at(t);
      return k ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `M${px.toFixed(1)} ${py.toFixed(1)}`;
    }).join('');
    const dot = t => {
      const [px, py] = at(t), chosen = state.chosen.includes(t.n);
      return s('circle', { cx: px.toFixed(1), cy: py.toFixed(1), r: onFront.has(t.n) ? 5.5 : 3.5, tabindex: 0, role: 'button', 'data-tx-trial': t.n,
        'aria-label': `Trial ${t.n}: ${state.x} ${short(t.numbers[state.x])}, ${state.y} ${short(t.numbers[state.y])}`,
        class: ['tx-dot', onFront.has(t.n) && 'tx-on', t.stale && 'tx-stale', !t.holds && 'tx-misses', !visible.has(t.n) && 'tx-out', chosen && 'tx-chosen'].filter(Boolean).join(' '),
        onclick: e => choose(t, e), onkeydown: e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); choose(t, e); } },
        ondblclick: () => send && send({ do: 'open', n: t.n }), onmouseenter: e => showTip(t, e), onmouseleave: hideTip });
    };
    const refused = trials.filter(t => t.state !== 'done');
    const cross = (t, k) => {
      const px = L + 10 + k * Math.min(12, (W - R - L - 20) / Math.max(1, refused.length));
      return s('path', { d: `M${px - 4} ${H - B - 4}l8 8m0 -8l-8 8`, class: `tx-cross${state.chosen.includes(t.n) ? ' tx-chosen' : ''}`, tabindex: 0, role: 'button', 'data-tx-trial': t.n,
        'aria-label': `Trial ${t.n}, ${t.state}: ${t.reason ? t.reason.text : ''}`, onclick: e => choose(t, e), onkeydown: e => { if (e.key === 'Enter') choose(t, e); },
        onmouseenter: e => showTip(t, e), onmouseleave: hideTip });
    };
    const order = [...done].sort((p, q) => onFront.has(p.n) - onFront.has(q.n));
    left.replaceChildren(s('svg', { viewBox: `0 0 ${W} ${H}`, role: 'group', 'aria-label': `${state.y} against ${state.x}` },
      ...x.ticks.map(v => s('g', { class: 'tx-tick' }, s('path', { d: `M${x.place(v)} ${T}V${H - B}` }), s('text', { x: x.place(v), y: H - B + 18, 'text-anchor': 'middle' }, short(v)))),
      ...y.ticks.map(v => s('g', { class: 'tx-tick' }, s('path', { d: `M${L} ${y.place(v)}H${W - R}` }), s('text', { x: L - 8, y: y.place(v) + 4, 'text-anchor': 'end' }, short(v)))),
      s('path', { d: `M${L} ${T}V${H - B}H${W - R}`, class: 'tx-axis' }),
      s('text', { x: (L + W - R) / 2, y: H - 6, 'text-anchor': 'middle' }, label(state.x)),
      s('text', { x: 14, y: (T + H - B) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(T + H - B) / 2})` }, label(state.y)),
      s('path', { d: steps, class: 'tx-frontline' }), ...order.map(dot), ...refused.map(cross)));
  }
  const label = name => `${name}${state.data.units[name] ? ` (${state.data.units[name]})` : ''}, ${state.data.directions[name] === 'max' ? 'more' : 'less'} is better`;

  function drawNote() {
    const chosen = state.chosen.map(n => state.data.trials.find(t => t.n === n)).filter(Boolean);
    const front = frontOf(shown());
    if (!chosen.length) {
      put(note, h('p', {}, `${front.length} on the front, ${state.data.trials.filter(t => t.state !== 'done').length} refused or lost. Click a point; with Ctrl a second one to compare.`));
      return;
    }
    const facts = chosen.map(t => h('div', { class: 'tx-fact' }, h('strong', {}, `Trial ${t.n}${t.stale ? `, of version ${t.version}` : ''}`),
      t.reason ? h('p', { class: 'tx-reason' }, `${t.state}, ${t.reason.type}: ${t.reason.text}`, ...t.reason.diagnostics.map(d => h('div', {}, d))) : null,
      h('table', {}, ...[...Object.entries(t.point), ...Object.entries(t.numbers)].map(([k, v]) => h('tr', {}, h('th', { scope: 'row' }, word(k)), h('td', {}, typeof v === 'number' ? short(v) : text(v))))),
      h('code', {}, t.command),
      send ? h('div', {}, h('button', { type: 'button', 'data-tx': 'open', onclick: () => send({ do: 'open', n: t.n }) }, 'Open on the grid'),
        h('button', { type: 'button', onclick: () => send({ do: 'export', n: t.n }) }, 'Export overrides')) : null));
    put(note, ...facts, chosen.length === 2 && send ? h('button', { type: 'button', 'data-tx': 'compare', onclick: () => send({ do: 'compare', a: chosen[0].n, b: chosen[1].n }) }, 'Compare the two') : '');
  }

  function drawLines() {
    const axes = [...state.data.axes.map(a => a.name), state.x, state.y].filter((a, k, list) => list.indexOf(a) === k);
    const wide = 1000, tall = 190, top = 34, step = (wide - 140) / Math.max(1, axes.length - 1);
    const places = axes.map(axis => {
      const listed = state.data.axes.find(a => a.name === axis);
      if (!listed) {
        const { place, ticks } = scale(state.data.trials.filter(t => axis in t.numbers).map(t => t.numbers[axis]), tall - 14, top);
        return { axis, place: t => axis in t.numbers ? place(t.numbers[axis]) : tall - 6, ticks: ticks.map(v => [short(v), place(v), null]) };
      }
      const y = k => listed.values.length === 1 ? (top + tall - 14) / 2 : top + k * (tall - 14 - top) / (listed.values.length - 1);
      const index = new Map(listed.values.map((v, k) => [text(v), k]));
      return { axis, place: t => y(index.get(text(t.point[axis])) ?? 0), ticks: listed.values.map((v, k) => [text(v), y(k), text(v)]) };
    });
    const visible = new Set(shown().map(t => t.n)), front = new Set(frontOf(shown()).map(t => t.n));
    const groups = new Map(); // one path for all lines that look alike: thousands of elements take long to make
    for (const t of state.data.trials.filter(t => t.state === 'done').sort((p, q) => front.has(p.n) - front.has(q.n))) {
      const kind = ['tx-line', front.has(t.n) && 'tx-on', !visible.has(t.n) && 'tx-out', state.chosen.includes(t.n) && 'tx-chosen'].filter(Boolean).join(' ');
      const line = places.map((p, k) => `${k ? 'L' : 'M'}${(60 + k * step).toFixed(0)} ${p.place(t).toFixed(1)}`).join('');
      if (!groups.has(kind)) groups.set(kind, []);
      groups.get(kind).push(line);
    }
    const brush = (axis, value) => {
      const set = state.ranges.get(axis) ?? new Set();
      if (set.has(value)) set.delete(value); else set.add(value);
      if (set.size) state.ranges.set(axis, set); else state.ranges.delete(axis);
      redraw();
    };
    put(lines, h('h3', {}, 'Every trial as a line'), s('svg', { viewBox: `0 0 ${wide} ${tall + 10}`, role: 'group', 'aria-label': 'Parallel coordinates; a value filters' },
      ...[...groups].map(([kind, parts]) => s('path', { d: parts.join(''), class: kind })),
      ...places.flatMap((p, k) => {
        const x = 60 + k * step;
        return [s('path', { d: `M${x} ${top - 6}V${tall - 8}`, class: 'tx-axis' }), s('text', { x, y: 14, 'text-anchor': 'middle', class: 'tx-name' }, word(p.axis)),
          ...p.ticks.map(([words, y, value]) => value === null ? s('text', { x: x + 5, y: y + 4 }, words) : s('g', { role: 'button', tabindex: 0, 'aria-pressed': String(state.ranges.get(p.axis)?.has(value) ?? false),
            class: `tx-value${state.ranges.get(p.axis)?.has(value) ? ' tx-brushed' : ''}`, 'data-tx-value': `${p.axis}=${value}`, onclick: () => brush(p.axis, value), onkeydown: e => { if (e.key === 'Enter') brush(p.axis, value); } },
            s('circle', { cx: x, cy: y, r: 5 }), s('text', { x: x + 8, y: y + 4 }, words)))];
      })));
  }

  function drawEffects() {
    const number = state.y, counted = shown().filter(t => t.state === 'done' && number in t.numbers);
    const charts = state.data.axes.map(({ name, values }) => {
      const means = values.map(v => {
        const found = counted.filter(t => text(t.point[name]) === text(v));
        return found.length ? found.reduce((sum, t) => sum + t.numbers[number], 0) / found.length : null;
      });
      const most = Math.max(...means.filter(m => m !== null), 0) || 1;
      return h('figure', {}, h('figcaption', {}, word(name)), s('svg', { viewBox: `0 0 230 ${values.length * 22 + 4}` },
        ...values.map((v, k) => s('g', { transform: `translate(0,${k * 22})` }, s('text', { x: 92, y: 15, 'text-anchor': 'end' }, text(v).length > 14 ? `${text(v).slice(0, 6)}…${text(v).slice(-6)}` : text(v)),
          means[k] === null ? s('text', { x: 98, y: 15, class: 'tx-none' }, 'none done')
            : s('g', {}, s('rect', { x: 98, y: 4, height: 14, width: Math.max(1, 80 * means[k] / most), class: 'tx-bar' }), s('text', { x: 102 + 80 * means[k] / most, y: 15 }, short(means[k])))))));
    });
    small.replaceChildren(h('h3', {}, `Effect of each axis: mean of ${number} over the others`), h('div', { class: 'tx-charts' }, ...charts));
  }

  function drawTable() {
    const trials = shown().slice(0, ROWS), axes = state.data.axes.map(a => a.name), front = new Set(frontOf(shown()).map(t => t.n));
    const names = state.data.names.filter(name => state.data.trials.some(t => name in t.numbers));
    put(rows, h('h3', {}, 'Trials'), h('div', { class: 'tx-scroll', tabindex: 0, role: 'group', 'aria-label': 'Table of trials' }, h('table', {}, h('thead', {}, h('tr', {}, ...['', ...axes.map(word), ...names, 'state'].map(c => h('th', { scope: 'col' }, c)))),
      h('tbody', {}, ...trials.map(t => h('tr', { 'data-tx-row': t.n, class: [state.chosen.includes(t.n) && 'tx-chosen', front.has(t.n) && 'tx-on', t.stale && 'tx-stale'].filter(Boolean).join(' '), onclick: e => choose(t, e) },
        h('td', {}, `${front.has(t.n) ? '★ ' : ''}${t.n}`), ...axes.map(a => h('td', {}, text(t.point[a]))), ...names.map(name => h('td', { class: 'tx-num' }, name in t.numbers ? short(t.numbers[name]) : '')),
        h('td', {}, t.reason ? `${t.state}: ${t.reason.text}` : t.holds ? t.state : 'misses a requirement')))))),
      shown().length > ROWS ? h('p', {}, `and ${shown().length - ROWS} more: brush, or export CSV`) : '');
  }

  function redraw() {
    if (!state.data) return;
    const began = performance.now();
    drawHead(); drawFront(); drawNote(); drawLines(); drawEffects(); drawTable();
    root.dataset.txDrawMs = (performance.now() - began).toFixed(0);
  }
  return data => {
    state.data = data;
    state.x = data.names.includes(state.x) ? state.x : data.objectives[1] ?? data.names.find(n => n !== data.objectives[0]);
    state.y = data.names.includes(state.y) ? state.y : data.objectives[0];
    redraw();
  };
}

export const STYLE = `
.tx-root{--ink:#1d2733;--soft:#5a6675;--line:#cfd6de;--card:#fff;--accent:#0b6bcb;--warm:#c2570c;color:var(--ink);background:var(--card);font:13px/1.45 system-ui,sans-serif;position:relative;padding:10px;box-sizing:border-box}
.tx-dark{--ink:#e4e9f0;--soft:#a3afbe;--line:#3a4553;--card:#1b212a;--accent:#6db3ff;--warm:#f0964f}
@media (prefers-color-scheme:dark){.tx-auto{--ink:#e4e9f0;--soft:#a3afbe;--line:#3a4553;--card:#1b212a;--accent:#6db3ff;--warm:#f0964f}}
.tx-head{display:flex;flex-wrap:wrap;gap:14px;align-items:center;margin-bottom:8px}.tx-head select,.tx-root button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:4px;padding:3px 8px}
.tx-root button{cursor:pointer;margin:2px 4px 2px 0}.tx-upper{display:grid;grid-template-columns:minmax(320px,3fr) minmax(220px,2fr);gap:14px}@media (max-width:760px){.tx-upper{grid-template-columns:1fr}}
.tx-root svg{width:100%;height:auto;overflow:visible}.tx-root svg text{fill:var(--soft);font-size:11px}.tx-lines svg text{paint-order:stroke;stroke:var(--card);stroke-width:3px}.tx-root h3{font-size:13px;margin:14px 0 4px}.tx-tick path{stroke:var(--line);stroke-width:.6}.tx-axis{stroke:var(--soft);fill:none}
.tx-dot{fill:var(--soft);fill-opacity:.75;stroke:var(--card);cursor:pointer}.tx-dot.tx-on{fill:var(--accent);fill-opacity:1}.tx-dot.tx-stale{fill:var(--line)}.tx-dot.tx-misses{fill:none;stroke:var(--soft)}.tx-root .tx-dot.tx-out,.tx-line.tx-out{opacity:.12}.tx-dot.tx-chosen{stroke:var(--warm);stroke-width:3}
.tx-frontline{fill:none;stroke:var(--accent);stroke-width:1.6}.tx-cross{stroke:var(--warm);stroke-width:2;fill:none;cursor:pointer}.tx-cross.tx-chosen{stroke-width:4}.tx-line{fill:none;stroke:var(--soft);stroke-opacity:.35}.tx-line.tx-on{stroke:var(--accent);stroke-opacity:.9;stroke-width:1.6}.tx-line.tx-chosen{stroke:var(--warm);stroke-opacity:1;stroke-width:2.4}
.tx-root svg .tx-name{font-weight:600;fill:var(--ink)}.tx-value{cursor:pointer}.tx-value circle{fill:var(--card);stroke:var(--soft)}.tx-value.tx-brushed circle{fill:var(--warm)}.tx-bar{fill:var(--accent);fill-opacity:.75}
.tx-charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:10px}.tx-charts figure{margin:0}.tx-charts figcaption{font-weight:600}.tx-scroll{max-height:320px;overflow:auto;border:1px solid var(--line)}
.tx-root table{border-collapse:collapse;font-size:12px}.tx-root th,.tx-root td{text-align:left;padding:2px 9px 2px 0;font-weight:400}.tx-root thead th{position:sticky;top:0;background:var(--card);font-weight:600;border-bottom:1px solid var(--line)}.tx-table th,.tx-table td{padding:3px 8px;white-space:nowrap}
.tx-table tbody tr{cursor:pointer}.tx-table tr.tx-chosen td{box-shadow:inset 0 0 0 99px color-mix(in srgb,var(--warm) 18%,transparent)}.tx-table tr.tx-stale td{color:var(--soft)}.tx-num{text-align:right!important;font-variant-numeric:tabular-nums}.tx-reason{color:var(--warm);margin:4px 0;white-space:normal}
.tx-root code{display:block;overflow-wrap:anywhere;font-size:11px;color:var(--soft);margin:6px 0}.tx-tip{position:absolute;z-index:5;background:var(--card);border:1px solid var(--line);border-radius:5px;padding:7px 9px;width:230px;font-size:12px;pointer-events:none;box-shadow:0 3px 12px #0003}.tx-tip svg{width:auto;max-width:100%}.tx-grid{fill:none;stroke:var(--line)}
.tx-root :focus-visible{outline:2px solid var(--accent);outline-offset:1px}`;

/** In a notebook: the model of the widget has the data and takes the messages. */
export default {
  render({ model, el }) {
    const style = document.createElement('style'), root = document.createElement('div');
    style.textContent = STYLE;
    el.append(style, root);
    const dark = document.body.dataset.jpThemeLight === 'false';
    root.classList.toggle('tx-dark', dark);
    const show = draw(root, message => model.send(message));
    const update = () => { const data = model.get('picture'); if (data && data.trials) show(data); };
    model.on('change:picture', update);
    update();
    return () => model.off('change:picture', update);
  }
};
