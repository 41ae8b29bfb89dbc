// One feed: its verdict first, then how far it is, its time line, its numbers, its consumers.

import { Colours, TimeLine } from './chart.js';
import { element, match, set, write } from './dom.js';
import { ago, amount, bytes, clock, consumerState, count, duration, happening, markText, modeWords, percent, plural, shortCommand, verdictWords } from './words.js';

const MOST_MARKS = 200;
const LISTED = 60;
const KEYS_PER_RUN = 2 ** 32;

const COLUMNS = [
  ['Job', 'job'], ['User', 'user'], ['Command', 'command'], ['Now', 'now'], ['Batch size', 'number'], ['Batches/s', 'number'],
  ['Samples/s', 'number'], ['Waits for data', 'share'], ['Behind', 'behind'], ['Leases', 'number'], ['Mode', 'mode'],
];

export class Card {
  #colours = new Colours();
  #points = [];
  #marks = [];
  #parts = {};
  #isSeen = true;
  feed = null;

  constructor(name) {
    const id = `feed-${name}`;
    const part = (key, tag, attributes, ...children) => (this.#parts[key] = element(tag, attributes, ...children));
    this.timeline = new TimeLine(name, this.#colours);
    this.element = element('article', { class: 'card', id, 'aria-labelledby': `${id}-name` },
      element('header', {},
        element('h2', { id: `${id}-name` }, name), part('phase', 'span', { class: 'phase' }), part('meta', 'span', { class: 'meta' })),
      element('div', { class: 'verdict-row' },
        part('verdict', 'p', { class: 'verdict' }, part('label', 'strong', {}), ' ', part('words', 'span', {}))),
      element('div', { class: 'epoch' },
        part('epoch', 'b', {}),
        part('progress', 'div', { class: 'bar', role: 'progressbar', 'aria-label': 'Epoch written', 'aria-valuemin': 0, 'aria-valuemax': 100 }, part('done', 'i')),
        part('left', 'span', { class: 'left' })),
      part('facts', 'dl', { class: 'facts' }),
      element('div', { class: 'middle' },
        this.timeline.element,
        element('aside', {},
          element('h3', {}, 'What happened'),
          part('events', 'ol', { class: 'events', tabindex: 0, 'aria-label': 'What happened, the newest first' }))),
      element('div', { class: 'jobs' }, consumersTable(part)));
    new IntersectionObserver(([entry]) => {
      this.#isSeen = entry.isIntersecting;
      if (this.#isSeen) this.#draw();
    }, { rootMargin: '300px' }).observe(this.element);
  }

  /** Takes in a snapshot of the feed, or what is new of it. */
  take(feed, isWhole, page) {
    if (isWhole) [this.#points, this.#marks] = [[], []];
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
      this.#showJobs();
    }
    this.#showEvents();
    if (this.#isSeen) this.#draw();
  }

  /** Tone and label of what is to say of it. */
  get state() {
    const { phase, how, view } = this.feed;
    if (phase === 'live') return verdictWords(view.verdict);
    return { tone: ['silent', 'failed', 'vanished'].includes(how) ? 'bad' : 'calm', label: how[0].toUpperCase() + how.slice(1) };
  }

  #draw() {
    const { at, rangeSecs } = this.page;
    this.timeline.draw({ points: this.#points, marks: this.#marks, from: at - rangeSecs * 1000, to: at });
  }

  #showHead() {
    const { phase, view, since, why } = this.feed;
    const { at } = this.page;
    const past = ago((at - since) / 1000);
    set(this.element, 'data-phase', phase);
    set(this.element, 'data-known', view ? 'yes' : 'no');
    write(this.#parts.phase, phase === 'live' ? view.state : phase);
    set(this.#parts.phase, 'data-state', phase === 'live' ? view.state : phase);
    const policy = view && (view.replay ? 'replay' : `lag=${view.lag}`);
    write(this.#parts.meta, view ? [`pid ${view.pid}`, `up ${duration(Math.floor(Math.max(view.uptime_secs, 10)))}`, policy, shortCommand(view.server.command)].join(' · ') : '');
    set(this.#parts.meta, 'title', view ? view.server.command : null);
    const state = this.state;
    const words = phase === 'live' ? state.text : `${past}: ${why}`;
    set(this.#parts.verdict, 'data-tone', state.tone);
    write(this.#parts.label, state.label);
    write(this.#parts.words, words);
  }

  #showEpoch() {
    const { epoch, epochs, epoch_samples: done, samples_per_epoch: all, epoch_left_secs: left } = this.feed.view;
    const share = all ? Math.min(done / all, 1) : 0;
    write(this.#parts.epoch, `Epoch ${epoch}${epochs ? ` · ${Math.min(epoch + 1, epochs)} of ${epochs}` : ''}`);
    set(this.#parts.progress, 'data-known', all ? 'yes' : 'no');
    set(this.#parts.progress, 'aria-valuenow', all ? Math.round(share * 100) : null);
    this.#parts.done.style.width = `${share * 100}%`;
    const rest = this.feed.phase === 'live' && left !== null ? `${duration(left)} left` : '';
    const text = all ? [percent(share), `${count(done)} of ${count(all)} samples`, rest] : [`${count(done)} samples so far`];
    write(this.#parts.left, text.filter(Boolean).join(' · '));
  }

  #showFacts() {
    const view = this.feed.view;
    const cores = (processes) => processes.reduce((sum, { cpu_cores }) => sum + cpu_cores, 0);
    const memory = (processes) => processes.reduce((sum, { resident_bytes }) => sum + resident_bytes, 0);
    const history = view.history_samples ? view.history_used_samples / view.history_samples : 0;
    const place = view.history_in_file ? ' on disk' : '';
    const facts = [
      ['Source', `${amount(view.samples_per_sec)} samples/s`, `${amount(view.batches_per_sec)} batches/s, ${bytes(view.bytes_per_sec)}/s`],
      ['Source’s time', `${percent(view.loading_share)} loading`, `${percent(view.copying_share)} copying, ${percent(view.waiting_share)} waiting`,
        [view.loading_share, view.copying_share, view.waiting_share]],
      ['Ring', `${percent(view.ring_fill)} full`, `of ${bytes(view.ring_bytes)}, ${count(view.ring_samples)} samples`, [view.ring_fill]],
      ['History', view.history_samples ? `${percent(history)} full` : 'none',
        view.history_samples ? `of ${bytes(view.history_bytes)}${place}, ${count(view.history_samples)} samples` : '', [history]],
      ['Server', `${view.server.cpu_cores.toFixed(2)} cores`, `${bytes(view.server.resident_bytes)} in RAM`],
      ['Workers', view.workers.length ? `${cores(view.workers).toFixed(2)} cores` : 'none',
        view.workers.length ? `${plural(view.workers.length, 'process', 'processes')}, ${bytes(memory(view.workers))} in RAM` : ''],
    ];
    match(this.#parts.facts, facts, ([name]) => name, makeFact, ({ children: [, value] }, [, text, more, shares]) => {
      const [main, rest, bar] = value.children;
      write(main, text);
      write(rest, more);
      (shares ?? []).forEach((share, index) => (bar.children[index].style.width = `${Math.min(share, 1) * 100}%`));
    });
  }

  #showEvents() {
    const listed = [];
    for (const mark of [...this.#marks].reverse()) {
      // Of epochs that follow each other, the newest.
      if (mark.kind !== 'epoch' || listed.at(-1)?.kind !== 'epoch') listed.push(mark);
    }
    match(this.#parts.events, listed.slice(0, LISTED), ({ number }) => number, makeEvent, () => {});
  }

  #showJobs() {
    const { consumers, verdict } = this.feed.view;
    write(this.#parts.caption, consumers.length ? plural(consumers.length, 'job') : 'No jobs: nobody reads this feed');
    set(this.#parts.table, 'data-empty', consumers.length ? null : '');
    match(this.#parts.rows, consumers, ({ id }) => id, makeRow, (row, consumer) => {
      set(row, 'data-pid', consumer.pid);
      set(row, 'data-named', verdict.pid && verdict.pid === consumer.pid ? '' : null);
      this.#showJob(row.children, consumer);
    });
  }

  #showJob([job, user, command, now, size, batches, samples, waits, behind, leases, mode], consumer) {
    const slot = this.#colours.of(this.feed.run * KEYS_PER_RUN + consumer.id);
    const [tone, word] = this.feed.phase === 'live' ? consumerState(consumer) : ['calm', '–'];
    const rank = consumer.rank ? ` rank ${consumer.rank[0]} of ${consumer.rank[1]}` : '';
    set(job.firstChild, 'class', `swatch c${slot ?? 'none'}`);
    write(job.lastChild, (consumer.pid ? `${consumer.pid}` : 'elsewhere') + rank);
    write(user, consumer.user);
    write(command.firstChild, shortCommand(consumer.command) || 'in another container, or gone');
    set(command.firstChild, 'title', consumer.command);
    set(now.firstChild, 'data-tone', tone);
    write(now.firstChild, word);
    write(size, consumer.batch_size === null ? 'as loaded' : count(consumer.batch_size));
    write(batches, amount(consumer.batches_per_sec));
    write(samples, amount(consumer.samples_per_sec));
    const [share, bar] = waits.firstChild.children;
    write(share, percent(consumer.wait_share));
    bar.firstChild.style.width = `${Math.min(consumer.wait_share, 1) * 100}%`;
    write(behind.firstChild, consumer.lag_samples ? `${count(consumer.lag_samples)} · ${duration(consumer.lag_secs)}` : '0');
    write(behind.lastChild, consumer.skipped ? `skipped ${count(consumer.skipped)}` : '');
    set(behind, 'title', `${plural(consumer.lag_samples, 'sample')} behind the newest; the next one has been there for ${duration(consumer.lag_secs)}`);
    write(leases, count(consumer.leases));
    write(mode, modeWords(consumer));
  }
}

function consumersTable(part) {
  const heads = COLUMNS.map(([title, kind]) => element('th', { scope: 'col', role: 'columnheader', class: kind }, title));
  return part('table', 'table', { role: 'table' },
    part('caption', 'caption', {}),
    element('thead', { role: 'rowgroup' }, element('tr', { role: 'row' }, ...heads)),
    part('rows', 'tbody', { role: 'rowgroup' }));
}

function makeRow() {
  const inner = {
    job: () => [element('i', { class: 'swatch' }), element('span', {})],
    command: () => [element('span', {})],
    now: () => [element('span', { class: 'word' })],
    behind: () => [element('span', {}), element('small', {})],
    share: () => [element('div', {}, element('span', {}), element('div', { class: 'bar small', 'aria-hidden': 'true' }, element('i')))],
  };
  const cells = COLUMNS.map(([title, kind]) => element('td', { role: 'cell', class: kind, 'data-title': title }, ...(inner[kind]?.() ?? [])));
  return element('tr', { role: 'row' }, ...cells);
}

function makeFact([name, , , shares]) {
  const bar = element('div', { class: 'bar small', 'aria-hidden': 'true' }, ...(shares ?? []).map(() => element('i')));
  return element('div', {}, element('dt', {}, name), element('dd', {}, element('b', {}), element('span', {}), ...(shares ? [bar] : [])));
}

function makeEvent(mark) {
  const { word, tone } = happening(mark.kind);
  const time = element('time', { datetime: new Date(mark.at).toISOString() }, clock(mark.at));
  return element('li', { 'data-kind': mark.kind }, time, element('span', { class: `word ${tone}` }, word), element('span', { class: 'text' }, markText(mark)));
}
