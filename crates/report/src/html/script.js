'use strict';
// Shows exact figures for the pointer or the arrow keys, and zooms. Draws no new marks:
// positions are percentages of a chart's width and height, and zooming moves them.
(() => {
  const MARGIN = 3, NEAR = 28, DRAGGED = 6;
  const SVG = 'http:' + '//www.w3.org/2000/svg';
  const tip = document.createElement('div');
  const frame = document.createElement('div');
  tip.id = 'tip';
  tip.setAttribute('role', 'status');
  frame.id = 'frame';
  document.body.append(tip, frame);

  const say = (text, x, y) => {
    tip.textContent = text;
    tip.className = text ? 'shown' : '';
    const room = tip.getBoundingClientRect();
    const left = Math.min(Math.max(4, x + 12), document.documentElement.clientWidth - room.width - 4);
    tip.style.left = Math.max(4, left) + 'px';
    tip.style.top = (y > room.height + 18 ? y - room.height - 14 : y + 18) + 'px';
  };
  // The chart whose pointer opened the tooltip; null if the keys opened it.
  let pointed = null, rested = '';
  const hush = () => { pointed = null; say('', 0, 0); };

  const scale = (unit, size) =>
    unit === 'share' ? [100, '%']
      : unit === 'ns' ? (size >= 1e9 ? [1e-9, 's'] : size >= 1e6 ? [1e-6, 'ms'] : size >= 1e3 ? [1e-3, 'µs'] : [1, 'ns'])
        : !unit.endsWith('/s') ? [1, unit]
          : size >= 1e9 ? [1e-9, 'G ' + unit] : size >= 1e6 ? [1e-6, 'M ' + unit] : size >= 1e4 ? [1e-3, 'k ' + unit] : [1, unit];
  const written = (unit, value, digits) => {
    const [factor, name] = scale(unit, Math.abs(value));
    return ((value * factor).toLocaleString('en', { maximumSignificantDigits: digits }) + ' ' + name).trim();
  };

  // An axis as the page describes it, and its visible part in percent.
  const axis = (text, flipped) => {
    const [low, high, kind, unit] = text.split(';');
    return { low: +low, high: +high, log: kind === 'logarithmic', unit, flipped, from: 0, to: 100 };
  };
  const valueAt = (axis, place) => {
    const share = ((axis.flipped ? 100 - place : place) - MARGIN) / (100 - 2 * MARGIN);
    return axis.log ? axis.low * (axis.high / axis.low) ** share : axis.low + share * (axis.high - axis.low);
  };
  const placeOf = (axis, value) => {
    const share = axis.log ? Math.log(value / axis.low) / Math.log(axis.high / axis.low)
      : (value - axis.low) / (axis.high - axis.low);
    const place = MARGIN + share * (100 - 2 * MARGIN);
    return axis.flipped ? 100 - place : place;
  };
  const inSight = (axis, place) => (place - axis.from) / (axis.to - axis.from) * 100;
  const ends = axis => [valueAt(axis, axis.from), valueAt(axis, axis.to)].sort((a, b) => a - b);
  const ticks = axis => {
    const [low, high] = ends(axis), found = [];
    if (axis.log && high / low > 20) {
      for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) found.push(10 ** power);
    } else {
      const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 2.5, 5, 10].map(factor => factor * power).find(step => step >= rough) || rough;
      for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(at * step);
    }
    return found.filter(value => value >= low && value <= high);
  };

  const live = figure => {
    const x = axis(figure.dataset.x, false);
    const y = figure.dataset.y ? axis(figure.dataset.y, true) : null;
    const areas = [...figure.querySelectorAll('.track, .plot')];
    const marks = [...figure.querySelectorAll('[data-v]')];
    let at = -1, down = null;

    // The elements at a position, each with its position without zoom.
    const placed = [];
    for (const [names, along] of [[['x', 'x1', 'x2', 'width'], x], [['y', 'y1', 'y2', 'height'], y]]) {
      for (const name of along ? names : []) {
        for (const area of areas) {
          for (const part of area.querySelectorAll(`[${name}$="%"]`)) {
            placed.push({ part, name, along, place: parseFloat(part.getAttribute(name)) });
          }
        }
      }
    }

    // A row shows its figure; a mark on a curve has a title.
    const text = mark => {
      const row = mark.closest('.row');
      if (!row) return mark.told;
      const [figure, interval] = ['b', 'small'].map(part => row.querySelector(`.value ${part}`)?.textContent ?? '');
      return `${row.querySelector('.name').firstChild.textContent.trim()}: ${figure}${interval && ` (${interval})`}`;
    };
    for (const mark of marks) {
      const title = mark.querySelector('title');
      mark.told = title ? title.textContent : '';
      // The browser would show the title a second time.
      if (title) title.remove();
    }
    const middle = mark => {
      const box = mark.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + box.height / 2];
    };
    const show = mark => {
      for (const other of figure.querySelectorAll('.here')) other.classList.remove('here');
      if (!mark) return hush();
      mark.classList.add('here');
      pointed = null;
      say(text(mark), ...middle(mark));
    };
    const nearest = event => {
      let best = null, least = NEAR;
      for (const mark of marks) {
        const [left, top] = middle(mark);
        const away = Math.hypot(event.clientX - left, event.clientY - top);
        if (away < least) [best, least] = [mark, away];
      }
      return best;
    };

    const label = (parent, tick, along, set) => {
      const part = document.createElementNS(SVG, parent.matches('.axis, .scale') ? 'text' : 'line');
      part.setAttribute('class', 'own tick');
      for (const name in set) part.setAttribute(name, set[name]);
      if (part.tagName === 'text') part.textContent = written(along.unit, tick, 4).replace(along.unit.includes('/') ? along.unit : '\0', '');
      parent.prepend(part);
    };
    const draw = () => {
      const zoomed = [x, y].some(along => along && (along.from > 0 || along.to < 100));
      figure.classList.toggle('zoomed', zoomed);
      for (const { part, name, along, place } of placed) {
        const moved = name === 'width' || name === 'height' ? Math.max(0.15, place * 100 / (along.to - along.from)) : inSight(along, place);
        part.setAttribute(name, (zoomed ? moved : place).toFixed(2) + '%');
      }
      for (const own of figure.querySelectorAll('.own')) own.remove();
      if (!zoomed) return;
      for (const tick of ticks(x)) {
        const place = inSight(x, placeOf(x, tick)) + '%';
        for (const area of areas) label(area, tick, x, { x1: place, x2: place, y1: 0, y2: '100%' });
        for (const strip of figure.querySelectorAll('.axis')) label(strip, tick, x, { x: place, y: 14, 'text-anchor': 'middle' });
      }
      for (const tick of y ? ticks(y) : []) {
        const place = inSight(y, placeOf(y, tick)) + '%';
        for (const area of areas) label(area, tick, y, { x1: 0, x2: '100%', y1: place, y2: place });
        label(figure.querySelector('.scale'), tick, y, { x: '100%', y: place, dy: '0.32em', 'text-anchor': 'end' });
      }
    };
    const sight = (along, from, to) => {
      const width = Math.min(100, Math.max(1, to - from));
      along.from = Math.min(Math.max(0, from), 100 - width);
      along.to = along.from + width;
    };
    const zoom = (along, centre, times) => {
      sight(along, centre - (centre - along.from) * times, centre + (along.to - centre) * times);
      draw();
    };
    const reset = () => {
      for (const along of [x, y]) if (along) sight(along, 0, 100);
      draw();
      hush();
    };
    // The pointer's position on an axis, in percent of the whole axis.
    const under = (along, event, area) => {
      const box = area.getBoundingClientRect();
      const share = along === x ? (event.clientX - box.left) / box.width : (event.clientY - box.top) / box.height;
      return along.from + share * (along.to - along.from);
    };

    figure.tabIndex = 0;
    const chart = figure.querySelector('[role=img]').getAttribute('aria-label');
    figure.setAttribute('aria-label', chart.split('. ')[0] + '. Left and right: move between figures. Plus and minus: zoom. Escape: reset.');
    figure.addEventListener('wheel', event => {
      const area = event.target.closest('.track, .plot');
      // Scrolling past a chart must scroll the page.
      if (!area || !(event.ctrlKey || figure === document.activeElement)) return;
      event.preventDefault();
      const along = event.shiftKey && y ? y : x;
      zoom(along, under(along, event, area), (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8);
    }, { passive: false });
    figure.addEventListener('pointerdown', event => {
      const area = event.target.closest('.track, .plot');
      if (area && event.button === 0) down = { area, event };
    });
    figure.addEventListener('pointermove', event => {
      const far = down && Math.hypot(event.clientX - down.event.clientX, event.clientY - down.event.clientY) > DRAGGED;
      // Scrolling moves the page below a resting pointer, so the figure that the keys show stays.
      const here = event.clientX + ' ' + event.clientY;
      if (!far && here === rested) return;
      rested = here;
      if (!far) {
        const mark = nearest(event);
        if (mark || pointed === figure) show(mark);
        if (mark) pointed = figure;
        return;
      }
      if (!down.far) figure.setPointerCapture(event.pointerId);
      down.far = true;
      hush();
      const box = down.area.getBoundingClientRect();
      down.tall = Boolean(y) && Math.abs(event.clientY - down.event.clientY) > 3 * DRAGGED;
      const [left, right] = [event.clientX, down.event.clientX].sort((a, b) => a - b);
      const [top, bottom] = down.tall ? [event.clientY, down.event.clientY].sort((a, b) => a - b) : [box.top, box.bottom];
      Object.assign(frame.style, { left: left + 'px', width: right - left + 'px', top: top + 'px', height: bottom - top + 'px' });
      frame.className = 'shown';
    });
    const up = event => {
      frame.className = '';
      const drag = down;
      down = null;
      if (!drag || !drag.far || event.type === 'pointercancel') return;
      for (const along of drag.tall ? [x, y] : [x]) {
        sight(along, ...[drag.event, event].map(end => under(along, end, drag.area)).sort((a, b) => a - b));
      }
      draw();
    };
    figure.addEventListener('pointerup', up);
    figure.addEventListener('pointercancel', up);
    figure.addEventListener('pointerleave', () => { if (pointed === figure) show(null); });
    figure.addEventListener('blur', () => show(null));
    figure.addEventListener('dblclick', reset);
    figure.addEventListener('keydown', event => {
      const centre = (x.from + x.to) / 2;
      const keys = {
        ArrowRight: () => show(marks[at = (at + 1) % marks.length]),
        ArrowLeft: () => show(marks[at = (Math.max(at, 0) + marks.length - 1) % marks.length]),
        '+': () => zoom(x, centre, 0.8),
        '=': () => zoom(x, centre, 0.8),
        '-': () => zoom(x, centre, 1.25),
        Escape: reset,
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey || event.target !== figure) return;
      event.preventDefault();
      keys[event.key]();
    });
  };

  // On cumulative curves: the value under the pointer, and the share of the nearest curve there.
  const shares = figure => {
    const along = axis(figure.dataset.cdf, false);
    const svg = figure.querySelector('.curves');
    const { width, height } = svg.viewBox.baseVal;
    const curves = [...svg.querySelectorAll('.cumulative')].map(path => ({
      name: path.dataset.name,
      points: [...path.getAttribute('d').matchAll(/([\d.]+) ([\d.]+)/g)].map(([, x, y]) => [+x, +y]),
    }));
    const heightAt = (points, x) => {
      const next = points.findIndex(point => point[0] >= x);
      if (next < 0) return 0;
      if (next === 0) return points[0][0] === x ? points[0][1] : height;
      const [[left, low], [right, high]] = [points[next - 1], points[next]];
      return right === left ? high : low + (high - low) * (x - left) / (right - left);
    };
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * width;
      const y = (event.clientY - box.top) / box.height * height;
      const all = curves.map(curve => ({ name: curve.name, at: heightAt(curve.points, x) }));
      const near = all.reduce((best, one) => Math.abs(one.at - y) < Math.abs(best.at - y) ? one : best);
      const value = written(along.unit, valueAt(along, x / width * 100), 3);
      say(`${near.name}: ${(100 - near.at / height * 100).toFixed(0)} % at or below ${value}`, event.clientX, event.clientY);
    });
    svg.addEventListener('pointerleave', hush);
  };

  document.querySelectorAll('figure[data-x]').forEach(live);
  document.querySelectorAll('figure[data-cdf]').forEach(shares);
})();
