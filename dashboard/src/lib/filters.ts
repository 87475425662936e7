// The filter of the list of instances, as it stands in the address, and whether a row passes it.
import type { InstanceRow } from './api';
import type { Params } from './router.svelte';

export const FILTERS = ['state', 'name', 'version', 'q', 'match', 'since', 'before', 'changed', 'idle', 'parent', 'root', 'custom', 'waits', 'sort'] as const;

export type View = { name: string; params: Params; own?: boolean };

export const VIEWS: View[] = [
  { name: 'All', params: {} },
  { name: 'Running', params: { state: 'running,waiting,pending' } },
  { name: 'Failed', params: { state: 'failed' } },
  { name: 'Blocked', params: { state: 'blocked' } },
  { name: 'Retrying', params: { waits: 'retry' } },
  { name: 'Waiting for an event', params: { waits: 'event' } },
];

const KEY = 'duroxide.views';

export function ownViews(): View[] {
  try {
    const stored = JSON.parse(localStorage.getItem(KEY) ?? '[]') as View[];
    return stored.filter((v) => typeof v.name === 'string' && typeof v.params === 'object').map((v) => ({ ...v, own: true }));
  } catch {
    return [];
  }
}

export const saveViews = (views: View[]) => localStorage.setItem(KEY, JSON.stringify(views));

export function filterOf(params: Params): Params {
  const kept: Params = {};
  for (const key of FILTERS) if (params[key]) kept[key] = params[key];
  return kept;
}

/** Two filters that ask for the same have the same text. */
export const textOf = (params: Params) =>
  FILTERS.map((key) => `${key}=${params[key] ?? ''}`).join('&');

const UNITS: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `2h` in milliseconds. */
export function span(text: string | undefined): number | null {
  const parsed = /^(\d+)([smhd])$/.exec(text ?? '');
  return parsed ? Number(parsed[1]) * (UNITS[parsed[2] ?? 's'] ?? 0) : null;
}

/** What the API is asked. */
export function query(params: Params, now: number): Record<string, string | number | undefined> {
  const ago = (text: string | undefined) => {
    const ms = span(text);
    return ms === null ? undefined : now - ms;
  };
  const prefix = params.match === 'prefix';
  return {
    state: params.state,
    name: params.name,
    version: params.version,
    q: prefix ? undefined : params.q,
    prefix: prefix ? params.q : undefined,
    created_after: ago(params.since),
    created_before: ago(params.before),
    updated_after: ago(params.changed),
    updated_before: ago(params.idle),
    parent: params.parent,
    root: params.root,
    custom_status: params.custom,
    waits: params.waits,
    sort: params.sort,
  };
}

/**
 * Only the server can tell which rows pass: those of the stream do not say what an instance waits for, nor that a
 * descendant is one.
 */
export const isServers = (params: Params) => Boolean(params.waits || params.root);

/** Rows come and go as time passes, without a change that the stream tells. */
export const isTimed = (params: Params) => isServers(params) || Boolean(params.since || params.before || params.changed || params.idle);

/** Whether a row that the stream brought belongs into the list. */
export function passes(row: InstanceRow, params: Params, now: number): boolean {
  if (params.state && !params.state.split(',').includes(row.state)) return false;
  if (params.name && row.name !== params.name) return false;
  if (params.version && row.version !== params.version) return false;
  if (params.parent && row.parent !== params.parent) return false;
  if (params.custom && row.custom_status !== params.custom) return false;
  if (params.q && !(params.match === 'prefix' ? row.id.startsWith(params.q) : row.id.includes(params.q))) return false;
  const isWithin = (at: number, text: string | undefined) => {
    const ms = span(text);
    return ms === null ? null : at >= now - ms;
  };
  return isWithin(row.created_at_ms, params.since) !== false && isWithin(row.created_at_ms, params.before) !== true
    && isWithin(row.updated_at_ms, params.changed) !== false && isWithin(row.updated_at_ms, params.idle) !== true;
}

/** The steps in which the server orders by the time of the last change, in milliseconds. */
const STEP = 10_000;

/**
 * Compares rows by their places in the server's list, so that no row is at one place here and at another on the next page: by
 * time, then those before their first turn, then the newest creations.
 */
export function byPlace(params: Params) {
  const at = (row: InstanceRow) => (params.sort === 'updated' ? Math.floor(row.updated_at_ms / STEP) : row.created_at_ms);
  const isStart = (row: InstanceRow) => Number(row.incarnation === 0);
  return (a: InstanceRow, b: InstanceRow) =>
    at(b) - at(a) || isStart(b) - isStart(a) || b.incarnation - a.incarnation || b.created_at_ms - a.created_at_ms || (a.id < b.id ? 1 : -1);
}
