// The typed client of the REST API. The types come from the OpenAPI document (`npm run types`).
import type { components, paths } from './schema';
import { serverTime } from './time.svelte';

type Schemas = components['schemas'];
export type Meta = Schemas['Meta'];
export type Overview = Schemas['Overview'];
export type InstanceRow = Schemas['InstanceRow'];
export type InstancePage = Schemas['InstancePage'];
export type Instance = Schemas['Instance'];
export type State = Schemas['State'];
export type EventRow = Schemas['EventRow'];
export type EventPage = Schemas['EventPage'];
export type Wait = Schemas['Wait'];
export type Execution = Schemas['Execution'];
export type InstanceState = Schemas['InstanceData'];
export type Worker = Schemas['Worker'];
export type Queues = Schemas['Queues'];
export type QuarantineRow = Schemas['QuarantineRow'];
export type Done = Schemas['Done'];
export type BulkResult = Schemas['BulkResult'];

const TOKEN = 'duroxide.token';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

let onUnauthorized: () => void = () => {};
/** Called when the server wants a token that it did not get. */
export function whenUnauthorized(handler: () => void) {
  onUnauthorized = handler;
}

// The token lives as long as the tab, in storage of this origin and port only. A cookie would go to every other
// server on this host, whatever its port.
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value: string) => sessionStorage.setItem(TOKEN, value),
  clear: () => sessionStorage.removeItem(TOKEN),
};

export function headers(): Record<string, string> {
  const secret = token.get();
  return secret ? { authorization: `Bearer ${secret}` } : {};
}

/** An address of the API, relative to wherever the pages are mounted. */
export const url = (path: string) => `./api/v1${path}`;

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  if (response.status === 401) onUnauthorized();
  const text = await response.text();
  let message = text || response.statusText;
  try {
    message = (JSON.parse(text) as { error?: string }).error ?? message;
  } catch {
    // Not ours: a proxy answered. Its text has to do.
  }
  throw new ApiError(response.status, message);
}

type Query = Record<string, string | number | boolean | undefined | null>;
type GetPath = { [P in keyof paths]: paths[P] extends { get: { responses: unknown } } ? P : never }[keyof paths];
type PostPath = { [P in keyof paths]: paths[P] extends { post: { responses: unknown } } ? P : never }[keyof paths];
type Json<R> = R extends { responses: { 200: { content: { 'application/json': infer T } } } } ? T : never;
type GetAnswer<P extends GetPath> = paths[P] extends { get: infer R } ? Json<R> : never;
type PostAnswer<P extends PostPath> = paths[P] extends { post: infer R } ? Json<R> : never;
type PostBody<P extends PostPath> = paths[P] extends {
  post: { requestBody: { content: { 'application/json': infer B } } };
}
  ? B
  : never;

export async function get<P extends GetPath>(path: P, query: Query = {}, signal?: AbortSignal): Promise<GetAnswer<P>> {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') search.set(key, String(value));
  }
  const tail = search.size ? `?${search}` : '';
  const response = await fetch(`.${path}${tail}`, { headers: headers(), ...(signal ? { signal } : {}) });
  return answer(response);
}

export async function post<P extends PostPath>(path: P, body: PostBody<P>): Promise<PostAnswer<P>> {
  const response = await fetch(`.${path}`, {
    method: 'POST',
    headers: { ...headers(), 'content-type': 'application/json', 'x-duroxide-action': '1' },
    body: JSON.stringify(body),
  });
  return answer(response);
}

export async function loadMeta(): Promise<Meta> {
  const meta = await get('/api/v1/meta');
  serverTime(meta.now_ms);
  return meta;
}

/** The text of an error, for people. */
export function reason(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (error instanceof TypeError) return 'The server does not answer.';
  return error instanceof Error ? error.message : String(error);
}

export const isAbort = (error: unknown) => error instanceof DOMException && error.name === 'AbortError';
