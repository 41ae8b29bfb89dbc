// One feed: its verdict first, then how far it is, its time line, its numbers, its consumers.

import { Colours, TimeLine } from './chart.js';
import { element, match, set, write } from './dom.js';
import { Jobs } from './jobs.js';
import {
  ago,
  amount,
  bytes,
  clock,
  count,
  duration,
  happening,
  markText,
  percent,
  plural,
  shortCommand,
  unitsOf,
  verdictWords,
} from './words.js';

const MOST_MARKS = 200;
const LISTED = 60;

export class Card {
  #colours = new Colours();
  #jobs = new Jobs(this.#colours);
  #points = [];
  #marks = [];
  #parts = {};
  #isSeen = true;
  #reason = '';
  feed = null;

  constructor(name) {
    this.element = document.getElementById('card').content.firstElementChild.cloneNode(true);
    for (const part of this.element.querySelectorAll('[data-part]')) this.#parts[part.dataset.part] = part;
    this.timeline = new TimeLine(name, this.#colours);
    this.#parts.timeline.replaceWith(this.timeline.element);
    this.#parts.jobs.append(this.#jobs.element);
    write(this.#parts.name, name);
    set(this.element, 'id', `feed-${name}`);
    set(this.element, 'aria-label', `Feed ${name}`);
    new IntersectionObserver(
      ([entry]) => {
        this.#isSeen = entry.isIntersecting;
        if (this.#isSeen) this.#draw();
      },
      { rootMargin: '300px' },
    ).observe(this.element);
  }

  /** Takes in a snapshot of the feed, or what is new of it. */
  take(feed, isWhole, page) {
    if (isWhole) {
      [this.#points, this.#marks] = [[], []];
      // Another dashboard may count other things by the same numbers.
      this.#parts.events.replaceChildren();
    }
    this.feed = feed;
    this.#points.push(...feed.points);
    this.#marks.push(...feed.marks);
    feed.points.forEach((point) => this.#colours.meet(point));
    const oldest = page.at - page.keptSecs * 1000;
    if (this.#points.length && this.#points[0][0] < oldest) {
      this.#points = this.#points.filter((point) => point[0] >= oldest);
      this.#colours.forgetAllBut(this.#points);
    }
    this.#marks = this.#marks.slice(-MOST_MARKS);
    this.show(page);
  }

  /** Draws all anew: the time has changed, or what is to be seen of it. */
  show(page) {
    this.page = page;
    this.#showHead();
    if (this.feed.view) {
      this.#showEpoch();
      this.#showFacts();
      this.#jobs.show(this.feed.view, this.feed.run, this.feed.phase === 'live');
    }
    this.#showEvents();
    if (this.#isSeen) this.#draw();
  }

  /** Tone and label of what is to say of it. */
  get state() {
    const { phase, how, view } = this.feed;
    if (phase === 'live') return verdictWords(view.verdict);
    return {
      tone: ['silent', 'failed', 'vanished'].includes(how) ? 'bad' : 'calm',
      label: how[0].toUpperCase() + how.slice(1),
    };
  }

  #draw() {
    const { at, rangeSecs } = this.page;
    const units = unitsOf(this.feed.view);
    this.timeline.draw({ points: this.#points, marks: this.#marks, units, from: at - rangeSecs * 1000, to: at });
  }

  #showHead() {
    const { phase, view, since, why } = this.feed;
    const { at } = this.page;
    const past = ago((at - since) / 1000);
    set(this.element, 'data-phase', phase);
    set(this.element, 'data-known', view ? 'yes' : 'no');
    write(this.#parts.phase, phase === 'live' ? view.state : phase);
    set(this.#parts.phase, 'data-state', phase === 'live' ? view.state : phase);
    write(this.#parts.meta, view ? metaText(view) : '');
    set(this.#parts.meta, 'title', view ? view.server.command : null);
    const state = this.state;
    const words = phase === 'live' ? state.text : `${past}: ${why}`;
    set(this.#parts.verdict, 'data-tone', state.tone);
    write(this.#parts.label, state.label);
    write(this.#parts.words, words);
    this.#keepHeight(state.label);
  }

  /** Words change every second, and must not move what is below: while they say the same thing, their place only grows. */
  #keepHeight(label) {
    const { verdict } = this.#parts;
    const reason = `${label} ${innerWidth}`;
    if (reason !== this.#reason) verdict.style.minHeight = '';
    this.#reason = reason;
    verdict.style.minHeight = `${verdict.offsetHeight}px`;
  }

  #showEpoch() {
    const { epochs, epoch_samples: done, samples_per_epoch: all, epoch_left_secs: left } = this.feed.view;
    const units = unitsOf(this.feed.view);
    // When all are written, the server counts on.
    const epoch = Math.min(this.feed.view.epoch, (epochs || Infinity) - 1);
    const share = all ? Math.min(done / all, 1) : 0;
    write(this.#parts.epoch, `Epoch ${epoch}${epochs ? ` · ${epoch + 1} of ${epochs}` : ''}`);
    set(this.#parts.progress, 'data-known', all ? 'yes' : 'no');
    set(this.#parts.progress, 'aria-valuenow', all ? Math.round(share * 100) : null);
    this.#parts.done.style.width = `${share * 100}%`;
    const rest = this.feed.phase === 'live' && left !== null ? `${duration(left)} left` : '';
    const text = all
      ? [percent(share), `${count(done)} of ${count(all)} ${units}`, rest]
      : [`${count(done)} ${units} so far`];
    write(this.#parts.left, text.filter(Boolean).join(' · '));
  }

  #showFacts() {
    const view = this.feed.view;
    const cores = (processes) => processes.reduce((sum, { cpu_cores }) => sum + cpu_cores, 0);
    const memory = (processes) => processes.reduce((sum, { private_bytes }) => sum + private_bytes, 0);
    const facts = [
      [
        'Source',
        `${amount(view.samples_per_sec)} ${unitsOf(view)}/s`,
        `${view.whole_batches ? '' : `${amount(view.batches_per_sec)} batches/s, `}${bytes(view.bytes_per_sec)}/s`,
      ],
      [
        'Source’s time',
        `${percent(view.loading_share)} loading`,
        `${percent(view.copying_share)} copying, ${percent(view.waiting_share)} waiting`,
        [view.loading_share, view.copying_share, view.waiting_share],
      ],
      ...held(view),
      [
        'Server',
        `${view.server.cpu_cores.toFixed(2)} cores`,
        [`${bytes(view.server.private_bytes)} in RAM`, ...view.also_serves.map((name) => `with ${name}`)].join(', '),
      ],
      [
        'Workers',
        view.workers.length ? `${cores(view.workers).toFixed(2)} cores` : 'none',
        view.workers.length
          ? `${plural(view.workers.length, 'process', 'processes')}, ${bytes(memory(view.workers))} in RAM`
          : '',
      ],
      ...(view.pool ? [['Pool', '', view.pool.text]] : []),
    ];
    match(
      this.#parts.facts,
      facts,
      ([name]) => name,
      makeFact,
      ({ children: [, value] }, [, text, more, shares]) => {
        const [main, rest, bar] = value.children;
        write(main, text);
        write(rest, more);
        (shares ?? []).forEach((share, index) => (bar.children[index].style.width = `${Math.min(share, 1) * 100}%`));
      },
    );
  }

  #showEvents() {
    const listed = [];
    for (const mark of [...this.#marks].reverse()) {
      // Of epochs that follow each other, the newest.
      if (mark.kind !== 'epoch' || listed.at(-1)?.kind !== 'epoch') listed.push(mark);
    }
    match(
      this.#parts.events,
      listed.slice(0, LISTED),
      ({ number }) => number,
      makeEvent,
      () => {},
    );
  }
}

function metaText(view) {
  const policy = view.replay ? 'replay' : `lag=${view.lag}`;
  const up = view.uptime_secs < 10 ? `${Math.floor(view.uptime_secs)} s` : duration(Math.floor(view.uptime_secs));
  return [`pid ${view.pid}`, `up ${up}`, policy, shortCommand(view.server.command)].join(' · ');
}

/** The samples that are held: in the ring, and behind it; a replayed epoch is all in one. */
function held(view) {
  const place = view.history_in_file ? ' on disk' : '';
  const units = unitsOf(view);
  if (view.replay) {
    const all = view.samples_per_epoch ?? view.ring_samples + view.history_samples;
    const size = `${bytes(view.ring_bytes + view.history_bytes)}${place}`;
    return [['Kept', percent(view.samples / all), `${count(all)} ${units}, ${size}`, [view.samples / all]]];
  }
  const ring = [
    'Ring',
    `${percent(view.ring_fill)} full`,
    `of ${bytes(view.ring_bytes)}, ${count(view.ring_samples)} ${units}`,
    [view.ring_fill],
  ];
  const history = view.history_samples ? view.history_used_samples / view.history_samples : 0;
  return [
    ring,
    [
      'History',
      view.history_samples ? `${percent(history)} full` : 'none',
      view.history_samples ? `of ${bytes(view.history_bytes)}${place}, ${count(view.history_samples)} ${units}` : '',
      [history],
    ],
  ];
}

function makeFact([name, , , shares]) {
  const bar = element('div', { class: 'bar small', 'aria-hidden': 'true' }, ...(shares ?? []).map(() => element('i')));
  return element(
    'div',
    { 'data-fact': name },
    element('dt', {}, name),
    element('dd', {}, element('b', {}), element('span', {}), ...(shares ? [bar] : [])),
  );
}

function makeEvent(mark) {
  const { word, tone } = happening(mark.kind);
  const time = element('time', { datetime: new Date(mark.at).toISOString() }, clock(mark.at));
  return element(
    'li',
    { 'data-kind': mark.kind },
    time,
    element('span', { class: `word ${tone}` }, word),
    element('span', { class: 'text' }, markText(mark)),
  );
}
