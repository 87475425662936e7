// One stream of changes for the whole page. It resumes where it was cut, rests while the page is hidden, and says so
// when the server is gone.
import { untrack } from 'svelte';
import { headers, token, url, whenUnauthorized, type InstanceRow, type Overview } from './api';

export type Change =
  | { type: 'overview'; overview: Overview }
  | { type: 'instances'; rows: InstanceRow[]; removed: string[] }
  | { type: 'instance'; id: string }
  | { type: 'reset' };

const link = $state<{ state: 'connecting' | 'live' | 'paused' | 'offline' | 'refused'; overview: Overview | null }>({
  state: 'connecting',
  overview: null,
});

const listeners = new Set<(change: Change) => void>();
let watched: string | null = null;
let lastId = '';
let attempt = 0;
let current: AbortController | null = null;
let retry: ReturnType<typeof setTimeout> | undefined;

export const live = {
  get state() {
    return link.state;
  },
  /** The newest figures that the stream brought. */
  get overview() {
    return link.overview;
  },
  /** Hears of every change until the returned function is called. */
  listen(listener: (change: Change) => void) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  /** Asks for changes of this instance, too. */
  watch(id: string | null) {
    if (watched === id) return;
    watched = id;
    // What was missed is of no use to another page, which reads everything afresh.
    lastId = '';
    connect();
  },
  connect: () => connect(),
};

function tell(change: Change) {
  if (change.type === 'overview') link.overview = change.overview;
  for (const listener of listeners) listener(change);
}

function receive(event: string, data: string) {
  if (event === 'reset') return tell({ type: 'reset' });
  const value: unknown = JSON.parse(data);
  if (event === 'overview') tell({ type: 'overview', overview: value as Overview });
  if (event === 'instances') tell({ type: 'instances', ...(value as { rows: InstanceRow[]; removed: string[] }) });
  if (event === 'instance') tell({ type: 'instance', id: (value as { id: string }).id });
}

/** Takes complete events off the front of the text; returns what is left. */
export function takeEvents(text: string, each: (id: string | null, event: string, data: string) => void): string {
  let rest = text;
  for (;;) {
    const end = rest.indexOf('\n\n');
    if (end < 0) return rest;
    const block = rest.slice(0, end);
    rest = rest.slice(end + 2);
    let id: string | null = null;
    let event = 'message';
    const data: string[] = [];
    for (const line of block.split('\n')) {
      const colon = line.indexOf(':');
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'id') id = value;
      if (field === 'event') event = value;
      if (field === 'data') data.push(value);
    }
    if (data.length || event !== 'message') each(id, event, data.join('\n'));
  }
}

async function read(controller: AbortController) {
  const query = watched === null ? '' : `?instance=${encodeURIComponent(watched)}`;
  const response = await fetch(url(`/stream${query}`), {
    headers: { ...headers(), accept: 'text/event-stream', ...(lastId ? { 'last-event-id': lastId } : {}) },
    signal: controller.signal,
  });
  if (response.status === 401) {
    link.state = 'refused';
    return;
  }
  if (!response.ok || !response.body) throw new Error(`stream: ${response.status}`);
  link.state = 'live';
  attempt = 0;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error('the stream ended');
    text = takeEvents(text + value, (id, event, data) => {
      if (id) lastId = id;
      receive(event, data);
    });
  }
}

// Whoever connects in an effect does not depend on the state of the connection: it would connect again for ever.
const connect = () => untrack(connectNow);

function connectNow() {
  clearTimeout(retry);
  current?.abort();
  if (document.hidden) {
    link.state = 'paused';
    return;
  }
  const controller = new AbortController();
  current = controller;
  if (link.state !== 'live') link.state = 'connecting';
  read(controller).catch(() => {
    if (current !== controller || controller.signal.aborted) return;
    link.state = 'offline';
    attempt += 1;
    // 0.5, 1, 2, 4, 5, 5 ... seconds
    retry = setTimeout(connect, Math.min(5000, 250 * 2 ** attempt));
  });
}

document.addEventListener('visibilitychange', connect);
window.addEventListener('online', connect);
export { token, whenUnauthorized };
