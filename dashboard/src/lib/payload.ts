// Payloads are the customer's data. They are shown as text, never as markup.

/** Lays out JSON on several lines; any other text stays as it is. */
export function pretty(text: string): string {
  const trimmed = text.trim();
  if (!/^[[{"]/.test(trimmed)) return text;
  try {
    return JSON.stringify(JSON.parse(trimmed), null, 2);
  } catch {
    return text;
  }
}

/** One line for a table: JSON without white space, a string without its quotes. */
export function oneLine(text: string | null | undefined): string {
  if (text === null || text === undefined) return '';
  const trimmed = text.trim();
  if (trimmed.startsWith('"')) {
    try {
      const value: unknown = JSON.parse(trimmed);
      if (typeof value === 'string') return value.replace(/\s+/g, ' ');
    } catch {
      // It is cut or no JSON: shown as it is.
    }
  }
  return trimmed.replace(/\s+/g, ' ');
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  if (n < 1_000_000) return `${(n / 1000).toFixed(1)} kB`;
  return `${(n / 1_000_000).toFixed(1)} MB`;
}

const plain = new Intl.NumberFormat('en');
/** A number with separators: `12,345`. */
export const count = (n: number) => plain.format(n);

/** A count that may be a bound: `10,000+`. */
export const countedText = (n: { count: number; is_more: boolean }) => `${plain.format(n.count)}${n.is_more ? '+' : ''}`;

/** A number that fits a tile: `12.3 k`. */
export function shortCount(n: number): string {
  if (n < 10_000) return plain.format(n);
  if (n < 1_000_000) return `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)} k`;
  return `${(n / 1_000_000).toFixed(1)} M`;
}

/** Gives the user a file. */
export function download(name: string, type: string, parts: BlobPart[]) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A file name made of an id that may hold anything. */
export const fileName = (id: string) => id.replace(/[^A-Za-z0-9._-]+/g, '_').slice(0, 80) || 'instance';
