// Where the user is: everything that a link must carry stands behind the `#` of the address, so that the pages work
// under any path and behind any proxy, and ids never reach an access log.

export type Params = Record<string, string>;

function read(): { page: string; params: Params } {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  return { page: path || 'overview', params: Object.fromEntries(new URLSearchParams(query)) };
}

const first = read();
const here = $state({ page: first.page, params: first.params });

window.addEventListener('hashchange', () => {
  const now = read();
  here.page = now.page;
  here.params = now.params;
});

export const route = {
  get page() {
    return here.page;
  },
  get params() {
    return here.params;
  },
};

/** Makes a link; empty parameters are left out. */
export function href(page: string, params: Record<string, string | number | undefined | null> = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== '') query.set(key, String(value));
  }
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ''}`;
}

export function go(page: string, params: Record<string, string | number | undefined | null> = {}) {
  location.hash = href(page, params);
}

/** Changes some parameters of this page. `replace` leaves no entry in the browser's history. */
export function setParams(changes: Record<string, string | number | undefined | null>, replace = false) {
  const target = href(here.page, { ...here.params, ...changes });
  if (target === location.hash) return;
  if (replace) {
    history.replaceState(null, '', target);
    const now = read();
    here.params = now.params;
  } else {
    location.hash = target;
  }
}
