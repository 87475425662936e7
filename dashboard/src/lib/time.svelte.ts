// Times for people: relative or absolute, as the user chose; one clock ticks for the whole page.

const clock = $state({ now: Date.now(), absolute: localStorage.getItem('duroxide.times') === 'absolute' });

// The server's clock is the one that stamped the events, so relative times go by it.
let skew = 0;
let timer: ReturnType<typeof setInterval> | undefined;

function tick() {
  clock.now = Date.now() + skew;
}

function run() {
  clearInterval(timer);
  if (!document.hidden) {
    tick();
    timer = setInterval(tick, 1000);
  }
}
document.addEventListener('visibilitychange', run);
run();

export function serverTime(nowMs: number) {
  skew = nowMs - Date.now();
  tick();
}

export const time = {
  get now() {
    return clock.now;
  },
  get absolute() {
    return clock.absolute;
  },
  toggle() {
    clock.absolute = !clock.absolute;
    localStorage.setItem('duroxide.times', clock.absolute ? 'absolute' : 'relative');
  },
};

/** The present to the millisecond, by the server's clock. */
export const exactNow = () => Date.now() + skew;

/** A length of time in at most two units: `1.2 s`, `3 min 20 s`, `2 d 4 h`. */
export function duration(ms: number): string {
  const sign = ms < 0 ? '−' : '';
  const abs = Math.abs(ms);
  if (abs < 1) return '0 ms';
  if (abs < 1000) return `${sign}${Math.round(abs)} ms`;
  if (abs < 10_000) return `${sign}${(abs / 1000).toFixed(1)} s`;
  const s = Math.round(abs / 1000);
  if (s < 60) return `${sign}${s} s`;
  const pair = (a: number, au: string, b: number, bu: string) => `${sign}${a} ${au}${b ? ` ${b} ${bu}` : ''}`;
  if (s < 3600) return pair(Math.floor(s / 60), 'min', s % 60, 's');
  if (s < 86_400) return pair(Math.floor(s / 3600), 'h', Math.floor((s % 3600) / 60), 'min');
  return pair(Math.floor(s / 86_400), 'd', Math.floor((s % 86_400) / 3600), 'h');
}

/** How long ago, or in how long, in one unit. */
export function relative(at: number, now: number): string {
  const delta = now - at;
  const abs = Math.abs(delta);
  const text =
    abs < 1500
      ? ''
      : abs < 60_000
        ? `${Math.round(abs / 1000)} s`
        : abs < 3_600_000
          ? `${Math.floor(abs / 60_000)} min`
          : abs < 86_400_000
            ? `${Math.floor(abs / 3_600_000)} h`
            : `${Math.floor(abs / 86_400_000)} d`;
  if (!text) return 'just now';
  return delta >= 0 ? `${text} ago` : `in ${text}`;
}

const pad = (n: number, width = 2) => String(n).padStart(width, '0');

/** `2026-11-17 14:03:22`, in the zone of the browser. */
export function absolute(at: number, withMs = false): string {
  const d = new Date(at);
  const day = `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
  const clockText = `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return `${day} ${clockText}${withMs ? `.${pad(d.getMilliseconds(), 3)}` : ''}`;
}

/** The time of day, as fine as the span on show needs it. */
export function timeOfDay(at: number, span: number): string {
  const d = new Date(at);
  const hm = `${pad(d.getHours())}:${pad(d.getMinutes())}`;
  if (span > 2 * 86_400_000) return `${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${hm}`;
  if (span > 600_000) return hm;
  const hms = `${hm}:${pad(d.getSeconds())}`;
  return span < 5000 ? `${hms}.${pad(d.getMilliseconds(), 3)}` : hms;
}

/** The browser's zone, as people write it. */
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
